"""Triton's compiler, one stage after the other.

``triton.compile`` names what it keeps by all of Triton's libraries, which each process reads in 0.3 s, and writes a
file for each stage. Here nothing is kept (``image_cache`` does that), and PTX is repaired on its way to the assembler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from jitney_triton_gpu.ptx import assembled, repaired


@dataclass(frozen=True)
class Translation:
    """What Triton has made of a function.

    Args:
        ptx: its text, repaired.
        code: machine code.
        name: of the kernel in it.
        shared: bytes of shared memory.
        warps: of a program.
    """

    ptx: str
    code: bytes
    name: str
    shared: int
    warps: int


def translated(source: ASTSource, target: GPUTarget, options: Mapping[str, Any]) -> Translation:
    """The function for a GPU; raises what Triton and its assembler raise.

    ``options``: those of Triton's backend.
    """
    if is_watched():
        return _by_triton(source, target, options)
    backend: Any = make_backend(target)
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(parsed)
    module: Any = source.make_ir(target, parsed, functions, backend.get_module_map(), context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    metadata: dict[str, Any] = {"target": target, **vars(parsed)}
    ptx = ""
    for name in [*stages][[*stages].index(source.ext) :]:
        module = stages[name](module, metadata)
        if name == "ptx":
            module = ptx = repaired(module)
    return Translation(ptx, module, metadata["name"], metadata["shared"], metadata["num_warps"])


def is_watched() -> bool:
    """Does somebody want to see, to replace, or to have anew what ``triton.compile`` does at each stage?"""
    known = triton.knobs.compilation
    seen = (known.dump_ir, known.use_ir_loc, known.listener)
    return (
        any((*seen, known.override, known.instrumentation_mode, known.always_compile))
        or triton.knobs.runtime.add_stages_inspection_hook is not None
    )


def _by_triton(source: ASTSource, target: GPUTarget, options: Mapping[str, Any]) -> Translation:
    made: Any = triton.compile(source, target=target, options=dict(options))
    ptx, code, metadata = made.asm["ptx"], made.asm["cubin"], made.metadata
    if (right := repaired(ptx)) != ptx:
        ptx, code = right, assembled(right, target, options)
    return Translation(ptx, code, metadata.name, metadata.shared, metadata.num_warps)
