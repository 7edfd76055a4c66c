"""Numbers read from tensors, sizes that depend on data, and checks: other values in later calls, and what fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fork_server import run_python

import jitney
from jitney import events


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jitney.config, "capture_scalar_outputs", True)
    monkeypatch.setattr(jitney.config, "capture_dynamic_output_shape_ops", True)


def graphs_of(fn: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> int:
    """Compare each call with eager's: results, arguments afterwards, exceptions; how many graphs there were."""
    graphs: list[Any] = []

    def listener(event: Any) -> None:
        if isinstance(event, events.FrameCaptured) and event.graph is not None:
            graphs.append(event.graph)

    with events.listen(listener):
        compiled = jitney.compile(fn, **{"backend": "eager", **options})
        for args in calls:
            here, there = ([a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
            assert str(attempt(fn, here)) == str(attempt(compiled, there))
            assert str(here) == str(there)
    return len(graphs)


def attempt(fn: Callable[..., Any], args: list[Any]) -> Any:
    """The result, or the exception's class and text."""
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


X = torch.arange(12.0).reshape(3, 4) - 5


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [
    lambda x, m: x[m].sum(0) + m.sum().item(),
    lambda x, m: torch.zeros(int(m.sum()), 2) + 1,
    lambda x, m: x[: m.sum()] * 2,
    lambda x, m: x.repeat_interleave(m.long() * 2, dim=0),
    lambda x, m: [v * 2 for v in m.long().tolist()],
    lambda x, m: x * max(m.sum().item(), 2) - min(m.sum().item(), 1),
    lambda x, m: (x[m] + x[m][:1]) if True else x,
])  # fmt: skip
def test_one_graph_for_all_values(fn: Callable[..., Any], backend: str) -> None:
    masks = [torch.tensor(m) for m in ([True, False, True], [True, True, True], [False, True, False])]
    assert graphs_of(fn, *[(X, m) for m in masks], backend=backend, fullgraph=True) == 1


def test_nothing_is_kept_and_one_is_kept() -> None:
    masks = [torch.tensor(m) for m in ([False] * 3, [True, False, False], [True] * 3)]
    for fn in (lambda x, m: x[m].sum(), lambda x, m: x[m] * 2, lambda x, m: m.nonzero(), lambda x, m: x[m].shape[0]):
        graphs_of(fn, *[(X, m) for m in masks])
        graphs_of(fn, *[(X, m) for m in reversed(masks)])


def test_what_broadcasts_by_chance_is_eagers() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> Any:
        return x[m] + x

    for first in ([True] * 3, [True, False, False], [True, True, False]):
        graphs_of(fn, *[(X, torch.tensor(m)) for m in (first, [True, False, False], [True] * 3, [True, True, False])])


def test_assertions_that_fail() -> None:
    def fn(x: torch.Tensor) -> Any:
        if not (x < 100).all():  # pytest writes assert statements anew
            raise AssertionError(f"too large: {x.shape}")
        if x.isnan().any():
            raise ValueError("NaN")
        return x * 2

    assert graphs_of(fn, (X,), (X * 1000,), (X * float("nan"),), (X + 1,)) == 1


def test_assertions_that_are_caught_or_come_before_and_after_writes() -> None:
    def caught(x: torch.Tensor) -> Any:
        try:
            if not x.sum() > 0:
                raise AssertionError
        except AssertionError:
            return x - 1
        return x + 1

    def before(x: torch.Tensor) -> Any:
        if not x.sum() > 0:
            raise AssertionError("before")
        x.add_(1)
        return x * 2

    def after(x: torch.Tensor) -> Any:
        x.add_(1)
        if not x.sum() > 0:
            raise AssertionError("after")
        return x.mul_(2)

    for fn in (caught, before, after):
        for backend in ("eager", "aot_eager"):
            graphs_of(fn, (X + 9,), (X - 9,), (X + 8,), backend=backend)
            graphs_of(fn, (X - 9,), (X + 9,), backend=backend)


def test_checks_that_fail() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        torch._check(k >= 1, lambda: "none")
        torch._check(k <= 3)
        return x[:k].sum(), x.narrow(0, 0, k)

    graphs_of(fn, *[(X, torch.tensor(n)) for n in (2, 3, 0, 5, 1)])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_nothing_is_written_twice_where_a_check_fails(backend: str) -> None:
    def checked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        k = int(n.item())
        torch._check(k > 2)
        return x * k

    def sliced(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[n.item() :] * 2  # type: ignore[misc]

    def chosen(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[mask] + torch.ones(3)

    graphs_of(checked, *((torch.zeros(3), torch.tensor(n)) for n in (5, 1)), backend=backend)
    graphs_of(sliced, *((torch.zeros(5), torch.tensor(n)) for n in (2, 7, -2)), backend=backend)
    graphs_of(chosen, *((torch.zeros(5), torch.arange(5) < n) for n in (3, 2, 1)), backend=backend)


def test_branches_on_such_numbers_break() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        return x + 1 if n.item() > 2 else x - 1

    graphs_of(fn, *[(X, torch.tensor(n)) for n in (2, 3, 4)])


def test_constants_are_computed_but_not_what_was_written_to() -> None:
    def fn(x: torch.Tensor) -> Any:
        rates = [r.item() for r in torch.linspace(0, 0.5, 3)]
        sizes = torch.zeros(2, dtype=torch.long)
        first = int(sizes[0])
        sizes[0] += x.shape[0]
        return x * rates[1] + first + sizes[0], torch.tensor([1, 2]).tolist()

    jitney.config.capture_scalar_outputs = False
    assert graphs_of(fn, (X,), (X + 1,), fullgraph=True) == 1

    def written(x: torch.Tensor) -> Any:
        count = torch.zeros((), dtype=torch.long)
        count += (x > 0).sum()
        return x * int(count)

    graphs_of(written, (X,), (X + 3,), (-X,))


def test_cached_functions_that_do_more_are_called_as_in_eager() -> None:
    import functools

    calls: list[int] = []

    @functools.lru_cache
    def noted(n: int) -> int:
        calls.append(n)
        return n * 2

    compiled = jitney.compile(lambda x: x * noted(3), backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(X), X * 6)
    assert calls == [3]
    scale = {"by": 2}

    @functools.lru_cache
    def stale(n: int) -> int:
        return n * scale["by"]

    compiled = jitney.compile(lambda x: x * stale(3), backend="eager")
    for by, cleared in ((2, False), (5, False), (5, True), (7, False)):
        scale["by"] = by
        if cleared:
            stale.cache_clear()
        assert torch.equal(compiled(X), X * stale(3))


def test_values_of_subclasses_are_guarded() -> None:
    class Count(int):
        pass

    class Name(str):
        unit = "m"

    def fn(x: torch.Tensor, n: Any, name: Any) -> Any:
        return x * n if name == "a" else x + n, name.unit, type(n).__name__

    graphs_of(fn, (X, Count(2), Name("a")), (X, Count(3), Name("a")), (X, Count(3), Name("b")), (X, True, Name("b")))


def test_warnings_come_from_the_programs_line() -> None:
    import warnings

    def fn(x: torch.Tensor) -> Any:
        warnings.warn("odd", FutureWarning)  # noqa: B028
        return x * 2

    seen = []
    for call in (fn, jitney.compile(fn, backend="eager", fullgraph=True)):
        for action in ("always", "ignore", "error"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter(action)  # type: ignore[arg-type]
                try:
                    call(X)
                except Exception as error:
                    seen.append(str(error).splitlines()[-1] if call is fn else "odd")
            seen.append(str([(w.category, w.filename, w.lineno, str(w.message)) for w in caught]))
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


OF_TENSORS = """
import torch, jitney

def of_tensors(x): return torch.tensor([x.sum(), x.max()]) * 2

def beside_numbers(x): return torch.tensor([[x.mean(), 1], [x.sum(), x.max().item()]])

for f in (of_tensors, beside_numbers):
    for backend in ("eager", "aot_eager"):
        compiled = jitney.compile(f, backend=backend, fullgraph=True)
        for x in (torch.arange(3.0), torch.ones(3)):
            assert torch.equal(compiled(x), f(x))
"""


def test_a_tensor_of_tensors() -> None:
    """In a process of its own: once anybody has replaced ``Tensor.__getitem__``, torch's own refuses such lists."""
    environment = {**os.environ, "JITNEY_CAPTURE_SCALAR_OUTPUTS": "1"}
    ended = run_python("-c", OF_TENSORS, env=environment)
    assert ended.returncode == 0, ended.stderr


# ------------------------------------------------------------------ where the whole is to be one graph

MADE: dict[str, Callable[..., Any]] = {
    "list": lambda x: torch.tensor([x.sum().item(), 1.0]),
    "number": lambda x: torch.tensor(x.sum().item()),
    "nested": lambda x: torch.tensor([[x.sum().item(), 1], [2, 3]]),
    "other dtype": lambda x: torch.tensor([x.sum().item(), True], dtype=torch.int64, device="cpu"),
    "computed": lambda x: torch.tensor([x.sum().item() * 2 + 1, True]),
    "integers": lambda x: torch.tensor([n * 2 for n in x.long()[0].tolist()]),
    "converted": lambda x: torch.tensor(x.long()[0].tolist(), dtype=torch.float64),
    "leaf": lambda x: torch.tensor([x.sum().item(), 0.5], requires_grad=True),
    "new_tensor": lambda x: x.double().new_tensor([x.sum().item(), 2]),
    "as_tensor": lambda x: torch.as_tensor((x.sum().item(), 2)),
    "mask": lambda x: x[x > 0],
    "sizes": lambda x: torch.split(x.reshape(-1), [4, int((x > -9).sum()) - 4]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", MADE)
def test_numbers_and_sizes_of_the_running_graph_stay_in_a_graph_that_must_be_whole(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jitney.config, "capture_scalar_outputs", False)
    monkeypatch.setattr(jitney.config, "capture_dynamic_output_shape_ops", False)
    compiled = jitney.compile(MADE[name], backend=backend, fullgraph=True)
    for x in (X, X * 2 + 3):
        torch.testing.assert_close(compiled(x), MADE[name](x), rtol=0, atol=0)


def test_a_tensor_of_items_of_several_shapes_fails_as_in_eager() -> None:
    def f(x: torch.Tensor) -> Any:
        return torch.tensor([[x.sum().item(), 1.0], [2.0]])

    assert graphs_of(f, (X,)) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_the_larger_of_floats_that_only_the_graph_knows(backend: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b = x.double().sum().item(), y.double().sum().item()
        return max(a, 1.0) * min(2.0, b), x * max(a, b) + min(b, a), max(1.0, a), min(a, -1.0), max(max(a, b), 0.5)

    values = [1.5, 0.25, -3.0, float("nan"), float("inf"), -0.0, 0.0]
    calls = [(torch.tensor([a]), torch.tensor([b])) for a in values for b in values]
    assert graphs_of(fn, *calls, backend=backend, fullgraph=True) == 1


def test_the_larger_of_floats_and_integers_is_a_break() -> None:
    """Which class it has nobody knows before the graph has run."""

    def fn(x: torch.Tensor) -> Any:
        return max(x.sum().item(), 1), x * 2

    graphs_of(fn, (torch.tensor([3.5]),), (torch.tensor([0.5]),))
