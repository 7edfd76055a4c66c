"""Delta debugging: what is made smaller, what stops it, and what it never does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from faulty_backends import crashes_on_relu, wrong_for_strides
from torch import fx

from jitney_tools.compare.verdict import Fault, Terms
from jitney_tools.minifier import Case, minify
from jitney_tools.minifier.case import NotMinified, bound, captured, number_of, plain_case, python
from jitney_tools.minifier.steps import STEPS


def case(function: Callable[..., Any], values: Sequence[Any], backend: Any, **facts: Any) -> Case:
    module, _ = captured(function, values)
    used = [values[number_of(node)] for node in module.graph.find_nodes(op="placeholder")]
    return plain_case(module, used, bound(backend, None, None), **facts)


def long(x0: torch.Tensor, x1: torch.Tensor) -> Any:
    for _ in range(20):
        x0 = torch.sin(x0 @ x1) + x0
    y = torch.relu(x0)
    for _ in range(20):
        y = torch.cos(y) * y
    return y, x0.sum()


def inputs() -> list[torch.Tensor]:
    return [torch.linspace(-1, 1, 64, dtype=torch.float64).reshape(8, 8), torch.eye(8, dtype=torch.float64)]


def test_a_long_graph_becomes_one_operation_in_few_tries() -> None:
    found = minify(case(long, inputs(), crashes_on_relu))
    assert (found.before, found.case.op_count) == (102, 1)
    assert found.tries < 40 and not found.stopped
    (given,) = found.case.inputs
    assert (
        given.value.dtype is torch.float32 and given.value.shape == (2, 2) and given.text.startswith("torch.linspace")
    )
    assert python(found.case.graph)[0].splitlines()[0] == "def graph(x0):"


def test_operations_between_two_that_are_needed_are_left_out() -> None:
    def both(graph: fx.GraphModule, given: Sequence[Any]) -> Any:
        names = [getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes]
        if "relu" in names and "tanh" in names:
            raise KeyError("relu and tanh")
        return graph.forward

    def program(x0: torch.Tensor) -> Any:
        y = torch.relu(x0).sin().exp()
        z = torch.cat([y, y * 2])[: x0.shape[0]] + 1
        return (torch.tanh(z).cos(),)

    found = minify(case(program, [torch.ones(8, 3)], both))
    assert found.case.op_count == 2, found.case.graph


def test_strides_stay_where_they_matter() -> None:
    found = minify(
        case(lambda x0: torch.sin(x0.t() + 1).exp(), [torch.linspace(-1, 1, 12).reshape(3, 4)], wrong_for_strides)
    )
    (given,) = found.case.inputs
    assert found.case.op_count == 1 and not given.value.is_contiguous()


def test_state_that_the_graph_sets_is_left_out_or_kept_whole() -> None:
    def program(x0: torch.Tensor) -> Any:
        with torch.no_grad():
            y = x0 * 2
        with torch.autocast("cpu"):
            z = y @ y
        return torch.relu(z.float()).sin()

    found = minify(case(program, [torch.ones(4, 4)], crashes_on_relu))
    assert found.case.op_count == 1
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_what_works_cannot_be_minified() -> None:
    with pytest.raises(NotMinified, match="does not fail by itself as it did: .*; now: it works"):
        minify(case(long, inputs(), "eager"))


def test_another_fault_is_not_the_one_that_was_asked_for() -> None:
    with pytest.raises(NotMinified, match="now: it raises"):
        minify(case(long, inputs(), crashes_on_relu), Fault("numbers", "results", "3 of 4"))


def test_a_time_limit_keeps_the_best_so_far() -> None:
    found = minify(case(long, inputs(), crashes_on_relu), seconds=0)
    assert found.stopped == "the time limit" and found.case.op_count == 102


def test_ctrl_c_keeps_the_best_so_far() -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 4:
            raise KeyboardInterrupt

    found = minify(case(long, inputs(), crashes_on_relu), say=say)
    assert found.stopped == "Ctrl-C" and 1 <= found.case.op_count < 102
    assert said[0].startswith("102 operations, 2 inputs, try 1: fewer results")
    assert found.fault.like(found.case.fault(Terms()))


@pytest.mark.parametrize("name", STEPS)
def test_each_step_makes_graphs_that_run(name: str) -> None:
    begin = case(long, inputs(), "eager")
    for number, smaller in enumerate(STEPS[name](begin)):
        smaller.graph.lint()
        assert [str(n.target) for n in smaller.graph.find_nodes(op="placeholder")] == [
            f"x{i}" for i in range(len(smaller.inputs))
        ]
        if not number:
            assert isinstance(smaller.function()(*smaller.values), tuple)
