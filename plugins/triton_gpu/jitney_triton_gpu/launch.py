"""Kernels for CUDA devices, compiled by Triton, several at a time."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from jitney_triton_gpu import image_cache
from jitney_triton_gpu.coalescing import left_out, takes_too_long
from jitney_triton_gpu.code import Function
from jitney_triton_gpu.cuda import CudaError
from jitney_triton_gpu.emit.dtypes import POINTERS
from jitney_triton_gpu.failures import NotCompiled
from jitney_triton_gpu.images import Image, Launcher
from jitney_triton_gpu.stages import Translation, translated

COMPILERS = 16  # threads: most of the work is in native code
ALIGNED = [["tt.divisibility", 16]]


def launchers(
    functions: Mapping[str, Function], namespace: Mapping[str, Any], device: torch.device, relaxed: bool
) -> dict[str, Launcher]:
    """A launcher for each function.

    Raises:
        NotCompiled: Triton or the driver refused some.
    """
    target, number = target_of(device), device.index or 0
    errors: dict[str, Exception] = {}

    def compile_one(name: str) -> Image | None:
        try:
            return image(functions[name], namespace[functions[name].name], target, aligned=True, relaxed=relaxed)
        except Exception as error:  # whatever a compiler raises
            errors[name] = error
            return None

    with ThreadPoolExecutor(COMPILERS) as pool:
        images = dict(zip(functions, pool.map(compile_one, functions), strict=True))
    made = {}
    for name, code in images.items():
        f = functions[name]
        try:
            if code is not None:
                again = functools.partial(image, f, namespace[f.name], target, aligned=False, relaxed=relaxed)
                made[name] = Launcher(f, code, number, again)
        except CudaError as error:
            errors[name] = error
    if errors:
        raise NotCompiled(errors, {name: details(functions[name], target, relaxed=relaxed) for name in errors})
    return made


def image(function: Function, kernel: Any, target: GPUTarget, *, aligned: bool, relaxed: bool) -> Image:
    """The machine code of a function, from the disk if it is there; see ``compiled``."""
    key = image_cache.key_of(kernel.src, details(function, target, aligned=aligned, relaxed=relaxed))
    known = image_cache.load(key)
    if known is not None:
        return known
    code = compiled(function, kernel, target, aligned=aligned, relaxed=relaxed)
    parameters = len(re.findall(r"\.param\b", code.ptx.split(".entry", 1)[1].split(")", 1)[0]))
    made = Image(code.code, code.name, code.shared, 32 * code.warps, parameters)
    image_cache.store(key, made)
    return made


def target_of(device: torch.device) -> GPUTarget:
    """What Triton compiles for."""
    major, minor = torch.cuda.get_device_capability(device)
    return GPUTarget("cuda", major * 10 + minor, 32)


def compiled(
    function: Function, kernel: Any, target: GPUTarget, *, aligned: bool, relaxed: bool = False
) -> Translation:
    """What Triton makes of a function.

    Args:
        function: what it is.
        kernel: the ``triton.jit`` function.
        target: the GPU.
        aligned: are all addresses multiples of 16?
        relaxed: may a product and a sum be rounded once?
    """
    given = details(function, target, aligned=aligned, relaxed=relaxed)
    source = ASTSource(
        fn=kernel, signature=given["signature"], constexprs=given["constexprs"], attrs=given["attributes"]
    )
    with left_out(takes_too_long(function.body)):
        return translated(source, target, given["options"])


def details(function: Function, target: GPUTarget, *, aligned: bool = True, relaxed: bool = False) -> dict[str, Any]:
    """What Triton is told of a function besides its text; see ``compiled``."""
    pointers = {p.name: f"*{POINTERS[p.dtype]}" for p in function.parameters if p.kind != "size"}
    signature = {p.name: (pointers | function.integers)[p.name] for p in function.parameters}
    return {
        "signature": signature | dict.fromkeys(function.blocks, "constexpr"),
        "constexprs": dict(function.blocks),
        "attributes": {(n,): ALIGNED for n, p in enumerate(function.parameters) if p.kind != "size" and aligned},
        "target": target,
        "options": {
            "num_warps": function.warps,
            "enable_fp_fusion": relaxed,  # eager rounds between operators
            "enable_reflect_ftz": False,  # and keeps denormals
            "debug": function.asserts,
            "sanitize_overflow": False,  # integers wrap around, as in eager
        },
    }
