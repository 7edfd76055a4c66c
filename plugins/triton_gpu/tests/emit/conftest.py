"""Kernels by hand, compiled and run on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from kernel_reference import run_kernel

from jitney.backends.devices import raw_stream
from jitney_lowering.index import Size
from jitney_lowering.ir import Kernel, canonical
from jitney_triton_gpu import tiles
from jitney_triton_gpu.code import Code, Parameter
from jitney_triton_gpu.device import INTERPRETED
from jitney_triton_gpu.emit import emit
from jitney_triton_gpu.launcher import HEADER
from jitney_triton_gpu.module import load

Buffers = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Compiled:
    """The functions of some kernels, and what launches them."""

    codes: tuple[Code, ...]
    buffers: tuple[Mapping[str, str], ...]  # what each calls its buffers -> their names
    launchers: Mapping[str, Callable[..., None]]
    device: torch.device

    @property
    def names(self) -> list[str]:
        """Of the functions, in order."""
        return [f.name for code in self.codes for f in code.functions]

    @property
    def text(self) -> str:
        """Of all functions."""
        return "\n".join(f.text for code in self.codes for f in code.functions)

    def __call__(self, buffers: Buffers, sizes: Mapping[Size, int] | None = None) -> None:
        """Runs all; ``buffers`` may be views, the first element is where an index of 0 is; written in place."""
        there = {name: t.to(self.device) for name, t in buffers.items()}
        for code, names in zip(self.codes, self.buffers, strict=True):
            self._run(code, {own: there[name] for own, name in names.items()}, sizes or {})
        for name, tensor in buffers.items():
            tensor.copy_(there[name])

    def _run(self, code: Code, buffers: Buffers, sizes: Mapping[Size, int]) -> None:
        stream = [] if INTERPRETED else [raw_stream(self.device.index)]
        memory = {
            w.name: torch.empty(w.count.evaluate(sizes), dtype=w.dtype, device=self.device) for w in code.workspaces
        }
        for function in code.functions:
            given = [self._given(p, {**buffers, **memory}, sizes) for p in function.parameters]
            self.launchers[function.name](function.programs.evaluate(sizes), *stream, *given)

    def _given(self, parameter: Parameter, tensors: Buffers, sizes: Mapping[Size, int]) -> Any:
        if isinstance(parameter.of, Size):
            return sizes[parameter.of]
        return tensors[parameter.of] if INTERPRETED else tensors[parameter.of].data_ptr()


@pytest.fixture(autouse=True)
def small_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few programs, so that each goes over several rows of small examples, on a GPU too."""
    monkeypatch.setattr(tiles, "PROCESSORS", 3)


@pytest.fixture(scope="session")
def compiled(device: torch.device) -> Callable[..., Compiled]:
    """``compiled(*kernels)``: a function of buffers and sizes; ``replaced``: what is overwritten, see ``emit``."""

    def compile_kernels(*kernels: Kernel, wide: bool = False, replaced: Mapping[str, str] | None = None) -> Compiled:
        shapes = [canonical(kernel) for kernel in kernels]
        buffers = tuple({f"b{n}": name for n, name in enumerate(names)} for _, names in shapes)
        mine = [{name: own for own, name in names.items()} for names in buffers]
        gone = [{own[old]: own[new] for old, new in (replaced or {}).items() if old in own} for own in mine]
        codes = tuple(emit(shape, f"k{n}", replaced=gone[n], wide=wide) for n, (shape, _) in enumerate(shapes))
        functions = {f.name: f for code in codes for f in code.functions}
        source = HEADER + "".join(f"\n\n{f.text}" for f in functions.values())
        return Compiled(codes, buffers, load(source, "test", functions, device, False), device)

    return compile_kernels


@pytest.fixture(scope="session")
def check(compiled: Callable[..., Compiled]) -> Callable[..., Compiled]:
    """``check(kernel, buffers, sizes)``: the kernel and the reference leave the same in all buffers."""

    def compare(
        kernel: Kernel,
        buffers: Buffers,
        sizes: Mapping[Size, int] | None = None,
        *,
        rtol: float = 0.0,
        atol: float = 0.0,
        wide: bool = False,
    ) -> Compiled:
        function = compiled(kernel, wide=wide)
        expected = {name: t.clone() for name, t in buffers.items()}
        run_kernel(kernel, expected, sizes)
        found = {name: t.clone() for name, t in buffers.items()}
        function(found, sizes)
        for name in buffers:
            torch.testing.assert_close(
                found[name],
                expected[name],
                rtol=rtol,
                atol=atol,
                equal_nan=True,
                msg=lambda text, name=name: f"{name} of\n{kernel}\n{function.text}\n{text}",  # type: ignore[misc]
            )
        return function

    return compare
