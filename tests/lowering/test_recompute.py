"""What several kernels read is kept in memory, or computed by each: whichever moves less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import Captured
from lowering.test_schedule import AGAIN, F32, Maker, kernels

import jitney
from jitney_lowering.index import Size, Var
from jitney_lowering.ir import Computed, Extern, Value, apply, load, walk
from jitney_lowering.ir.values import rebuild
from jitney_lowering.policy import GPU, Policy
from jitney_lowering.scheduler import schedule
from jitney_lowering.scheduler.traffic import recompute
from jitney_lowering.scheduler.traffic.recompute import coordinates


def over_columns(policy: Policy, heavy: int = 1) -> list[frozenset[str]]:
    """A value that is summed over rows and, in the same program, over columns: what each kernel stores."""
    m = Maker()
    x, y = m.input(1024, 1024), m.input(1024)

    def element(i: Var, j: Var) -> Value:
        value = apply("sub", m.at(x, i, j), m.at(y, j))
        for _ in range(heavy):
            value = apply("exp", value)
        return value

    e = m.pointwise((1024, 1024), element)
    rows = m.reduce("sum", (1024, 1024), {1}, lambda i, j: m.at(e, i, j))
    m.reduce("sum", (1024, 1024), {0}, lambda i, j: apply("div", m.at(e, i, j), m.at(rows, i)), order=(1, 0))
    last = m.program.buffers[m.program.steps[-1].buffer]  # type: ignore[union-attr]
    return [kernel.writes for kernel in kernels(schedule(m.output(last), policy=policy))]


def test_what_is_cheap_is_computed_twice() -> None:
    assert sum(map(len, over_columns(GPU))) == 2  # the two sums alone
    assert sum(map(len, over_columns(replace(GPU, recompute=0)))) == 3


def test_what_is_dear_is_kept() -> None:
    assert sum(map(len, over_columns(GPU, heavy=9))) == 3


def stored_distances(stride: int) -> int:
    """How many kernels store distances of points which several reductions read; coordinates lie so far apart."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = (t[:, : 3 * stride : stride] if stride > 1 else t.t() for t in (x, y))
        d = ((x[:, None] - y[None, :]) ** 2).sum(-1)
        f, g = x[:, 0], y[:, 0]
        for _ in range(3):
            f, g = (d + g).logsumexp(1), (d + f[:, None]).logsumexp(0)
        return f

    captured = Captured(policy=GPU)
    size = (1024, 3 * stride) if stride > 1 else (3, 1024)
    jitney.compile(program, backend=captured.backend, dynamic=False)(torch.rand(size), torch.rand(size))
    made = schedule(captured.program, policy=GPU)
    return sum(made.program.buffers[name].extent.value == 1 << 20 for k in kernels(made) for name in k.writes)


def test_what_is_computed_of_coordinates_that_lie_apart_is_kept() -> None:
    assert stored_distances(stride=2) == 1
    assert stored_distances(stride=1) == 0


