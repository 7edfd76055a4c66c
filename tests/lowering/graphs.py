"""Graphs for the lowering's tests: what jitney's own AOT makes of a function, lowered and run by the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

import jitney
from jitney.backends import Backend
from jitney.lowering import decompositions, lower
from jitney.lowering.loops import Computed, Program
from jitney.lowering.reference import run


class Captured:
    """A backend that lowers each graph, and runs what it lowered by the reference."""

    def __init__(self, taken_apart: bool = True, relaxed: bool = False) -> None:
        self.programs: list[Program] = []
        self.graphs: list[fx.GraphModule] = []
        self.relaxed = relaxed
        table = decompositions() if taken_apart else None
        self.backend = Backend("captured", self._compile, level="aten", decompositions=table)

    def _compile(self, graph: fx.GraphModule, inputs: Any, request: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        program = lower(graph, inputs, relaxed_math=self.relaxed)
        program.verify()
        self.programs.append(program)
        return lambda *args: run(program, args)

    @property
    def program(self) -> Program:
        """The only one."""
        (program,) = self.programs
        return program


def lowered(fn: Callable[..., Any], *args: Any, dynamic: bool | None = False, **options: Any) -> Captured:
    """``fn`` called through its lowered graph, its result compared with eager's; what was made on the way."""
    captured = Captured(**options)
    want = fn(*args)
    got = jitney.compile(fn, backend=captured.backend, fullgraph=True, dynamic=dynamic)(*args)
    assert captured.programs, "nothing was lowered"
    assert_same(got, want)
    return captured


def assert_same(got: Any, want: Any) -> None:
    """Equal structure, dtypes, sizes, strides, and values within rounding."""
    __tracebackhide__ = True
    if isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)) and len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)
    elif isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.numel():
            strides = [(a, b) for n, a, b in zip(want.shape, got.stride(), want.stride(), strict=True) if n != 1]
            assert all(a == b for a, b in strides), f"strides {got.stride()}, not {want.stride()}"
        torch.testing.assert_close(got, want, equal_nan=True)
    else:
        assert got == want


def kinds(program: Program) -> list[str]:
    """The steps: kinds of loops, names of operators."""
    return [s.kind if isinstance(s, Computed) else str(s.target.name().split("::")[1]) for s in program.steps]
