"""Elements that are picked by indices which are known are slices; what they give is what ``index`` gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

import jitney
from jitney.aot.constants.indices import Run, runs_of, slice_constant_indices
from jitney.backends import Backend, CompileRequest

aten = torch.ops.aten
LOOKED_UP = (aten.index.Tensor, aten.index_select.default, aten.index_put.default)


def compiled(fn: Callable[..., Any], *, dynamic: bool = False) -> tuple[Callable[..., Any], list[fx.GraphModule]]:
    """The function on a backend that notes its ATen graphs."""
    graphs: list[fx.GraphModule] = []

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Any:
        graphs.append(graph)
        return graph.forward

    return jitney.compile(fn, backend=Backend("mine", compile_graph, level="aten"), dynamic=dynamic), graphs


def looks_up(graphs: Sequence[fx.GraphModule]) -> bool:
    return any(node.target in LOOKED_UP for graph in graphs for node in graph.graph.nodes)


@pytest.mark.parametrize(
    ("places", "runs"),
    [([2, 1, 0], [Run(2, -1, 3)]), ([0, 2, 1, 3], [Run(0, 2, 2), Run(1, 2, 2)]), ([4], [Run(4, 1, 1)]),
     ([5, 0, 1, 2], [Run(5, 1, 1), Run(0, 1, 3)]), ([3, 3, 3], [Run(3, 0, 3)]),
     ([0, 3, 6, 1], [Run(0, 3, 3), Run(1, 1, 1)])],
)  # fmt: skip
def test_runs_are_few(places: list[int], runs: list[Run]) -> None:
    assert runs_of(places) == runs


def test_runs_say_every_place_once_and_in_order() -> None:
    for places in itertools.product(range(4), repeat=5):
        assert [r.first + r.step * n for r in runs_of(places) for n in range(r.count)] == [*places]


@pytest.mark.parametrize("places", [[2, 1, 0], [0, 2, 1, 3], [-1, 0], [3], [1, 1], [0, 2, 3, 1], [3, 1, 2, 0]])
@pytest.mark.parametrize("dim", [0, 1])
def test_picked_elements_and_gradients_are_eagers(places: list[int], dim: int) -> None:
    def fn(x: Tensor) -> Any:
        rows = x[places] if dim == 0 else x[:, places]
        return rows * 2, x.index_select(dim, torch.tensor([n % 4 for n in places]))

    for made in (torch.randn(4, 4), torch.randn(4, 4).t(), torch.randn(8, 4)[::2]):
        x, y = made.clone().requires_grad_(), made.clone().requires_grad_()
        call, graphs = compiled(fn)
        results, expected = call(x), fn(y)
        for a, b in zip(results, expected, strict=True):
            assert torch.equal(a, b) and a.stride() == b.stride()
        weights = torch.randn_like(expected[0])
        ((results[0] * weights).sum() + results[1].sum()).backward()
        ((expected[0] * weights).sum() + expected[1].sum()).backward()
        assert torch.equal(x.grad, y.grad)  # type: ignore[arg-type] # both have one
    unique = len(set(places)) == len(places)
    assert not unique or not looks_up(graphs)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("places", [[2, 1, 0], [0, 2], [3, 0], [1], [4, 0, 2, 3, 1], [1, 1]])
def test_writes_by_known_indices_are_eagers(places: list[int], accumulate: bool) -> None:
    def fn(x: Tensor, values: Tensor) -> Tensor:
        return torch.index_put(x, (torch.tensor(places),), values, accumulate=accumulate)

    x, values = torch.randn(5, 3), torch.randn(len(places), 3)
    if places == [1, 1]:
        values[1] = values[0]  # which one is written is not said
    call, graphs = compiled(fn)
    with torch.no_grad():
        assert torch.equal(call(x, values), fn(x, values))
    assert looks_up(graphs) == (places == [1, 1])


@pytest.mark.parametrize(
    "fn",
    [lambda x: x[[0, 9]], lambda x: x[[0, 1], [1, 0]], lambda x: x[[0, 3, 1, 7, 2, 6, 5, 0, 4]], lambda x: x[[0, -9]]],
)
def test_what_is_no_few_slices_stays(fn: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(8, 5)
    call, graphs = compiled(fn)
    try:
        expected = fn(x)
    except IndexError as error:
        with pytest.raises(IndexError, match=str(error).partition(" ")[0]):
            call(x)
    else:
        assert torch.equal(call(x), expected)
        assert looks_up(graphs)


def test_sizes_that_change() -> None:
    call, graphs = compiled(lambda x: x[:, [2, 0]] + x[[1, 0]][:, :2].sum(), dynamic=True)
    for rows in (4, 7, 9):
        x = torch.randn(rows, 3)
        assert torch.equal(call(x), x[:, [2, 0]] + x[[1, 0]][:, :2].sum())
    assert len(graphs) == 1


def test_indices_that_are_inputs_are_looked_up() -> None:
    call, graphs = compiled(lambda x, at: x[at])
    x = torch.randn(4, 3)
    for at in (torch.tensor([2, 1]), torch.tensor([0, 3])):
        assert torch.equal(call(x, at), x[at])
    assert looks_up(graphs)


def graph_of_a_constant(places: list[int]) -> tuple[fx.Graph, Tensor]:
    """``x[places]`` for ``x`` of (3, 2), whose indices are a constant of a device where nobody computes values."""
    graph, values, mode = fx.Graph(), torch.randn(3, 2), FakeTensorMode()
    x = graph.placeholder("x")
    x.meta["val"] = mode.from_tensor(values)
    read = graph.get_attr("_constant0")
    read.meta["val"] = torch.empty(len(places), dtype=torch.int64, device="meta")
    copy = graph.call_function(aten.clone.default, (read,))
    copy.meta["val"] = read.meta["val"]
    made = graph.call_function(aten.index.Tensor, (x, [copy]))
    made.meta["val"] = mode.from_tensor(torch.empty(len(places), 2))
    graph.output((made,))
    return graph, values


def test_a_constant_on_a_device_is_known() -> None:
    graph, x = graph_of_a_constant([2, 0])
    slice_constant_indices(graph, {"_constant0": torch.tensor([2, 0])}, {})
    values = fx.Interpreter(fx.GraphModule({"_constant0": torch.tensor([2, 0])}, graph)).run(x)
    assert torch.equal(values[0], x[[2, 0]]) and not any(n.target in LOOKED_UP for n in graph.nodes)


def test_what_takes_the_place_of_an_operator_is_taken_apart_as_the_backend_wishes() -> None:
    graph, x = graph_of_a_constant([2, 1, 0])

    def flip(value: Tensor, dims: Sequence[int]) -> Tensor:
        return torch.ops.prims.rev.default(value, [*dims])  # type: ignore[no-any-return]

    slice_constant_indices(graph, {"_constant0": torch.tensor([2, 1, 0])}, {aten.flip.default: flip})
    targets = [node.target for node in graph.nodes]
    assert torch.ops.prims.rev.default in targets and aten.flip.default not in targets
    values = fx.Interpreter(fx.GraphModule({"_constant0": torch.tensor([2, 1, 0])}, graph)).run(x)
    assert torch.equal(values[0], x[[2, 1, 0]])


def test_what_a_backends_rule_writes_in_place_stays_looked_up() -> None:
    graph, _ = graph_of_a_constant([2, 1, 0])

    def flip(value: Tensor, dims: Sequence[int]) -> Tensor:
        return torch.empty_like(value).copy_(value)

    before = str(graph)
    slice_constant_indices(graph, {"_constant0": torch.tensor([2, 1, 0])}, {aten.flip.default: flip})
    assert str(graph) == before


@pytest.mark.parametrize("dim", [0, 1])
def test_index_select_takes_no_negative_index(dim: int) -> None:
    call, _ = compiled(lambda x: x.index_select(dim, torch.tensor([-1, 0])))
    with torch.no_grad(), pytest.raises(RuntimeError if dim else IndexError):
        torch.ones(4, 3).index_select(dim, torch.tensor([-1, 0]))
    with torch.no_grad(), pytest.raises((IndexError, RuntimeError)):
        call(torch.ones(4, 3))


def test_strides_of_single_elements_are_eagers() -> None:
    for x, fn in (
        (torch.empty_strided((5, 1, 3), (1, 5, 5)).normal_(), lambda x: x[..., [2]]),
        (torch.empty_strided((4, 6, 2, 1), (12, 2, 1, 2)).normal_(), lambda x: x[0:1][[0]]),
    ):
        call, _ = compiled(fn)
        with torch.no_grad():
            assert call(x).stride() == fn(x).stride() and torch.equal(call(x), fn(x))


def test_types_that_torch_does_not_write_raise() -> None:
    call, _ = compiled(lambda x, v: torch.index_put(x, (torch.tensor([1, 0]),), v))
    x, values = torch.ones(3).to(torch.uint16), torch.ones(2).to(torch.uint16)
    with pytest.raises(NotImplementedError):
        torch.index_put(x, (torch.tensor([1, 0]),), values)
    with pytest.raises(NotImplementedError):
        call(x, values)
