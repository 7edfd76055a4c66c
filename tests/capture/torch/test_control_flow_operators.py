"""``torch.cond``, ``while_loop``, ``map`` and ``scan`` in compiled functions: as the same programs in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from helpers import observe, t
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop
from torch.func import grad, vmap
from torch.utils._pytree import tree_leaves, tree_map

import jitney

WEIGHT = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
LINEAR = torch.nn.Linear(3, 3)


class Operators:
    """The operators as torch has them."""

    cond = staticmethod(torch.cond)
    while_loop = staticmethod(torch_while_loop)
    map = staticmethod(torch_map)
    scan = staticmethod(torch_scan)


class Python(Operators):
    """The operators in plain Python."""

    @staticmethod
    def cond(pred: Any, if_true: Any, if_false: Any, operands: Any = ()) -> Any:  # type: ignore[override]
        return (if_true if pred else if_false)(*operands)

    @staticmethod
    def while_loop(test: Any, body: Any, carried: Any) -> Any:  # type: ignore[override]
        while test(*carried):
            carried = body(*carried)
        return tuple(carried)

    @staticmethod
    def map(f: Any, xs: Any, *args: Any) -> Any:  # type: ignore[override]
        rounds = [f(tree_map(lambda x: x[i], xs), *args) for i in range(len(tree_leaves(xs)[0]))]  # noqa: B023
        return tree_map(lambda *items: torch.stack(items), *rounds)

    @staticmethod
    def scan(f: Any, carry: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:  # type: ignore[override]
        order: Sequence[int] = range(tree_leaves(xs)[0].shape[dim])
        rounds = []
        for i in reversed(order) if reverse else order:
            carry, y = f(carry, tree_map(lambda x: x.select(dim, i), xs))  # noqa: B023
            rounds.append(y)
        return carry, tree_map(lambda *items: torch.stack(items, dim), *(rounds[::-1] if reverse else rounds))


Program = Callable[[Any, torch.Tensor], Any]


def between(op: Any, x: torch.Tensor) -> Any:
    y = x * 2
    return op.cond(y.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,)) + 1


def closes_over(op: Any, x: torch.Tensor) -> Any:
    y = x * 2
    return op.cond(x.sum() > 0, lambda a: a @ WEIGHT + y, lambda a: LINEAR(a) - y, (x,)) * 3


def without_operands(op: Any, x: torch.Tensor) -> Any:
    return op.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)


def containers(op: Any, x: torch.Tensor) -> Any:
    found = op.cond(
        x.sum() > 0,
        lambda d: {"a": d["k"] + 1, "b": [d["k"].sum()]},
        lambda d: {"a": d["k"] - 1, "b": [d["k"].prod()]},
        ({"k": x},),
    )
    return found["a"] * found["b"][0]


def by_a_number(op: Any, x: torch.Tensor) -> Any:
    return op.cond(x.shape[0] > 2, lambda a: a + 1, lambda a: a - 1, (x,))


def nested(op: Any, x: torch.Tensor) -> Any:
    def inner(a: torch.Tensor) -> Any:
        return op.cond(a[0] > 0.4, lambda b: b * 2, lambda b: b * 3, (a,))

    return op.cond(x.sum() > 0, inner, lambda a: a * 4, (x,)) + 1


def other_strides(op: Any, x: torch.Tensor) -> Any:
    found = op.cond(x.sum() > 0, lambda a: (a * 2).t(), lambda a: a * 3, (torch.outer(x, x) + torch.arange(3.0),))
    return found, torch.tensor(found.stride())


def twice(op: Any, x: torch.Tensor) -> Any:
    a = op.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return a + op.cond(a.sum() > 1, torch.exp, torch.tanh, (a * 2,))


def in_a_loop(op: Any, x: torch.Tensor) -> Any:
    for i in range(3):
        x = op.cond(x.sum() > i, lambda a: a * 1.5, lambda a: a - 0.5, (x,))
    return x


def only_one_is_sound(op: Any, x: torch.Tensor) -> Any:
    return op.cond(x.sum() > 0, lambda a: a.abs().sqrt(), lambda a: a[torch.tensor([7, 7, 7]).clamp(max=2)], (x,))


def inside_grad(op: Any, x: torch.Tensor) -> Any:
    return grad(lambda a: op.cond(a.sum() > 0, torch.sin, torch.cos, (a,)).sum())(x)


def while_it_counts(op: Any, x: torch.Tensor) -> Any:
    i, y = op.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.5), (torch.tensor(0), x * 2))
    return y + i


def while_values_are_small(op: Any, x: torch.Tensor) -> Any:
    return op.while_loop(lambda y: y.sum() < 50, lambda y: (y.abs() * 2 + 1,), (x,))[0]


def while_never(op: Any, x: torch.Tensor) -> Any:
    return op.while_loop(lambda y: y.sum() > 1e9, lambda y: (y * 2,), (x * 1,))[0]


def mapped(op: Any, x: torch.Tensor) -> Any:
    return op.map(lambda a, b: a * b + x, torch.outer(x, x), x.cos())


def mapped_often(op: Any, x: torch.Tensor) -> Any:
    return op.map(lambda d, b: (d["a"] * b).sin(), {"a": x.repeat(20, 1)}, x) + 1


def scanned(op: Any, x: torch.Tensor) -> Any:
    carry, y = op.scan(lambda c, v: (c * 0.5 + v, c * v), x * 0, torch.outer(x, x))
    return carry + y.sum(0)


def scanned_backwards(op: Any, x: torch.Tensor) -> Any:
    rows = (torch.outer(x, x), torch.outer(x, x + 1))
    return op.scan(lambda c, v: ({"c": c["c"] + v[0]}, [c["c"] * v[1]]), {"c": x}, rows, dim=1, reverse=True)


def scanned_often(op: Any, x: torch.Tensor) -> Any:
    carry, y = op.scan(lambda c, v: (c * 0.5 + v, c * v), x * 0, x.repeat(20, 1))
    return carry + y.sum(0)


PROGRAMS: list[Program] = [
    between, closes_over, without_operands, containers, by_a_number, nested, other_strides, twice, in_a_loop,
    only_one_is_sound, inside_grad, while_it_counts, while_values_are_small, while_never, mapped, mapped_often,
    scanned, scanned_backwards, scanned_often,
]  # fmt: skip


def told(run: Callable[[Any, torch.Tensor], Any], op: Any, x: torch.Tensor) -> Any:
    """Results, and their gradients, where none is zero: torch's operators pass on zeros from the branch not taken."""
    found = run(op, x)
    tracked = [leaf for leaf in tree_leaves(found) if leaf.requires_grad]
    total = sum((leaf.sum() for leaf in tracked), torch.zeros(()))
    wanted = [leaf for leaf in (x, *LINEAR.parameters()) if leaf.requires_grad]
    gradients = torch.autograd.grad(total, wanted, allow_unused=True) if tracked else [None] * len(wanted)
    return found, [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(gradients, wanted, strict=True)]


