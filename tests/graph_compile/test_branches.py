"""Branches and bodies of control flow operators under backends that take ATen graphs: compiled on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from capture.torch.test_control_flow_operators import PROGRAMS, Operators, Program, Python, other_strides, told
from helpers import t
from torch.nn import functional as F

import jitney
from jitney import events
from jitney.backends import Backend
from jitney.graph_compile import branches

cond, while_loop, scan = Operators.cond, Operators.while_loop, Operators.scan
LAYER = torch.nn.Linear(3, 3)


@pytest.fixture
def each(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small: it is compiled."""
    monkeypatch.setattr(branches, "FEWEST", 1)


def compiled_branches(seen: list[Any]) -> list[str]:
    """Kinds of the ATen graphs of branches."""
    return [e.kind for e in seen if isinstance(e, events.AtenGraph) and "branch" in e.frame]


@pytest.mark.usefixtures("each")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_programs_of_the_operators(program: Program) -> None:
    compiled = jitney.compile(program, backend="aot_eager", fullgraph=True)
    for sign, grad in ((1.0, True), (-1.0, False), (-1.0, True)):
        x = (torch.tensor([0.3, 0.5, -0.2]) * (1 if program is other_strides else sign)).requires_grad_(grad)
        found, wanted = told(compiled, Operators, x), told(program, Python, x)
        if program is other_strides:
            found, wanted = (found[0][0], *found[1:]), (wanted[0][0], *wanted[1:])
        torch.testing.assert_close(found, wanted)


def big(x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = (LAYER(x).sin() * x).exp() + x.tanh()
    return made


def small(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def chosen(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = cond(x.sum() > 0, big, small, (x,))
    return found


def test_a_branch_is_compiled_when_it_runs_first_and_a_small_one_is_not() -> None:
    compiled, seen = jitney.compile(chosen, backend="aot_eager"), list[Any]()
    with events.listen(seen.append):
        compiled(-torch.ones(2, 3))
        assert not compiled_branches(seen)
        for _ in range(2):
            torch.testing.assert_close(compiled(torch.ones(2, 3)), big(torch.ones(2, 3)))
    assert compiled_branches(seen) == ["joint", "forward"]


def test_one_graph_is_compiled_for_a_few_kinds_of_inputs() -> None:
    def rounds(x: torch.Tensor) -> Any:
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, big(y)), (torch.tensor(0), x))[1]

    compiled, seen = jitney.compile(rounds, backend="aot_eager", dynamic=True), list[Any]()
    with events.listen(seen.append):
        for rows in range(2, 10):
            x = torch.full((rows, 3), 0.1)
            torch.testing.assert_close(compiled(x), big(big(big(x))))
    assert 0 < len(compiled_branches(seen)) <= 2 * branches.KINDS


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_gradients_of_gradients(backend: str) -> None:
    def found(fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        x = torch.full((2, 3), 0.2, requires_grad=True)
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), x)

    torch.testing.assert_close(found(jitney.compile(chosen, backend=backend)), found(big))


def test_random_numbers_and_what_raises() -> None:
    def fn(x: torch.Tensor, at: torch.Tensor) -> Any:
        return cond(x.sum() > 0, lambda x: F.dropout(x.exp() + 1, 0.5) * x[at].sum() + torch.rand(3), small, (x,))

    def plain(x: torch.Tensor, at: torch.Tensor) -> Any:
        return F.dropout(x.exp() + 1, 0.5) * x[at].sum() + torch.rand(3)

    compiled, sides = jitney.compile(fn, backend="aot_eager"), []
    for run in (plain, compiled):
        torch.manual_seed(0)
        sides.append([run(torch.ones(3), torch.tensor([1])) for _ in range(2)])
        with pytest.raises(IndexError):
            run(torch.ones(3), torch.tensor([5]))
        sides[-1].append(run(torch.ones(3), torch.tensor([2])))
    torch.testing.assert_close(*(side[:2] for side in sides))


def test_autocast_and_modes_of_gradients() -> None:
    compiled, x = jitney.compile(chosen, backend="aot_eager"), torch.ones(2, 3)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(compiled(x), big(x))
        with torch.no_grad():
            assert not compiled(x).requires_grad
        with torch.inference_mode():
            torch.testing.assert_close(compiled(x), big(x))
        with torch.device("meta"):
            torch.testing.assert_close(compiled(x), big(x))


def test_a_backend_that_fails_in_a_branch_is_named() -> None:
    def compile_graph(graph: Any, inputs: Any, request: Any) -> Any:
        if "branch" in request.frame:
            raise ValueError("no branches")
        return graph

    run = jitney.compile(chosen, backend=Backend("picky", compile_graph, level="aten"))
    torch.testing.assert_close(run(-t(2, 3).abs()), -2 * t(2, 3).abs())
    with pytest.raises(jitney.errors.BackendFailed, match="no branches"):
        run(torch.ones(2, 3))


@pytest.mark.usefixtures("each")
def test_each_branch_beside_eager() -> None:
    compiled = jitney.compile(chosen, backend="aot_eager", options={"crosscheck": True})
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        torch.testing.assert_close(compiled(x), big(x) if x.sum() > 0 else small(x))
