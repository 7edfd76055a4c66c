"""The ladder names capture, AOT, decompositions and backends; the twelve faulty backends have a file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_backends import crashes_on_relu

import jitney
from jitney import pipeline
from jitney.backends import Backend
from jitney.capture.opcodes import HANDLERS
from jitney.config import config
from jitney.debug.bisect import bisect


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.patch(base_dir=str(tmp_path)):
        yield tmp_path


def program(x: torch.Tensor) -> Any:
    return torch.relu(x) + 1


def broken(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("a bug")


def test_a_program_that_fails_by_itself() -> None:
    def refuses(x: torch.Tensor) -> Any:
        raise ValueError("no")

    found = bisect(refuses, (torch.ones(2),), backend=crashes_on_relu)
    assert found.phase == "program" and [rung.phase for rung in found.rungs] == ["program"]


def test_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, "BINARY_OP", broken)
    found = bisect(program, (torch.ones(2),), backend="aot_eager")
    assert found.phase == "capture" and found.launcher is None
    assert "a bug of jitney's while capturing program" in str(found)


def test_wrong_numbers_of_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pipeline.graph_function

    def wrong(*args: Any, **kwargs: Any) -> Any:
        made = before(*args, **kwargs)
        return lambda *inputs: [out * 1.01 for out in made(*inputs)]

    monkeypatch.setattr("jitney.compiling.graph_function", wrong)
    found = bisect(program, (torch.ones(2),), backend="aot_eager")
    assert found.phase == "capture" and "result 0: 2 of 2 elements are wrong" in str(found)


def test_aot(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(pipeline, "compile_graph", broken)
    found = bisect(program, (torch.ones(2),), backend="aot_eager")
    assert found.phase == "aot" and found.launcher == folder / "minifier_launcher.py"


def test_a_decomposition_of_torchs_core() -> None:
    aten = torch.ops.aten

    def wrong(x: Any) -> Any:
        return aten.mul.Tensor(aten.sigmoid.default(x), 1.01)

    from jitney.backends import decompositions

    table = dict(decompositions.core_decompositions()) | {aten.silu.default: lambda x: x * wrong(x)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jitney_aot_eager.core_decompositions", lambda: table)
        found = bisect(lambda x: torch.nn.functional.silu(x), (torch.ones(2),), backend="aot_eager")
    assert found.phase == "decompositions"


def test_a_decomposition_of_the_backends() -> None:
    aten = torch.ops.aten
    backend = Backend(
        "own",
        lambda graph, inputs, request: graph.forward,
        level="aten",
        decompositions={aten.silu.default: lambda x: x * x.sigmoid() * 1.01},
    )
    found = bisect(lambda x: torch.nn.functional.silu(x) + x, (torch.ones(2),), backend=backend)
    assert found.phase == "decompositions of own"
    assert [rung.name for rung in found.rungs][-1] == "aot_eager, decompositions of own"
    assert "another process" in found.note


def test_what_the_program_changes_is_put_back() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = torch.ones(2, 3)

    def train(x: torch.Tensor) -> Any:
        loss = net(x).square().sum()
        loss.backward()
        x.add_(1)
        return loss

    found = bisect(train, (x,), backend="aot_eager")
    assert found.guilty is None, str(found)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(x, torch.ones(2, 3)) and all(p.grad is None for p in net.parameters())


def test_a_program_that_differs_each_time_is_told() -> None:
    count = iter(range(100))
    found = bisect(lambda x: x + next(count), (torch.ones(2),), backend="eager")
    assert found.guilty is None and "something else each time" in found.note


def test_explain_bisects() -> None:
    output = jitney.explain(program, backend=crashes_on_relu, bisect=True)(torch.ones(2))
    assert output.bisection is not None and output.bisection.phase == "backend crashes_on_relu"
    assert "Bisected:" in str(output) and "guilty: backend crashes_on_relu" in str(output)
    output = jitney.explain(program, backend="eager", bisect=True)(torch.ones(2))
    assert output.bisection is not None and output.bisection.guilty is None and output.graph_count == 1
