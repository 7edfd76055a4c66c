"""The ladder names capture, AOT, decompositions and backends; the twelve faulty backends have a file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_backends import crashes_on_relu
from torch import nn

import jitney
from jitney.backends import Backend, core_decompositions
from jitney.capture.interpreter.opcodes import HANDLERS
from jitney.config import config
from jitney.graph_compile import pipeline
from jitney_tools.bisect import bisect


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

    monkeypatch.setattr("jitney.runtime.compile_frame.graph_function", wrong)
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

    table = dict(core_decompositions()) | {aten.silu.default: lambda x: x * wrong(x)}
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


def test_a_training_step_with_an_optimizer_is_compared_and_put_back() -> None:
    net = torch.nn.Linear(3, 3)
    momentum = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    before = net.weight.detach().clone()

    def train(x: torch.Tensor) -> Any:
        loss = net(x).square().sum()
        momentum.zero_grad()
        loss.backward()
        momentum.step()
        return loss.detach()

    found = bisect(train, (torch.ones(2, 3),), backend="aot_eager")
    assert found.guilty is None and found.compared, str(found)
    assert torch.equal(net.weight, before) and not momentum.state


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


# ---------------------------------------------------------------------- what no graph shows by itself


def reuses_its_output(graph: Any, inputs: Any) -> Any:
    """A result is written to memory that each later graph, and call, of that shape is given, too."""

    def run(*given: Any) -> Any:
        results = []
        for result in graph.forward(*given):
            mine = BUFFERS.setdefault(result.shape, torch.empty_like(result)).copy_(result)
            results.append(mine.view(mine.shape))
        return results

    return run


BUFFERS: dict[Any, torch.Tensor] = {}


def in_two_graphs(x: torch.Tensor) -> Any:
    a = x.sin()
    jitney.graph_break()
    return a, x.cos()


def test_what_only_several_graphs_show_is_a_fault_of_the_backend() -> None:
    found = bisect(in_two_graphs, (torch.linspace(-1, 1, 6),), backend=reuses_its_output)
    assert found.phase == "backend reuses_its_output" and found.launcher is None
    assert found.guilty is not None and found.guilty.fault is not None
    assert (found.guilty.fault.kind, found.guilty.fault.place) == ("numbers", "results")
    assert "in float64" in str(found) and "no graph does this by itself" in str(found)


def test_memory_that_a_second_call_uses_again_is_a_fault() -> None:
    found = bisect(lambda x: x.sin(), (torch.linspace(-1, 1, 6),), backend=reuses_its_output)
    assert found.phase == "backend reuses_its_output"
    assert "result 0 of a second call is in the memory of result 0 of the first" in str(found)


def test_a_program_that_returns_the_same_memory_each_time_may() -> None:
    weight = torch.ones(2)
    found = bisect(lambda x: (x.sin(), weight.view(2, 1)), (torch.ones(2),), backend="aot_eager")
    assert found.guilty is None, str(found)


def test_a_graph_that_fails_only_after_another_has_no_launcher(folder: Path) -> None:
    def both(x: torch.Tensor) -> Any:
        a, b = in_two_graphs(x)
        jitney.graph_break()
        return a * 2 + b

    found = bisect(both, (torch.linspace(-1, 1, 6),), backend=reuses_its_output)
    assert "a result in the memory of an input (results): result 0" in str(found)
    assert found.launcher is None and "no graph does this by itself" in str(found) and not list(folder.iterdir())


def test_a_fault_at_the_second_call_alone_is_found() -> None:
    def wears_out(graph: Any, inputs: Any) -> Any:
        calls = iter(range(1000))
        return lambda *given: [out + (next(calls) == 1) for out in graph.forward(*given)]

    found = bisect(lambda x: x.sin(), (torch.linspace(-1, 1, 6),), backend=wears_out)
    assert found.phase == "backend wears_out", str(found)


def test_rounding_that_grows_from_graph_to_graph_is_no_fault() -> None:
    def rounds_up(graph: Any, inputs: Any) -> Any:
        return lambda *given: [torch.nextafter(out, out + 1) for out in graph.forward(*given)]

    def long(x: torch.Tensor) -> Any:
        for _ in range(6):
            x = x.sin() + x.square()
            jitney.graph_break()
        return x - x.mean()

    found = bisect(long, (torch.linspace(-1, 1, 7),), backend=rounds_up)
    assert found.guilty is None, str(found)


def test_random_numbers_are_the_same_on_every_rung() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    found = bisect(lambda x: net(x).sum() + torch.rand(()), (torch.ones(3, 4),), backend="llvm_cpu")
    assert found.guilty is None and found.note == "", str(found)


def test_ctrl_c_keeps_what_is_known(folder: Path) -> None:
    def interrupted(graph: Any, inputs: Any) -> Any:
        raise KeyboardInterrupt

    found = bisect(program, (torch.ones(2),), backend=interrupted)
    assert found.stopped == "interrupted" and found.guilty is None
    assert str(found).splitlines()[-2:] == [
        "interrupted         stopped by Ctrl-C",
        "nothing is known of the rung that was stopped, nor of those after it; nothing was written",
    ]


def test_gradients_that_are_noise_accuse_nobody() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    before = [p.dtype for p in model.parameters()]
    found = bisect(lambda x: model(x).pow(2).sum(), [torch.randn(4, 3, 12, 12)], backend="llvm_cpu")
    assert not found.phase, found
    assert [p.dtype for p in model.parameters()] == before and all(p.grad is None for p in model.parameters())
