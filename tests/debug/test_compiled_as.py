"""Tools that compile a function once more do it as its user did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_backends import crashes_on_relu, kept

import jitney
from jitney.cli import main
from jitney.config import config
from jitney.debug.compiled_as import compiled_as, original_of
from jitney.runtime.wrappers import running_originals
from jitney_tools.bisect import bisect


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.patch(base_dir=str(tmp_path / "out")):
        yield tmp_path


def program(x: torch.Tensor) -> Any:
    return torch.relu(x) + 1


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> Any:
        return torch.relu(x * self.weight)

    @jitney.compile(backend=crashes_on_relu, dynamic=True)
    def step(self, x: torch.Tensor) -> Any:
        return self.forward(x) + 1


def test_what_is_not_compiled_is_compiled_by_default() -> None:
    how = compiled_as(program)
    assert how.function is program
    assert how.arguments() == {"backend": "auto", "options": None, "mode": None, "dynamic": None, "fullgraph": False}


def test_what_is_compiled_keeps_its_arguments() -> None:
    options = {"decompose": "core"}
    compiled = jitney.compile(program, backend="aot_eager", options=options, dynamic=True, fullgraph=True)
    how = compiled_as(compiled)
    assert how.function is program
    assert how.arguments() == {
        "backend": "aot_eager",
        "options": options,
        "mode": None,
        "dynamic": True,
        "fullgraph": True,
    }
    assert compiled_as(compiled, options={"decompose": "all"}).options == {"decompose": "all"}
    other = compiled_as(compiled, "eager")
    assert (other.backend, other.options, other.dynamic) == ("eager", None, True)


def test_modules_and_methods_are_found() -> None:
    net = Net()
    assert original_of(jitney.compile(net, backend="eager")) is net
    assert original_of(net.step).__self__ is net and original_of(net.forward) == net.forward
    assert compiled_as(net.step).backend is crashes_on_relu


def test_bisect_takes_the_functions_own_backend() -> None:
    found = bisect(Net().step, (torch.ones(2),))
    assert found.phase == "backend crashes_on_relu"
    found = bisect(Net().step, (torch.ones(2),), backend="eager")
    assert found.guilty is None


def test_bisect_takes_the_functions_own_dynamic() -> None:
    def wrong_if_symbolic(graph: Any, inputs: Any) -> Any:
        if any(isinstance(given, torch.SymInt) for given in inputs):
            raise OverflowError("no kernel for symbols")
        return graph.forward

    def sized(x: torch.Tensor) -> Any:
        return x * x.shape[0]

    x = torch.ones(3)
    compiled = jitney.compile(sized, backend=wrong_if_symbolic, dynamic=True)
    assert "OverflowError" in str(bisect(compiled, (x,)))
    assert bisect(sized, (x,), backend=wrong_if_symbolic).guilty is None


def test_explain_goes_through_the_functions_own_backend() -> None:
    compiled = jitney.compile(lambda x: x * x.shape[0], backend="aot_eager", dynamic=True)
    output = jitney.explain(compiled)(torch.ones(71))
    assert output.aten_graphs and "71" not in output.graphs[0].code


MODEL = """
import torch
import jitney
import faulty_backends

def example_inputs():
    return torch.linspace(-1, 1, 4)

@jitney.compile(backend=faulty_backends.leaks)
def step(x):
    return torch.tanh(x) * 2
"""


@pytest.mark.parametrize("command", [["profile", "--calls", "1"], ["memory"], ["explain"]])
def test_commands_run_the_functions_own_backend(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "compiled_model.py").write_text(MODEL)
    kept.clear()
    assert main([command[0], f"{folder}/compiled_model.py:step", *command[1:]]) == 0
    assert kept
    assert "Traceback" not in capsys.readouterr().err


# ---------------------------------------------------------------------- something compiled, called by what is not


def net_and_step() -> tuple[torch.nn.Module, Any]:
    model = jitney.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), backend=crashes_on_relu)
    return model, lambda x: model(x).sum()


def test_bisect_compares_with_what_the_user_wrote_though_parts_are_compiled() -> None:
    _, step = net_and_step()
    found = bisect(step, (torch.ones(2, 3),))
    assert [rung.phase for rung in found.rungs] == ["program", "capture", "backend crashes_on_relu"]
    assert found.phase == "backend crashes_on_relu"
    assert "compiled as Sequential is, which it calls: backend='crashes_on_relu'" in found.note
    assert bisect(step, (torch.ones(2, 3),), backend="eager").guilty is None


def test_what_is_compiled_is_compiled_again_afterwards() -> None:
    calls: list[str] = []

    def counting(graph: Any, inputs: Any) -> Any:
        calls.append("compiled")
        return lambda *given: calls.append("ran") or graph.forward(*given)

    compiled = jitney.compile(lambda x: x.sin() + 1, backend=counting)
    compiled(torch.ones(2))
    with running_originals():
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
        assert compiled(torch.ones(3, dtype=torch.float64)).dtype is torch.float64
    assert calls == ["compiled", "ran"]
    compiled(torch.ones(2))
    assert calls == ["compiled", "ran", "ran"]
    compiled(torch.ones(2, dtype=torch.float64))
    assert calls[3:] == ["compiled", "ran"]
