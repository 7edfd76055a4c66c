"""Graphs over several backends: each operator where it may go, numbers and gradients as eager's."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import fx

import jitney
from jitney import events
from jitney.backends import Backend, Registry
from jitney.backends.placement import devices
from jitney.config import config
from jitney.errors import BackendFailed, InvalidOption
from jitney.torch_compat.torch_private import FakeTensorMode


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty registry in place of the process's."""
    empty = Registry()
    monkeypatch.setattr(empty, "_entry_points", lambda group: {})
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", empty)
    return empty


def only(name: str, *operators: str, options: type | None = None) -> Backend:
    """A backend that takes these ATen operators, and fails if it gets another."""

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: Any) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            if node.op == "call_function" and hasattr(node.target, "overloadpacket"):
                assert node.target.overloadpacket.__name__ in operators, node
        assert len(inputs) == len(graph.graph.find_nodes(op="placeholder"))
        return graph.forward

    def supports(node: fx.Node) -> bool:
        return getattr(getattr(node.target, "overloadpacket", None), "__name__", "") in operators

    return Backend(name, compile_graph, level="aten", supports=supports, options=options)


def placed(fn: Callable[..., Any], *args: Any, backend: Any, **keywords: Any) -> tuple[Any, list[events.Placed]]:
    seen: list[Any] = []
    with events.listen(seen.append):
        result = jitney.compile(fn, backend=backend, **keywords)(*args)
    return result, [e for e in seen if isinstance(e, events.Placed)]


def test_operators_go_to_the_first_backend_that_takes_them(installed: Registry) -> None:
    installed.register_backend(only("one", "exp", "mul"))
    installed.register_backend(only("two", "mul", "sin"))
    x = torch.rand(3)
    result, (event,) = placed(lambda x: (x * 2).exp().sin().cos() + 1, x, backend=["one", "two"])
    assert torch.equal(result, (x * 2).exp().sin().cos() + 1)
    assert event.pieces == (("one", 2), ("two", 1), ("eagerly", 2))


def test_a_backend_that_takes_everything_gets_the_graph_whole(installed: Registry) -> None:
    installed.register_backend(only("one", "exp", "mul"))
    _, (event,) = placed(lambda x: x.exp() * x, torch.rand(3), backend="one")
    assert event.pieces == (("one", 2),)


def test_independent_operators_of_one_backend_are_one_piece(installed: Registry) -> None:
    installed.register_backend(only("one", "exp"))
    _, (event,) = placed(lambda x, y: x.exp() + y.exp().sin().exp(), torch.rand(3), torch.rand(3), backend="one")
    assert event.pieces == (("one", 2), ("eagerly", 1), ("one", 1), ("eagerly", 1))


def test_training_over_two_backends_has_eager_gradients(installed: Registry) -> None:
    installed.register_backend(only("one", "exp", "mul", "sum"))
    installed.register_backend(only("two", "sin", "cos", "addmm", "t"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.LayerNorm(4))

    def step(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return (model(x.sin()).exp() * 0.1).sum()

    x = torch.rand(3, 4)
    found = []
    for run in (step, jitney.compile(step, backend=["one", "two"])):
        torch.manual_seed(1)
        model.zero_grad()
        loss = run(model, x)
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for wanted, got in zip(*found, strict=True):
        assert torch.equal(wanted, got)


def test_random_operators_draw_in_the_order_of_the_program(installed: Registry) -> None:
    installed.register_backend(only("one", "rand_like", "bernoulli"))

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.rand_like(x)
        b = torch.randn_like(x)  # runs eagerly, between the two
        return a, b, torch.rand_like(x)

    torch.manual_seed(0)
    wanted = fn(torch.zeros(4))
    torch.manual_seed(0)
    got, (event,) = placed(fn, torch.zeros(4), backend="one")
    assert len(event.pieces) == 3
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))


def test_devices_that_a_backend_lacks_run_eagerly(installed: Registry) -> None:
    backend = Backend("far", lambda g, i, r: pytest.fail("got a graph"), level="aten", device_types=("xpu",))
    installed.register_backend(backend)
    result, (event,) = placed(lambda x: x + 1, torch.zeros(2), backend="far")
    assert torch.equal(result, torch.ones(2)) and event.pieces == (("eagerly", 1),)