@pytest.mark.parametrize("dim", [0, 1])
def test_what_is_picked_at_few_computed_places_is_computed_there(dim: int) -> None:
    """The numerators of a softmax are summed, and few are picked: none is stored."""

    def program(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        upper = torch.triu(x.softmax(dim))
        return upper.gather(dim, at.unsqueeze(dim)) + x.softmax(dim).gather(dim, at.unsqueeze(dim))

    captured = Captured(policy=GPU)
    args = torch.randn(64, 4096), torch.randint(64 if dim == 0 else 4096, (4096 if dim == 0 else 64,))
    found = jitney.compile(program, backend=captured.backend, dynamic=False)(*args)
    torch.testing.assert_close(found, program(*args))
    made = schedule(captured.program, policy=GPU)
    assert not [name for k in kernels(made) for name in k.writes if made.program.buffers[name].extent.value == 1 << 18]


def test_a_kernel_that_goes_spares_what_it_reads() -> None:
    m = Maker()
    read = [m.input(1024, 1024) for _ in range(3)]

    def element(i: Var, j: Var) -> Value:
        value = m.at(read[0], i, j)
        for other in read[1:]:
            value = apply("div", apply("exp", value), m.at(other, i, j))
        return value

    heavy = m.pointwise((1024, 1024), element)
    end = m.pointwise((1024, 1024), lambda i, j: apply("add", m.at(heavy, j, i), m.at(read[0], i, j)))
    assert len(kernels(schedule(m.output(end), policy=GPU))) == 1


def sweeps(rounds: int, neighbours: bool) -> int:
    """Kernels of rounds over a grid, each of which reads the one before at several places, or at one."""
    size = (2048, 2048)

    def step(x: torch.Tensor, fixed: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
        around = x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) if neighbours else x * 4
        return torch.where(free, (around - fixed) / 4, 0.0)

    def program(x: torch.Tensor, fixed: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
        for _ in range(rounds):
            x = step(x, fixed, free)
        return x

    given = torch.zeros(size), torch.zeros(size), torch.zeros(size, dtype=torch.bool)
    captured = Captured(policy=GPU)
    jitney.compile(program, backend=captured.backend, dynamic=False)(*given)
    return len(kernels(schedule(captured.program, policy=GPU)))


def test_two_rounds_of_a_stencil_are_a_kernel() -> None:
    """A neighbour's neighbours are computed as fast as they are read and written, but not theirs again."""
    assert sweeps(4, neighbours=True) == 2
    assert sweeps(4, neighbours=False) == 1


def test_what_somebody_else_has_is_kept() -> None:
    m = Maker()
    x = m.input(64, 64)
    e = m.pointwise((64, 64), lambda i, j: apply("exp", m.at(x, i, j)))
    out = m.pointwise((64, 64), lambda i, j: apply("neg", m.at(e, j, i)))
    _, second = kernels(schedule(m.output(e, out), policy=AGAIN))
    assert second.reads == {e.name}


def test_an_input_that_gets_a_new_value_is_read_no_longer() -> None:
    def reads(updates: dict[int, int]) -> frozenset[str]:
        m = Maker()
        x, y = m.input(64, 64), m.input(64, 64)
        e = m.pointwise((64, 64), lambda i, j: apply("exp", m.at(x, i, j)))
        new = m.pointwise((64, 64), lambda i, j: apply("add", m.at(e, i, j), m.at(x, i, j)))
        out = m.pointwise((64, 64), lambda i, j: apply("neg", apply("add", m.at(e, j, i), m.at(y, i, j))))
        made = schedule(m.output(new, out), updates, policy=AGAIN)
        assert made.filled == ({new.name: x.name} if updates else {})
        return kernels(made)[-1].reads

    assert "b0" in reads({})
    assert "b0" not in reads({0: 0})


def test_a_softmax_over_channels_far_apart_is_one_kernel() -> None:
    shape = (4, 16, 1024)

    def made(policy: Policy) -> int:
        m = Maker()
        x = m.input(*shape)
        top = m.reduce("max", shape, {1}, lambda n, c, p: m.at(x, n, c, p), order=(0, 2, 1))
        e = m.pointwise(shape, lambda n, c, p: apply("exp", apply("sub", m.at(x, n, c, p), m.at(top, n, p))))
        total = m.reduce("sum", shape, {1}, lambda n, c, p: m.at(e, n, c, p), order=(0, 2, 1))
        out = m.pointwise(shape, lambda n, c, p: apply("div", m.at(e, n, c, p), m.at(total, n, p)))
        return len(kernels(schedule(m.output(out), policy=policy)))

    assert made(GPU) == 1
    assert made(replace(GPU, turned_row=15)) > 1


def test_the_iteration_that_filled_a_place() -> None:
    n, i, j = Size("n"), Var("i", 6), Var("j", 4)
    row = Var("row", n)
    step = Computed("b", (i, j), j * 6 + i, load("x", i, F32))
    assert coordinates(step, row * 6 + 5) is None  # beyond what there is
    table = coordinates(step, Var("c", 4) * 6 + Var("r", 6))
    assert table is not None and (table[i], table[j]) == (Var("r", 6), Var("c", 4))
    symbolic = Computed("b", (row, i), row * 6 + i, load("x", i, F32))
    table = coordinates(symbolic, row * 6 + 5 - i)
    assert table is not None and (table[row], table[i]) == (row, 5 - i)
    overlapping = Computed("b", (i, j), i + j, load("x", i, F32))
    assert coordinates(overlapping, Var("c", 4) + Var("r", 6)) is None


def sinkhorn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    cost = (x[:, None] - y).square().sum(-1)
    f = torch.zeros_like(cost[:, 0])
    for _ in range(3):
        g = -torch.logsumexp(f[:, None] - cost, 0)
        f = -torch.logsumexp(g - cost, 1)
    return (torch.exp(f[:, None] + g - cost) * cost).sum()


def dice(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    p, hot = x.softmax(1), F.one_hot(target, x.shape[1]).movedim(-1, 1).to(x.dtype)
    both, either = (p * hot).sum((0, 2)), (p + hot).sum((0, 2))
    return 1 - ((2 * both + 1) / (either + 1)).mean()


def norms(x: torch.Tensor) -> torch.Tensor:
    """A norm over channels, then one over positions."""
    y = (x - x.mean(1, keepdim=True)) * torch.rsqrt(x.var(1, keepdim=True) + 1e-5)
    return (y * torch.sigmoid(y)).softmax(-1) + y.amax(1, keepdim=True)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "sinkhorn": (sinkhorn, lambda: (torch.rand(24, 3), torch.rand(20, 3))),
    "dice": (dice, lambda: (torch.randn(2, 5, 33), torch.randint(5, (2, 33)))),
    "norms": (norms, lambda: (torch.randn(2, 6, 17),)),
    "norms, channels last": (norms, lambda: (torch.randn(2, 17, 6).transpose(1, 2),)),
    "half": (norms, lambda: (torch.randn(2, 6, 17).bfloat16(),)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
def test_numbers_and_gradients_are_eagers(case: str, dynamic: bool, backend: str) -> None:
    fn, make = CASES[case]
    torch.manual_seed(0)
    device = "cuda" if backend == "triton_gpu" and torch.cuda.is_available() else "cpu"
    args = [a.to(device).requires_grad_(a.is_floating_point()) for a in make()]
    compiled = jitney.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True)
    found = []
    for call in (fn, compiled):
        result = call(*args)
        found.append(
            [result, *torch.autograd.grad(result.float().square().sum(), [a for a in args if a.requires_grad])]
        )
    limits = {"rtol": 3e-2, "atol": 3e-2} if case == "half" else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found[1], found[0], **limits)


def test_what_would_be_held_longer_for_it_is_no_more_than_before() -> None:
    """A recurrence: to compute a state again all that went into it would have to be there until the end."""

    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[0])
        for row in x:
            gate = torch.sigmoid(torch.cat([row, state], 1) @ weight)
            state = (1 - gate) * state + gate * row
        return state

    captured = Captured(policy=GPU)
    jitney.compile(fn, backend=captured.backend, fullgraph=True)(torch.randn(8, 4, 16), torch.randn(32, 16))
    made = schedule(captured.program, policy=GPU)
    assert max(len(item.reads) for item in made.items if not isinstance(item, Extern)) <= 5


def test_what_steps_read_of_each_other_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of two chains reads both: walked anew for each reader, they would never end."""
    calls: list[str] = []
    at = recompute._Recipe.at

    def counted(recipe: Any, read: Any) -> Value | None:
        calls.append(recipe.step.buffer)
        return at(recipe, read)

    monkeypatch.setattr(recompute._Recipe, "at", counted)
    m = Maker()
    a, b = m.input(64), m.input(64)
    steps = 60
    for _ in range(steps):
        old = (a, b)
        a = m.pointwise((64,), lambda i, old=old: apply("exp", apply("add", m.at(old[0], i), m.at(old[1], i))))  # type: ignore[misc]
        b = m.pointwise((64,), lambda i, old=old: apply("mul", m.at(old[0], i), m.at(old[1], i)))  # type: ignore[misc]
    total = m.reduce("sum", (64,), {0}, lambda i: apply("add", m.at(a, i), m.at(b, i)))
    schedule(m.output(total), policy=replace(GPU, buffer_limit=20))
    assert 0 < len(calls) < 10 * steps


def test_a_network_of_butterflies_is_not_computed_for_each_of_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage reads two elements of the one before: written out, the last stage reads all."""
    largest = 0

    def noting(value: Value, *given: Any, **named: Any) -> Value:
        nonlocal largest
        made = rebuild(value, *given, **named)
        largest = max(largest, sum(1 for _ in walk(made)))
        return made

    def program(x: torch.Tensor) -> torch.Tensor:
        for step in (2**k for k in range(7)):
            x = x.unflatten(-1, (-1, 2, step))
            x = torch.stack([x[..., 0, :] + x[..., 1, :], x[..., 0, :] - x[..., 1, :]], -2).flatten(-3)
        groups = x.unflatten(1, (-1, 32))
        return torch.round(groups / groups.abs().amax(-1, keepdim=True)).to(torch.uint8)

    monkeypatch.setattr(recompute, "rebuild", noting)
    captured = Captured(policy=GPU)
    jitney.compile(program, backend=captured.backend, dynamic=False)(torch.rand(2048, 128))
    schedule(captured.program, policy=GPU)
    assert 0 < largest <= 16_000
