"""Graphs for the lowering's tests: what jitney's own AOT makes of a function, lowered and run by the reference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

import jitney
from jitney.backends import Backend
from jitney.torch_compat.torch_private import FakeTensorMode
from jitney_lowering import CPU, Policy, decompositions, lower
from jitney_lowering.ir import Computed, Extern, Program
from jitney_lowering.ir.reference import run
from jitney_testing.opinfo.referee import WIDE, as_good, wide


class Captured:
    """A backend that lowers each graph, and runs what it lowered by the reference."""

    def __init__(self, taken_apart: bool = True, relaxed: bool = False, policy: Policy = CPU) -> None:
        self.programs: list[Program] = []
        self.graphs: list[fx.GraphModule] = []
        self.relaxed = relaxed
        self.policy = policy
        table = decompositions() if taken_apart else None
        self.backend = Backend("captured", self._compile, level="aten", decompositions=table)

    def _compile(self, graph: fx.GraphModule, inputs: Any, request: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        program = lower(graph, inputs, relaxed_math=self.relaxed, policy=self.policy)
        program.verify()
        self.programs.append(program)
        return lambda *args: run(program, args)

    @property
    def program(self) -> Program:
        """The only one."""
        (program,) = self.programs
        return program


def lowered(
    fn: Callable[..., Any],
    *args: Any,
    whole: Sequence[str] | None = (),
    dynamic: bool | None = False,
    exact: bool = False,
    **options: Any,
) -> Captured:
    """``fn`` called through its lowered graphs, its result compared with eager's.

    Args:
        fn: what to lower.
        args: its arguments.
        whole: the operators that run as a whole, as in ``mm.default``; None if that does not matter.
        dynamic: see ``jitney.compile``.
        exact: must values be equal to the last bit?
        options: for ``Captured``.

    Returns:
        what was made on the way.
    """
    __tracebackhide__ = True
    captured = Captured(**options)
    want = fn(*args)
    truth = functools.cache(lambda: fn(*wide(args)))
    got = jitney.compile(fn, backend=captured.backend, fullgraph=True, dynamic=dynamic)(*args)
    assert captured.programs, "nothing was lowered"
    assert_same(got, want, exact, truth=None if exact else truth)
    if whole is not None:
        assert externs(captured.programs) == list(whole)
    return captured


def trained(
    fn: Callable[..., Any], *args: Any, whole: Sequence[str] | None = (), dynamic: bool | None = False, **options: Any
) -> Captured:
    """Like ``lowered``, and the gradients of all arguments that require them are compared too."""
    __tracebackhide__ = True
    captured = Captured(**options)
    compiled = jitney.compile(fn, backend=captured.backend, fullgraph=True, dynamic=dynamic)

    def results(call: Callable[..., Any], args: Any) -> list[Any]:
        own = [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]
        result = call(*own)
        tangent = torch.linspace(-1, 2, result.numel()).reshape(result.shape).to(result.dtype)
        result.backward(tangent)
        return [result.detach(), *(a.grad for a in own if isinstance(a, torch.Tensor) and a.requires_grad)]

    found = [results(call, args) for call in (fn, compiled)]
    assert len(captured.programs) == 2, "forward and backward were expected"
    assert_same(found[1], found[0], strides=False, truth=functools.cache(lambda: results(fn, wide(args))))
    if whole is not None:
        assert externs(captured.programs) == list(whole)
    return captured


def externs(programs: Sequence[Program]) -> list[str]:
    """The operators that run as a whole."""
    steps = [s for program in programs for s in program.steps if isinstance(s, Extern)]
    return [str(s.target).removeprefix("aten.") for s in steps]


def assert_same(
    got: Any, want: Any, exact: bool = False, *, strides: bool = True, truth: Callable[[], Any] | None = None
) -> None:
    """Equal structure, dtypes, sizes, strides, and values: to the last bit, or within rounding.

    ``truth``: the same in float64. Eager's kernels round otherwise on each kind of processor, and some are wrong about
    infinities there: what is no further from the truth than twice eager's is as good.
    """
    __tracebackhide__ = True
    if isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)) and len(got) == len(want)
        for n, (a, b) in enumerate(zip(got, want, strict=True)):
            part = None if truth is None else lambda n=n, truth=truth: truth()[n]
            assert_same(a, b, exact, strides=strides, truth=part)
    elif isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.numel() and strides:
            pairs = [(a, b) for n, a, b in zip(want.shape, got.stride(), want.stride(), strict=True) if n != 1]
            assert all(a == b for a, b in pairs), f"strides {got.stride()}, not {want.stride()}"
        limits = {"rtol": 0.0, "atol": 0.0} if exact else {}
        try:
            torch.testing.assert_close(got, want, equal_nan=True, **limits)
        except AssertionError:
            if truth is None or got.dtype not in WIDE:
                raise
            if not as_good(want, got, truth()) and not bool(nearer(got, want, truth()).all()):
                raise
    else:
        assert type(got) is type(want) and got == want


def nearer(got: torch.Tensor, want: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """For each element: is it the truth, as near to it as eager's, or eager's but for rounding?"""
    assert truth.dtype is WIDE[got.dtype]
    true = (got == truth.to(got.dtype)) | (got.isnan() & truth.isnan())
    close = torch.isclose(got, want, equal_nan=True)
    return true | close | ((got.to(truth.dtype) - truth).abs() <= 2 * (want.to(truth.dtype) - truth).abs())


def kinds(program: Program) -> list[str]:
    """The steps: kinds of loops, names of operators."""
    return [s.kind if isinstance(s, Computed) else str(s.target).removeprefix("aten.") for s in program.steps]


def faked(graph: fx.GraphModule, *args: torch.Tensor, **options: Any) -> Program:
    """A graph made by hand, lowered for such arguments, and checked against running it."""
    with FakeTensorMode() as mode:
        inputs = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        _Annotated(graph).run(*inputs)
    program = lower(graph, inputs, **options)
    program.verify()
    assert_same(run(program, args), list(graph(*args)))
    return program


class _Annotated(fx.Interpreter):
    """Notes in each node what it gives."""

    def run_node(self, n: fx.Node) -> Any:
        n.meta["val"] = super().run_node(n)
        return n.meta["val"]
