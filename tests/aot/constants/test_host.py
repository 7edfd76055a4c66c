"""What is computed of nothing on the host and goes to a device is a constant there.

The device is "meta": it takes copies as a GPU does, and every machine has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import jitney
from jitney.aot.constants import host
from jitney.aot.constants.host import fold_host_constants
from jitney.backends import Backend, CompileRequest

aten = torch.ops.aten


def folded(fn: Callable[[Tensor], Any], *, dynamic: bool = False) -> fx.GraphModule:
    """The ATen graph of a function of one tensor on another device."""
    graphs: list[fx.GraphModule] = []

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Any:
        graphs.append(graph)
        return graph.forward

    jitney.compile(fn, backend=Backend("mine", compile_graph, level="aten"), dynamic=dynamic)(
        torch.ones(3, device="meta")
    )
    (graph,) = graphs
    return graph


def targets(graph: fx.GraphModule) -> list[Any]:
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def on_the_host(graph: fx.GraphModule) -> list[fx.Node]:
    return [
        n for n in graph.graph.nodes if isinstance(n.meta.get("val"), Tensor) and n.meta["val"].device.type == "cpu"
    ]


@pytest.mark.parametrize(
    ("make", "number"),
    [(lambda: torch.zeros(3), 0.0), (lambda: torch.ones(2, 3).sum(0), 2.0), (lambda: torch.tensor(0.5), 0.5),
     (lambda: ~torch.zeros(3, dtype=torch.bool), True), (lambda: torch.full((3,), 2.5).to(torch.int32), 2),
     (lambda: torch.full((3,), 7), 7),
     (lambda: torch.tensor([-0.0, -0.0, -0.0]), -0.0), (lambda: torch.ones(3).half().expand(2, 3), 1.0)],
)  # fmt: skip
def test_one_number_everywhere_is_full(make: Callable[[], Tensor], number: Any) -> None:
    graph = folded(lambda x: x + make().to(x.device))
    (full,) = graph.graph.find_nodes(op="call_function", target=aten.full.default)
    assert repr(full.args[1]) == repr(number) and full.kwargs["dtype"] is make().dtype
    assert list(full.args[0]) == [*make().shape] and not on_the_host(graph)


@pytest.mark.parametrize(
    "make",
    [lambda: torch.arange(3), lambda: 1 / 100 ** (torch.arange(0, 6, 2) / 6), lambda: torch.tensor([1.0, 2.0, 3.0]),
     lambda: torch.linspace(0, 1, 3).expand(3, 3), lambda: torch.hann_window(3), lambda: torch.eye(3).bool(),
     lambda: torch.tensor([0.0, -0.0, 0.0]), lambda: torch.tensor([float("nan"), 0.0, 1.0])],
)  # fmt: skip
def test_other_values_are_computed_as_eager_computes_them(
    make: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Tensor] = []
    to = Tensor.to
    monkeypatch.setattr(
        host, "moved", lambda value, device: kept.append(value.clone()) or to(value, device), raising=True
    )
    graph = folded(lambda x: x + make().to(x.device))
    assert not on_the_host(graph) and aten._to_copy.default not in targets(graph)
    (constant,) = kept
    assert torch.equal(constant.contiguous().view(torch.uint8), make().contiguous().view(torch.uint8))


def test_results_are_the_callers_own() -> None:
    graph = folded(lambda x: (x + 1, torch.arange(3).to(x.device)))
    assert targets(graph)[-1] is aten.clone.default


@pytest.mark.parametrize(
    "make",
    [lambda x: torch.rand(3), lambda x: torch.empty(3), lambda x: torch.ones(3) * torch.rand(1),
     lambda x: torch.arange(1 << 19)],
)  # fmt: skip
def test_what_is_random_undefined_or_large_stays(make: Callable[[Tensor], Tensor]) -> None:
    graph = folded(lambda x: x[0] + make(x).to(x.device))
    assert aten._to_copy.default in targets(graph) and aten.full.default not in targets(graph)


@pytest.mark.parametrize("number", [1e30, -129.0, 128.0, float("nan"), float("inf")])
def test_floats_beyond_an_integers_range_become_what_the_device_makes_of_them(number: float) -> None:
    graph = folded(lambda x: x + torch.tensor([number, 2.0, 3.0]).to(x.device, torch.int8))
    assert aten._to_copy.default in targets(graph)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8])
def test_floats_that_every_device_converts_alike_are_converted(dtype: torch.dtype) -> None:
    graph = folded(lambda x: x + torch.tensor([-128.5, 0.0, 127.5]).to(x.device, dtype))
    assert aten._to_copy.default not in targets(graph)


def test_what_raises_is_left_to_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fx.Graph()
    made = graph.call_function(aten.full.default, ([2], 1.0), {"device": torch.device("cpu")})
    made.meta["val"] = torch.ones(2)
    copy = graph.call_function(aten._to_copy.default, (made,), {"device": torch.device("meta")})
    copy.meta["val"] = torch.ones(2, device="meta")
    graph.output((copy,))

    def fails(value: Tensor) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setattr(host, "_number", fails)
    constants: dict[str, Tensor] = {}
    fold_host_constants(graph, constants)
    assert not constants
    graph.lint()
    assert [n.target for n in graph.nodes if n.op == "call_function"] == [aten.full.default, aten._to_copy.default]


def test_sizes_that_change_stay() -> None:
    graph = folded(lambda x: x + torch.zeros(x.shape[0]).to(x.device), dynamic=True)
    assert aten._to_copy.default in targets(graph)


def test_single_numbers_are_where_they_are_read() -> None:
    def f(x: Tensor) -> Any:
        y = x * torch.tensor(2.5)
        y[1:].fill_(torch.tensor(7))
        return (
            y.masked_fill(y > 1, torch.tensor(-0.0)),
            x + torch.tensor(3),
            x.int() + torch.tensor(0.5, dtype=torch.float64),
        )

    graph = folded(f)
    numbers = [n.args[1] for n in graph.graph.find_nodes(op="call_function", target=aten.full.default)]
    assert sorted(map(repr, numbers)) == ["-0.0", "0.5", "2.5", "3", "7"] and not on_the_host(graph)
    results = [n.meta["val"].dtype for n in graph.graph.output_node().args[0]]
    assert results == [v.dtype for v in f(torch.ones(3))]


def test_numbers_that_would_be_rounded_stay_on_the_host() -> None:
    """Eager's kernels multiply halves by a number of the host in float32."""

    def f(x: Tensor) -> Any:
        precise = torch.tensor(0.1, dtype=torch.float64)
        return x.half() * torch.tensor(0.1), x.half() * torch.tensor(0.5), x * precise

    graph = folded(f)
    numbers = [n.args[1] for n in graph.graph.find_nodes(op="call_function", target=aten.full.default)]
    read = {n.target for n in on_the_host(graph) if n.op == "get_attr"}
    assert numbers == [0.5] and len(read) == 2
