"""What the forward keeps for the backward: never more than eager, less with a smaller budget, always right."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, seed_everything, t
from torch import nn
from torch.nn import functional as F

import jitney
from jitney import events


class Block(nn.Module):
    """Attention and a feed-forward part, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.project, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow, self.dropout = nn.Linear(16, 64), nn.Linear(64, 16), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) / 4).softmax(-1)
        x = x + self.dropout(self.out(self.dropout(scores) @ v))
        return x + self.narrow(nn.functional.gelu(self.wide(x)))


def convolutions() -> nn.Module:
    parts: list[nn.Module] = []
    for i, o in ((3, 8), (8, 8)):
        parts += [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)),
        (16, 8),
    ),
    "gelu": (
        lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 4)),
        (16, 8),
    ),
    "block": (Block, (2, 12, 16)),
    "convolutions": (convolutions, (2, 3, 8, 8)),
}
each_model = pytest.mark.parametrize("name", MODELS)


def step(name: str, wrap: Callable[[Any], Any]) -> tuple[int, list[torch.Tensor]]:
    """Bytes saved in one training step, parameters and inputs not counted; and its results and gradients."""
    make, shape = MODELS[name]
    seed_everything()
    model = make()
    x = torch.randn(shape, requires_grad=True)
    known = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers(), x]}
    saved: dict[int, int] = {}

    def pack(value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return value

    run = wrap(model)
    seed_everything()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        out = run(x)
    out.square().sum().backward()
    return sum(saved.values()), [out.detach(), x.grad, *(p.grad for p in model.parameters()), torch.rand(2)]


def compiled(fn: Any) -> Any:
    return compile_fn(fn, backend="aot_eager")


@each_model
def test_no_more_is_saved_than_in_eager(name: str) -> None:
    (eager, expected), (ours, found) = step(name, lambda model: model), step(name, compiled)
    assert 0 < ours <= eager
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@each_model
def test_a_smaller_budget_saves_less_and_changes_nothing(name: str) -> None:
    sizes, results = [], []
    for budget in (1.0, 0.75, 0.5, 0.25, 0.0):
        jitney.reset()
        with jitney.config.patch(activation_memory_budget=budget):
            size, found = step(name, compiled)
        sizes.append(size)
        results.append(found)
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0], sizes
    for found in results[1:]:
        for a, b in zip(results[0], found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.0])
def test_random_operators_run_once(budget: float) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x).exp()
        a = nn.functional.dropout(x.sin(), 0.5)
        b = torch.bernoulli(x.sigmoid().detach()) * x
        return (a * noise).exp() * b + torch.randn(4).sin() * x

    with jitney.config.patch(activation_memory_budget=budget):
        sides = []
        for run in (f, compiled(f)):
            seed_everything()
            x = t(3, 4, requires_grad=True)
            out = run(x)
            out.sum().backward()
            sides.append((out, x.grad, torch.rand(3)))
    for a, b in zip(*sides, strict=True):
        assert torch.equal(a, b)


def test_nothing_is_saved_for_linear_functions() -> None:
    joint: list[Any] = []
    with events.listen(lambda e: joint.append(e) if isinstance(e, events.AtenGraph) and e.kind == "backward" else None):
        x = t(3, 4, requires_grad=True)
        compiled(lambda x: (x * 2 + 1).t().sum(0) - 3)(x).sum().backward()
    assert [n.name for n in joint[0].graph.nodes if n.op == "placeholder"] == ["tangent0"]


def test_a_chain_of_pointwise_operators_keeps_one_tensor() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = x.sin() * x.cos() + x.tanh()
        return x

    x = (t(3, 4) / 8).requires_grad_()
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda v: saved.append(v) or v, lambda v: v):
        out = compiled(f)(x)
    assert len(saved) == 1
    y = copy.deepcopy(x)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x), torch.autograd.grad(f(y).sum(), y))


