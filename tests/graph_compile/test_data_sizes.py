"""Sizes that depend on data, without a setting: when they stay in the graph, and what then computes with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fork_server import run_python
from helpers import observe
from torch.nn import functional as F  # noqa: N812 (torch's own name for it)

import jitney
from jitney.graph_compile import sized_graphs

WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)


def loss(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> Any:
    h = x @ WEIGHT
    d = (h[m] - y[m]) ** 2
    return (d.exp() * d / (1 + d)).mean() + h.tanh().mean()


def heads(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> Any:
    kept = m.any(1).nonzero()[:, 0]
    a = x[kept]
    b = torch.cat([a, y[kept]], -1)
    c = torch.relu(b * 2) + a.shape[0]
    return c.sum(0), c.t(), kept


def classes(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> Any:
    rows = m.sum(1) > 1
    logits, target = x[rows], y[rows].argmax(-1)
    return F.cross_entropy(logits * 2 + 1, target), (logits.softmax(-1) * logits.sigmoid()).sum()


def counted(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> Any:
    found = torch.bincount((x.detach() * 3).abs().long().reshape(-1), minlength=4)
    return found / found.sum(), found.shape[0], found.argmax()


PROGRAMS: list[Callable[..., Any]] = [loss, heads, classes, counted]
CALLS = ((6, 0.5, False), (6, 0.3, True), (9, 0.5, False), (6, 2.0, False), (6, 0.95, True), (5, 0.4, True))


def results(fn: Any, rows: int, least: float, grads: bool, seed: int, change: Callable[..., Any]) -> list[Any]:
    torch.manual_seed(seed)
    x, y, m = change(torch.randn(rows, 4)), torch.randn(rows, 4), torch.rand(rows, 4) > least
    x.requires_grad_(grads)
    found = fn(x, y, m)
    flat = list(found) if isinstance(found, tuple) else [found]
    roots = [r for r in flat if isinstance(r, torch.Tensor) and r.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(r) for r in roots])
    return [*((r, r.stride()) if isinstance(r, torch.Tensor) else (r, ()) for r in flat), (x.grad, ())]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_one_graph_gives_what_eager_gives(fn: Any, backend: str) -> None:
    compiled = jitney.compile(fn, backend=backend)
    with observe() as seen:
        for seed, call in enumerate(CALLS):
            expected, found = (results(f, *call, seed, lambda x: x) for f in (fn, compiled))
            torch.testing.assert_close(found, expected, equal_nan=True)
    assert not seen.breaks and not seen.skips


def known_to_be_equal(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> Any:
    a = torch.stack([x[m], y[m]], 1).squeeze()  # more than one
    return a, torch.stack([x[m], y[m]]).t().contiguous()


def test_a_size_that_is_known_to_be_another_is_not_known_before_the_graph_runs() -> None:
    compiled = jitney.compile(known_to_be_equal, backend="aot_eager")
    for count in (3, 1, 4, 2, 0, 5, 3):
        x, y, m = torch.randn(6, requires_grad=True), torch.randn(6), torch.arange(6) < count
        expected, found = (fn(x * 1, y, m) for fn in (known_to_be_equal, compiled))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*(torch.autograd.grad(sum(t.sum() for t in r), x) for r in (found, expected)))


def test_what_computes_with_them_is_compiled_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    compilation = sized_graphs._Compilation

    def noted(graph: Any, given: Any, inputs: Any) -> Any:
        made.append(len(graph.graph.nodes))
        return compilation(graph, given, inputs)

    monkeypatch.setattr(sized_graphs, "_Compilation", noted)
    compiled = jitney.compile(loss, backend="aot_eager", dynamic=False)
    for seed, least in enumerate((0.5, 0.3, 0.7, 2.0, 0.6)):
        call = (6, least, False, seed, lambda x: x)
        torch.testing.assert_close(results(compiled, *call), results(loss, *call), equal_nan=True)
    assert len(made) == 1


def test_other_kinds_of_inputs_and_states_of_torch() -> None:
    changes: list[Callable[..., Any]] = [
        lambda x: x,
        lambda x: x.double().float(),
        lambda x: x.t().contiguous().t(),
        lambda x: torch.nn.Parameter(x),
        lambda x: x[:, [3, 2, 1, 0]],
    ]
    for seed, change in enumerate(changes):
        compiled = jitney.compile(heads, backend="aot_eager")
        for grads in (False, True):
            call = (6, 0.4, grads, seed, change)
            torch.testing.assert_close(results(compiled, *call), results(heads, *call))
            with torch.no_grad():
                torch.testing.assert_close(results(compiled, *call), results(heads, *call))
    with torch.inference_mode():
        call = (6, 0.4, False, 0, changes[0])
        torch.testing.assert_close(results(compiled, *call), results(heads, *call))


def test_a_graph_of_which_much_would_run_uncompiled_breaks() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y = y.sin() + y.cos() * x.exp()
        y[m] = y[m].cumsum(0)  # from the first operation to this write it is one piece
        return y

    x, m = torch.randn(5, 4), torch.rand(5, 4) > 0.5
    for backend, breaks in (("aot_eager", 1), ("eager", 0)):
        with observe() as seen:
            assert torch.equal(jitney.compile(fn, backend=backend)(x, m), fn(x, m))
        assert len(seen.breaks) == breaks


def test_callables_get_no_such_graph_unless_it_is_asked_for() -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        assert not any(node.target == "nonzero" for node in graph.graph.nodes)
        return graph.forward

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).nonzero() * 2

    with observe() as seen:
        assert torch.equal(jitney.compile(fn, backend=backend)(torch.eye(3)), fn(torch.eye(3)))
    assert len(seen.breaks) == 1


PROGRAM = """
import torch, jitney
from jitney import events

def fn(x, m):
    a = x[m]
    return (a.exp() * a / (1 + a * a)).sum() + a.shape[0]

seen = []
compiled = jitney.compile(fn, backend="aot_eager")
with events.listen(seen.append):
    for least in (0.5, 0.2, 2.0):
        x = torch.linspace(-1, 1, 6, requires_grad=True)
        m = torch.linspace(0, 1, 6) > least
        compiled(x, m).backward()
        y = x.detach().requires_grad_()
        fn(y, m).backward()
        torch.testing.assert_close(x.grad, y.grad)
print(*(type(e).__name__ for e in seen if isinstance(e, (events.FrameCaptured, events.FrameLoaded))))
"""


def test_a_second_process_takes_them_from_disk(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {**os.environ, "JITNEY_CACHE": "1", "JITNEY_CACHE_DIR": str(tmp_path / "cache")}
    for expected in ("FrameCaptured", "FrameLoaded"):
        done = run_python(str(tmp_path / "program.py"), env=env)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [expected]