def described(device: str, *shapes: tuple[str, tuple[int, ...]]) -> fx.Node:
    """An operator whose result is on ``device``, and what it reads: devices and shapes, of tensors without memory."""
    graph = fx.Graph()
    with FakeTensorMode():
        read = []
        for number, (where, shape) in enumerate(shapes):
            read.append(graph.placeholder(f"x{number}"))
            read[-1].meta["val"] = torch.empty(shape, device=where)
        node = graph.call_function(torch.ops.aten.add.Tensor, tuple(read))
        node.meta["val"] = torch.empty((), device=device)
    return node


MIXED = {
    "numbers beside tensors": (("cuda", ("cuda", (3,)), ("cpu", ())), {"cuda"}),
    "numbers beside numbers": (("cuda", ("cuda", ()), ("cpu", ())), {"cuda"}),
    "tensors of both": (("cuda", ("cuda", (3,)), ("cpu", (1,))), {"cuda", "cpu"}),
    "a number that moves": (("cuda", ("cpu", ())), {"cuda", "cpu"}),
    "a result that moves": (("cpu", ("cuda", (3,))), {"cuda", "cpu"}),
    "numbers of the CPU": (("cpu", ("cpu", ())), {"cpu"}),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_number_in_a_tensor_of_the_cpu_is_no_reason_to_part(name: str) -> None:
    (device, *read), expected = MIXED[name]
    assert devices(described(device, *read)) == expected


def test_what_cannot_work_here_is_left_out_by_auto_and_fails_by_name(installed: Registry) -> None:
    def fail(*args: Any) -> Any:
        raise RuntimeError("cannot work here")

    asked: list[int] = []

    def lacks() -> tuple[str, ...]:
        asked.append(1)
        return ("no fuel", "no wheels")

    triton = Backend("triton_gpu", fail, level="aten", device_types=("cpu",), lacks=lacks, auto_priority=1)
    installed.register_backend(triton)
    run = jitney.compile(lambda x: x.sin() + 1, backend="auto")
    assert not asked
    with pytest.warns(UserWarning, match="'auto' does without triton_gpu, eagerly: no fuel; no wheels"):
        assert torch.equal(run(torch.zeros(2)), torch.ones(2))
    assert torch.equal(run(torch.zeros(2, 2)), torch.ones(2, 2)) and len(asked) == 1
    with pytest.raises(BackendFailed, match="cannot work here"):
        jitney.compile(lambda x: x.sin() + 1, backend="triton_gpu")(torch.zeros(2))


def test_what_is_missing_is_asked_when_an_operator_comes_that_needs_it(installed: Registry) -> None:
    far = Backend(
        "triton_gpu",
        pytest.fail,
        level="aten",
        device_types=("cuda",),
        lacks=lambda: pytest.fail("asked"),
        auto_priority=1,
    )
    installed.register_backend(replace(only("llvm_cpu", "sin", "add"), auto_priority=2))
    installed.register_backend(far)
    result, (event,) = placed(lambda x: x.sin() + 1, torch.zeros(2), backend="auto")
    assert torch.equal(result, torch.ones(2)) and event.pieces == (("llvm_cpu", 2),)


@dataclass(frozen=True)
class Speed:
    fast: bool = False


def test_an_option_goes_to_the_backends_that_have_it(installed: Registry) -> None:
    installed.register_backend(only("one", "exp", options=Speed))
    installed.register_backend(only("two", "sin"))
    result, _ = placed(lambda x: x.exp().sin(), torch.ones(2), backend=["one", "two"], options={"fast": True})
    assert torch.equal(result, torch.ones(2).exp().sin())
    with pytest.raises(InvalidOption, match="none of the backends one, two has an option 'fats'"):
        jitney.compile(lambda x: x, backend=["one", "two"], options={"fats": True})


def test_a_failure_names_the_backend_whose_piece_it_was(installed: Registry) -> None:
    def fail(*args: Any) -> Any:
        raise ValueError("no such luck")

    installed.register_backend(Backend("bad", fail, level="aten", supports=lambda n: "exp" in str(n.target)))
    installed.register_backend(only("two", "sin"))
    with pytest.raises(BackendFailed, match="backend bad, inference.*no such luck") as caught, torch.no_grad():
        jitney.compile(lambda x: x.exp().sin(), backend=["bad", "two"])(torch.ones(2))
    assert isinstance(caught.value.__cause__, ValueError)


def filling(name: str, *operators: str) -> tuple[Backend, list[dict[int, int]]]:
    """A backend that writes to inputs itself where it may, and what it was told of them."""
    told: list[dict[int, int]] = []
    backend = only(name, *operators)

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: Any) -> Callable[..., Any]:
        updates = dict(request.updates)
        told.append(updates)

        def run(*given: Any) -> Any:
            outputs = list(graph(*given))
            for at, number in updates.items():
                outputs[at] = given[number].copy_(outputs[at])
            return tuple(outputs)

        run.filled = frozenset(updates)  # type: ignore[attr-defined]
        return run

    return replace(backend, compile=compile_graph), told