def test_inputs_written_after_their_use_are_computed_again_from_old_values() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x * w.detach().clone().sin()
        w.add_(1)
        return y.exp() * w.detach().cos()

    for budget in (0.0, 1.0):
        with jitney.config.patch(activation_memory_budget=budget):
            sides = []
            for run in (f, compiled(f)):
                x, w = t(3, 4, requires_grad=True), t(3, 4)
                run(x, w).sum().backward()
                sides.append((x.grad, w))
        for a, b in zip(*sides, strict=True):
            torch.testing.assert_close(a, b)


def test_the_bytes_of_a_cut_are_those_that_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    import jitney.aot.compiler

    cuts: list[Any] = []
    original = jitney.aot.compiler.partition

    def partition(joint: Any, budget: float = 1.0) -> Any:
        cuts.append(original(joint, budget))
        return cuts[-1]

    monkeypatch.setattr(jitney.aot.compiler, "partition", partition)
    x = t(8, 8, requires_grad=True)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda v: saved.append(v) or v, lambda v: v):
        compiled(lambda x: (x @ x).softmax(-1) @ x.sin())(x)
    assert cuts[0].bytes_saved() == sum(math.prod(v.shape) * v.element_size() for v in saved)


def cut_of(monkeypatch: pytest.MonkeyPatch, fn: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The joint graph of a function, and its cut."""
    import jitney.aot.compiler

    found: list[tuple[Any, Any]] = []
    original = jitney.aot.compiler.partition

    def partition(joint: Any, budget: float = 1.0) -> Any:
        found.append((joint, original(joint, budget)))
        return found[-1][1]

    with monkeypatch.context() as patch:
        patch.setattr(jitney.aot.compiler, "partition", partition)
        compile_fn(fn, backend="aot_eager", **options)(*args)
    ((joint, cut),) = found
    return joint, cut


def calls(joint: Any, target: Any) -> int:
    return sum(node.target is target for node in joint.graph.nodes)


def test_parameters_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(8, 8)
    bias = nn.Parameter(torch.ones(4, 8))

    def f(x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        return (y + bias).sin() * y

    _, cut = cut_of(monkeypatch, f, t(4, 8))
    assert cut.bytes_saved(inputs=False) == 4 * 8 * 4


def test_what_is_computed_twice_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    joint, _ = cut_of(monkeypatch, lambda x: x.cos().sin() * x.sin(), t(4, requires_grad=True))
    assert calls(joint, torch.ops.aten.cos.default) == 2
    assert calls(joint, torch.ops.aten.sin.default) == 2


def test_results_are_not_merged_with_what_the_backward_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.cos(), x.sin(), x.cos()

    joint, _ = cut_of(monkeypatch, f, t(4, requires_grad=True))
    assert calls(joint, torch.ops.aten.cos.default) >= 3
    x, y = t(4, requires_grad=True), t(4, requires_grad=True)
    first, second, third = compiled(f)(x)
    with torch.no_grad():
        first.add_(1)
    assert not torch.equal(first, third)
    second.sum().backward()
    f(y)[1].sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_numbers_that_only_compare_equal_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return 1 / (x * 0.0) * x.sin() + 1 / (x * -0.0) * x.cos()

    joint, _ = cut_of(monkeypatch, f, t(4, requires_grad=True))
    zeros = {repr(n.args[1]) for n in joint.graph.nodes if n.op == "call_function" and 0.0 in n.args[1:]}
    assert zeros == {"0.0", "-0.0"}


def test_random_operators_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    joint, _ = cut_of(monkeypatch, lambda x: torch.rand_like(x) * x + torch.rand_like(x), t(4, requires_grad=True))
    assert sum(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in joint.graph.nodes) == 2


def around_statistics(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, ...]:
    before = (mean * 2).sin()
    y = F.batch_norm(x * before * mean[1:3].sum(), mean, var, training=True).exp()
    after = (mean * 2).sin()
    return y * after * mean[1:3].sum(), after - before


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_reads_running_statistics_reads_them_when_eager_does(backend: str, requires_grad: bool) -> None:
    def run(f: Callable[..., Any]) -> list[torch.Tensor]:
        x, mean, var = t(6, 4, requires_grad=requires_grad), torch.arange(1.0, 5.0), torch.ones(4)
        found, difference = f(x, mean, var)
        if requires_grad:
            (found * found).sum().backward()
        return [found, difference, mean, var, torch.empty(0) if x.grad is None else x.grad]

    wanted = run(around_statistics)
    assert wanted[1].abs().max() > 0.01
    torch.testing.assert_close(run(jitney.compile(around_statistics, backend=backend, fullgraph=True)), wanted)


def test_small_views_are_kept_rather_than_their_base(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return y[:, :2].sin() + y[:, 2:4].exp() * y[:, 2:4]

    _, cut = cut_of(monkeypatch, f, t(4, 8), t(8, 8, requires_grad=True))
    made = [n for n in cut.saved if n.op != "placeholder"]
    assert all(n.meta["val"].shape == (4, 2) for n in made)
    assert cut.bytes_saved(inputs=False) == 4 * 8 * 4  # they hold the whole of it, counted once


def test_comparisons_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return torch.where(y > x, y * y, y.sin()) * torch.maximum(y, x)

    _, cut = cut_of(monkeypatch, f, t(4, 4), t(4, 4, requires_grad=True))
    assert all(n.meta["val"].dtype is not torch.bool for n in cut.saved)


def test_what_only_the_backward_needs_runs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(x @ w, target)

    args = (t(16, 8), t(8, 50, requires_grad=True), torch.arange(16))
    _, cut = cut_of(monkeypatch, f, *args, options={"decompose": "core"})
    assert cut.bytes_saved(inputs=False) < 1.5 * 16 * 50 * 4


def picked_one_by_one(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    at = (a[:, None] * b).long()
    return (torch.gather(x, 1, at).sin() * w).sum()


def picked_by_two_indices(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    at = (a[:, None] * b).long()
    return (x[at, at.flip(1)].exp() * w).sum()


def picked_rows(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    at = (a[:, None] * b).long()
    return (x[at, :].sin() * w[..., None]).sum()


def picked_rows_by_gather(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    at = (a[:, None] * b).long().flatten()
    return (x.gather(0, at[:, None].expand(-1, x.size(1))).sin() * w.flatten()[:, None]).sum()


@pytest.mark.parametrize(
    ("fn", "again"),
    [(picked_one_by_one, False), (picked_by_two_indices, False), (picked_rows, True), (picked_rows_by_gather, True)],
)
def test_elements_from_places_of_their_own_are_read_once(fn: Callable[..., torch.Tensor], again: bool) -> None:
    x, a, b = torch.randn(40, 50), torch.rand(40) * 6, torch.rand(300) * 6
    w = torch.randn(40, 300, requires_grad=True)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):  # type: ignore[func-returns-value]
        jitney.compile(fn, backend="aot_eager")(x, a, b, w).backward()
    found, w.grad = w.grad, None
    fn(x, a, b, w).backward()
    torch.testing.assert_close(found, w.grad)
    assert (x.numel() in saved) == again


def test_a_cut_that_keeps_too_little_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    joint, cut = cut_of(monkeypatch, lambda x: x.exp().sin(), t(4, requires_grad=True))
    cut.verify(joint)
    cut.saved.clear()
    with pytest.raises(AssertionError, match="which nobody keeps"):
        cut.verify(joint)


@pytest.mark.parametrize(("columns", "again"), [(7, False), (8, True)])
def test_rows_of_a_whole_sector_are_read_again(columns: int, again: bool) -> None:
    x, at = torch.randn(40, columns), (torch.rand(100) * 40).long()
    w = torch.randn(100, columns, requires_grad=True)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):  # type: ignore[func-returns-value]
        jitney.compile(lambda x, at, w: (x[at + 0].sin() * w).sum(), backend="aot_eager")(x, at, w).backward()
    assert (x.numel() in saved) == again
