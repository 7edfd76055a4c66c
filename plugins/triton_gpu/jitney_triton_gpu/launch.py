"""Kernels on CUDA devices: compiled by Triton, several at a time, and launched without it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from jitney_triton_gpu.code import Function
from jitney_triton_gpu.cuda import CudaError, Loaded
from jitney_triton_gpu.emit.dtypes import POINTERS
from jitney_triton_gpu.failures import NotCompiled

COMPILERS = 16  # threads: most of the work is in native code
ALIGNED = [["tt.divisibility", 16]]


def launchers(
    functions: Mapping[str, Function], namespace: Mapping[str, Any], device: torch.device, relaxed: bool
) -> dict[str, Callable[..., None]]:
    """A launcher for each function: ``launch(programs, stream, *arguments)`` with addresses for buffers.

    Raises:
        NotCompiled: Triton or the driver refused some.
    """
    target, number = target_of(device), device.index or 0
    made = {name: Launcher(f, namespace[f.name], target, number, relaxed) for name, f in functions.items()}
    errors: dict[str, Exception] = {}

    def compile_one(name: str) -> Any:
        try:
            return made[name].compile(aligned=True)
        except Exception as error:  # whatever a compiler raises
            errors[name] = error

    with ThreadPoolExecutor(COMPILERS) as pool:
        compiled = dict(zip(made, pool.map(compile_one, made), strict=True))
    for name, code in compiled.items():
        try:
            if name not in errors:
                made[name].load(code, aligned=True)
        except CudaError as error:
            errors[name] = error
    if errors:
        raise NotCompiled(errors, {name: details(functions[name], target, relaxed=relaxed) for name in errors})
    return {name: one.function() for name, one in made.items()}


def target_of(device: torch.device) -> GPUTarget:
    """What Triton compiles for."""
    major, minor = torch.cuda.get_device_capability(device)
    return GPUTarget("cuda", major * 10 + minor, 32)


def compiled(function: Function, kernel: Any, target: GPUTarget, *, aligned: bool, relaxed: bool = False) -> Any:
    """Triton's compiled kernel.

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
    return triton.compile(source, target=target, options=given["options"])


def details(function: Function, target: GPUTarget, *, aligned: bool = True, relaxed: bool = False) -> dict[str, Any]:
    """What Triton is told of a function besides its text; see ``compiled``."""
    integer = "i64" if function.wide else "i32"
    signature = {p.name: f"*{POINTERS[p.dtype]}" if p.kind != "size" else integer for p in function.parameters}
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
        },
    }


class Launcher:
    """One function, compiled for addresses that are multiples of 16, and for others when they come."""

    def __init__(self, function: Function, kernel: Any, target: GPUTarget, device: int, relaxed: bool) -> None:
        self.described = function
        self.kernel = kernel
        self.target = target
        self.device = device
        self.relaxed = relaxed
        self.loaded: dict[bool, Loaded] = {}
        self._lock = threading.Lock()
        self._unaligned: Callable[..., None]

    def compile(self, *, aligned: bool) -> Any:
        """Triton's compiled kernel."""
        return compiled(self.described, self.kernel, self.target, aligned=aligned, relaxed=self.relaxed)

    def load(self, code: Any, *, aligned: bool) -> Loaded:
        """Onto the current device."""
        metadata = code.metadata
        entry = code.asm["ptx"].split(".entry", 1)[1].split(")", 1)[0]
        parameters = len(re.findall(r"\.param\b", entry))
        given = len(self.described.parameters)
        threads = 32 * metadata.num_warps
        made = Loaded(self.device, code.asm["cubin"], metadata.name, metadata.shared, threads, given, parameters)
        self.loaded[aligned] = made
        return made

    def unaligned(self) -> Callable[..., None]:
        """For addresses that are no multiples of 16."""
        with self._lock:
            if False not in self.loaded:
                self.load(self.compile(aligned=False), aligned=False)
                self._unaligned = self.loaded[False].launcher(self.names)
            return self._unaligned

    @property
    def names(self) -> list[str]:
        """Of the function's parameters."""
        return [p.name for p in self.described.parameters]

    def function(self) -> Callable[..., None]:
        """What generated code calls."""
        pointers = " | ".join(p.name for p in self.described.parameters if p.kind != "size") or "0"
        given = ", ".join(["programs", "stream", *self.names])
        first = f"    if ({pointers}) & 15: return unaligned()({given})\n"
        launch: Callable[..., None] = self.loaded[True].launcher(self.names, first, {"unaligned": self.unaligned})
        return launch