def _last(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y.sin().exp())


def _followed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y.exp())
    return x.exp().sin()


def _read_before(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = x.sin()
    x.add_(made.exp())
    return made


def _seen_before(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    turned = x.t().sin()
    x.add_(turned.exp())
    return turned


def _old_too(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    old = x.clone()
    x.add_(y.sin().exp())
    return old, x


def _a_number_follows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y.exp())
    return y.exp().sum().sin()


def _a_number_of_it_follows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    old = x.cos().sum() + y.exp().sum()
    x.add_(y.exp())
    return old.sin()


# A program, and which inputs each piece of the backend may write to, by output.
WRITES: dict[str, tuple[Callable[..., Any], list[dict[int, int]]]] = {
    "the last piece": (_last, [{0: 1}]),
    "a piece follows": (_followed, [{}]),
    "another has read the old value": (_read_before, [{0: 1}]),
    "another may have a view of it": (_seen_before, [{}]),
    "the old value is a result, too": (_old_too, [{1: 0}]),
    "only a number follows": (_a_number_follows, [{1: 1}]),
    "a number of the old value follows": (_a_number_of_it_follows, [{1: 2}]),
}


@pytest.mark.parametrize("case", WRITES)
def test_the_last_piece_may_write_to_inputs(case: str, installed: Registry) -> None:
    fn, wanted = WRITES[case]
    backend, told = filling("one", "exp", "add", "clone", "sum")
    installed.register_backend(backend)
    installed.register_backend(only("two", "sin"))
    arguments = [torch.rand(3, 3) for _ in range(4)]
    compiled = jitney.compile(fn, backend=["one", "two"])
    for x, y in (arguments[:2], arguments[2:]):
        mine, other = x.clone(), x.clone()
        with torch.no_grad():
            assert all(torch.equal(a, b) for a, b in zip(_tuple(compiled(mine, y)), _tuple(fn(other, y)), strict=True))
        assert torch.equal(mine, other)
    assert told == wanted


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def test_inputs_are_written_once_where_arithmetic_after_the_last_piece_raises(
    installed: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "capture_scalar_outputs", True)
    backend, _ = filling("one", "exp", "add", "clone", "sum")
    installed.register_backend(backend)
    installed.register_backend(only("two", "sin"))

    def fn(x: torch.Tensor, y: torch.Tensor, t: torch.Tensor) -> tuple[float, torch.Tensor]:
        x.add_(y.sin().exp())
        t.add_(1)
        return math.sqrt(t.item() - 4), t

    compiled = jitney.compile(fn, backend=["one", "two"])
    for number in (9.0, -1.0):
        results = []
        for run in (fn, compiled):
            x = torch.zeros(3)
            try:
                made: object = run(x, torch.ones(3), torch.tensor(number))
            except ValueError as error:
                made = type(error)
            results.append((x, made))
        assert torch.equal(results[0][0], results[1][0]) and results[0][1] == results[1][1]