@pytest.mark.parametrize("backend", ["eager", "llvm_cpu"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_an_operator_is_part_of_the_graph(program: Program, backend: str) -> None:
    compiled = jitney.compile(program, backend=backend, fullgraph=True)
    for sign in (1.0, -1.0):
        for requires_grad in (False, True):
            if program is other_strides and sign < 0:
                continue  # rows in memory, whichever branch: torch's own wants branches of equal strides
            x = (torch.tensor([0.3, 0.5, -0.2]) * sign).requires_grad_(requires_grad)
            found, wanted = told(compiled, Operators, x), told(program, Python, x)
            if program is other_strides:
                found, wanted = (found[0][0], *found[1:]), (wanted[0][0], *wanted[1:])
            torch.testing.assert_close(found, wanted)


def test_the_graph_holds_both_branches_and_is_compiled_around_them() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).exp()
        found: torch.Tensor = torch.cond(y.sum() > 4, torch.sin, torch.cos, (y,))
        return found.tanh() + 1

    seen: list[Any] = []
    with jitney.events.listen(seen.append):
        jitney.compile(program, backend="aot_eager")(t(3))
    (graph,) = (event.graph for event in seen if isinstance(event, jitney.events.GraphCaptured))
    (node,) = (node for node in graph.graph.nodes if hasattr(node.target, "graphs"))
    assert [str(n.target) for side in node.target.graphs for n in side.graph.nodes if n.op.startswith("call")] != []
    compiled = [e.graph for e in seen if isinstance(e, jitney.events.AtenGraph) and e.kind == "inference"]
    assert [any("exp" in str(n.target) for n in g.nodes) for g in compiled] == [True, False]
    assert [any("tanh" in str(n.target) for n in g.nodes) for g in compiled] == [False, True]
    assert [e.reason for e in seen if isinstance(e, jitney.events.GraphKept)] == [
        "control flow that looks at the values of tensors"
    ]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_whether_a_result_requires_grad_does_not_depend_on_the_branch(backend: str) -> None:
    def program(x: torch.Tensor) -> Any:
        found = torch.cond(x.sum() > 0, torch.sin, lambda a: a * WEIGHT.sum() + LINEAR(a), (x,))
        return found, found.requires_grad, (found * 2).exp()

    compiled = jitney.compile(program, backend=backend, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3)):
        found, said, after = compiled(x)
        assert found.requires_grad and said is True and after.requires_grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_was_not_run_has_a_gradient_of_zeros_as_with_torchs_operators(backend: str, sign: float) -> None:
    def program(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x * a, lambda x: x + b[:2].sum(), (x,))
        return found

    x, a, b = torch.ones(3) * sign, torch.full((3,), 2.0).requires_grad_(), torch.ones(3).requires_grad_()
    jitney.compile(program, backend=backend, fullgraph=True)(x, a, b).sum().backward()
    used, unused = (a, b) if sign > 0 else (b, a)
    assert used.grad is not None and used.grad.any()
    torch.testing.assert_close(unused.grad, torch.zeros(3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_whether_complex_results_require_grad_does_not_depend_on_the_branch(backend: str) -> None:
    def program(x: torch.Tensor) -> Any:
        fixed = torch.ones(3, dtype=torch.complex64)
        found = torch.cond(x.real.sum() > 0, torch.sin, lambda a: fixed * 2, (x,))
        return found, found.requires_grad

    compiled = jitney.compile(program, backend=backend, fullgraph=True)
    for sign in (1, -1):
        found, said = compiled(torch.full((3,), 0.5j + sign).requires_grad_())
        assert found.requires_grad and said


@pytest.mark.parametrize("rounds", [3, 20])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_scans_results_require_grad_though_the_first_round_does_not(backend: str, rounds: int) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        carry, found = torch_scan(lambda c, v: (c * 0.5 + v * y, c * 3), torch.ones(3), torch.ones(rounds, 3))
        return carry, found, found.requires_grad, found.exp()

    def plain(x: torch.Tensor) -> Any:
        carry, found = Python.scan(lambda c, v: (c * 0.5 + v * (x * 2), c * 3), torch.ones(3), torch.ones(rounds, 3))
        return carry, found, found.requires_grad, found.exp()

    x = torch.tensor([0.3, 0.5, -0.2], requires_grad=True)
    found, wanted = (run(x) for run in (jitney.compile(program, backend=backend, fullgraph=True), plain))
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(sum(v.sum() for v in (*side[:2], side[3])), x) for side in (found, wanted)]
    torch.testing.assert_close(*gradients)


def test_under_vmap_each_example_takes_its_own_branch() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return vmap(lambda row: torch.cond(row.sum() > 0, torch.sin, torch.cos, (row,)))(x)

    x = torch.tensor([[0.5, 1.0], [-0.5, -1.0]])
    found = jitney.compile(program, backend="llvm_cpu", fullgraph=True)(x)
    torch.testing.assert_close(found, torch.stack([x[0].sin(), x[1].cos()]))


def counts(x: torch.Tensor) -> Any:
    seen: list[int] = []

    def if_true(a: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return a + 1

    return torch.cond(x.sum() > 0, if_true, lambda a: a - 1, (x,)), seen


REFUSED: dict[str, tuple[str, Callable[[torch.Tensor], Any]]] = {
    "side effects": ("changes something", counts),
    "writes": ("changes something", lambda x: torch.cond(x.sum() > 0, lambda a: a.add_(1), torch.sin, (x.clone(),))),
    "an operand": ("what it was given", lambda x: torch.cond(x.sum() > 0, lambda a: a, torch.sin, (x,))),
    "another dtype": ("other shapes", lambda x: torch.cond(x.sum() > 0, torch.sin, lambda a: a.double(), (x,))),
    "numbers": ("more than tensors", lambda x: torch.cond(x.sum() > 0, lambda a: (a + 1, 3), lambda a: (a, 2), (x,))),
}


def after_a_break(x: torch.Tensor) -> Any:
    jitney.graph_break()
    k = x * 2
    return torch.cond(x.sum() > 0, lambda a: a * k, lambda a: a - k, (x,))


def test_after_a_break_a_branch_closes_over_what_is_set_then() -> None:
    x = t(3)
    torch.testing.assert_close(jitney.compile(after_a_break, backend="eager")(x), x * x * 2 if x.sum() > 0 else -x)


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_operator_cannot_hold_is_a_break_with_a_reason(name: str) -> None:
    reason, program = REFUSED[name]
    with pytest.raises(jitney.errors.Unsupported, match=reason):
        jitney.compile(program, backend="eager", fullgraph=True)(t(3))


@pytest.mark.filterwarnings("ignore")  # torch's own operators go through torch.compile, in eager too
def test_after_a_break_it_is_torchs_own_operator() -> None:
    def program(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda a: (a + 1, 3), lambda a: (a - 1, 3), (x * 2,))[0] + 1

    with observe() as seen:
        found = jitney.compile(program, backend="eager")(torch.ones(3))
    torch.testing.assert_close(found, torch.full((3,), 4.0))
    assert any("more than tensors" in reason for reason in seen.breaks)
