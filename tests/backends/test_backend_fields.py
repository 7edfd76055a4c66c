"""What a backend's fields other than ``compile`` raise, or return against their descriptions, names them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx

import jitney
from jitney import events
from jitney.backends import Backend, Registry, register_backend, registry
from jitney.backends.backend_fields import rules_by_device
from jitney.config import config
from jitney.errors import BackendFailed

X = torch.linspace(0, 1, 4)


def raising(*args: Any) -> Any:
    raise KeyError("no such operator")


def other_results(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.target is torch.ops.aten.exp.default:
            node.meta["val"] = node.meta["val"].double()


def without_results(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.graph_copy(module.graph, {})
    graph.output(())
    return fx.GraphModule(module, graph)


def plain(graph: fx.GraphModule, inputs: Any, request: Any) -> Callable[..., Any]:
    return graph.forward


def program(x: torch.Tensor) -> torch.Tensor:
    return x.sin().exp()


LINE = f"{__file__}:{program.__code__.co_firstlineno + 1}, in program: return x.sin().exp()"
WHILE = "while compiling the inference graph of program"


@pytest.fixture
def patient() -> Iterator[Callable[..., None]]:
    """Registers a backend ``patient`` with these fields, for one test."""

    def put(**fields: Any) -> None:
        register_backend(Backend("patient", plain, level="aten", **fields))

    yield put
    registry.unregister_backend("patient")


SICK = {
    "decompositions": (
        {"decompositions": raising},
        f"backend patient: its field 'decompositions' raised KeyError: 'no such operator' ({WHILE})",
    ),
    "no table": (
        {"decompositions": lambda options: [torch.ops.aten.sin.default]},
        "backend patient: its field 'decompositions' returned [<OpOverload(op='aten.sin', overload='default')>], "
        f"which is no table ({WHILE})",
    ),
    "captured_pass": (
        {"captured_pass": raising},
        f"backend patient: its field 'captured_pass' raised KeyError: 'no such operator' ({WHILE})",
    ),
    "a pass that drops a result": (
        {"captured_pass": lambda module, inputs, trace, options: without_results(module)},
        f"backend patient: its field 'captured_pass' returned a graph with other inputs or results ({WHILE})",
    ),
    "joint_pass": (
        {"joint_pass": raising},
        f"backend patient: its field 'joint_pass' raised KeyError: 'no such operator' ({WHILE})",
    ),
    "a pass that changes results": (
        {"joint_pass": lambda graph, options: other_results(graph)},
        f"backend patient: its field 'joint_pass' returned with results of another dtype, shape or stride ({WHILE})",
    ),
    "a rule": (
        {"decompositions": {torch.ops.aten.sin.default: raising}},
        "backend patient: its field 'decompositions' raised KeyError: 'no such operator' "
        f"(the rule for aten.sin.default, {WHILE})",
    ),
    "supports": (
        {"supports": raising},
        "backend patient: its field 'supports' raised KeyError: 'no such operator' "
        f"(asked about aten.sin.default, {WHILE})",
    ),
}


@pytest.mark.parametrize(("fields", "said"), SICK.values(), ids=SICK)
@pytest.mark.parametrize("backend", ["patient", ["patient", "aot_eager"]], ids=["alone", "of several"])
def test_a_part_that_raises_is_named(
    fields: dict[str, Any], said: str, backend: Any, patient: Callable[..., None]
) -> None:
    patient(**fields)
    with pytest.raises(BackendFailed) as caught, torch.no_grad():
        jitney.compile(program, backend=backend)(X)
    first, second, third, *_ = str(caught.value).splitlines()
    assert (first, second) == (LINE, said)
    assert third == "try: backend='eager', to see whether the program runs without it"
    assert isinstance(caught.value.__cause__, KeyError) or "returned" in said


@pytest.mark.parametrize(("fields", "said"), SICK.values(), ids=SICK)
def test_with_suppress_errors_the_graph_runs_as_it_is(
    fields: dict[str, Any], said: str, patient: Callable[..., None]
) -> None:
    patient(**fields)
    with config.patch(suppress_errors=True), pytest.warns(UserWarning, match="backend patient: its field"):
        result = jitney.compile(program, backend="patient")(X)
    assert torch.equal(result, program(X))


def test_the_package_of_an_installed_backend_is_named(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from jitney.backends import Backend\njitney_hook_api = 1\n"
        "backend = Backend('sick', lambda g, inputs, request: g.forward, level='aten', supports=lambda n: 1 / 0)"
    )
    install("sickpkg", source, backends={"sick": "sickpkg:backend"})
    fresh = Registry()
    for module in ("resolve", "backend_fields"):
        monkeypatch.setattr(importlib.import_module(f"jitney.backends.{module}"), "registry", fresh)
    with pytest.raises(BackendFailed, match="backend sick of package sickpkg: its field 'supports' raised ZeroDiv"):
        jitney.compile(program, backend="sick")(X)
    mine = Backend("sick", plain, level="aten", supports=raising)
    with pytest.raises(BackendFailed, match="backend sick: its field"):
        jitney.compile(program, backend=mine)(X)


def test_a_part_that_raises_in_the_backward_is_named(patient: Callable[..., None]) -> None:
    patient(supports=lambda node: node.target is not torch.ops.aten.cos.default or raising())
    x = X.clone().requires_grad_()
    result = jitney.compile(lambda x: x.sin().sum(), backend="patient")(x)
    with pytest.raises(BackendFailed, match=r"'supports' raised KeyError.*aten.cos.default, .*the backward graph"):
        result.backward()


def test_a_rule_that_cannot_be_traced_leaves_the_graph_as_captured(patient: Callable[..., None]) -> None:
    def rule(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("only of real numbers")

    patient(decompositions={torch.ops.aten.sin.default: rule})
    seen: list[Any] = []
    with events.listen(seen.append):
        assert torch.equal(jitney.compile(program, backend="patient")(X), program(X))
    (kept,) = (event for event in seen if isinstance(event, events.GraphKept))
    assert "only of real numbers" in kept.reason


@pytest.mark.parametrize("lacks", [raising, lambda: "no fuel", lambda: [3], lambda: None])
def test_auto_does_without_a_backend_whose_lacks_is_ill(lacks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Registry()
    monkeypatch.setattr(own, "_entry_points", lambda group: {})
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", own)
    own.register_backend(Backend("llvm_cpu", plain, level="aten", lacks=lacks, auto_priority=1))
    with pytest.warns(UserWarning, match="does without llvm_cpu, eagerly: its field 'lacks' r"):
        assert torch.equal(jitney.compile(program, backend="auto")(X), program(X))


def test_bisect_blames_the_backend_whose_decompositions_raise(patient: Callable[..., None]) -> None:
    patient(decompositions=raising)
    found = jitney.explain(program, backend="patient", bisect=True)(X)
    assert "guilty: backend patient" in str(found)


def with_cosines(module: fx.GraphModule, seen: list[Any]) -> fx.GraphModule:
    """The graph with cosines instead of sines."""
    graph = fx.Graph()
    result = graph.graph_copy(module.graph, {})
    graph.output(result)
    for node in graph.nodes:
        seen.append(node.target)
        if node.target == "sin":
            node.target = "cos"
    return fx.GraphModule(module, graph)


def test_what_a_captured_pass_returns_is_traced(patient: Callable[..., None]) -> None:
    seen: list[Any] = []
    patient(captured_pass=lambda module, inputs, trace, options: with_cosines(module, seen))
    x = X.clone().requires_grad_()
    result = jitney.compile(program, backend="patient")(x)
    torch.testing.assert_close(result, x.cos().exp())
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], -x.sin() * x.cos().exp())
    assert "sin" in seen  # as the user called it, no operator


def test_a_captured_pass_may_ask_what_the_graph_computes(patient: Callable[..., None]) -> None:
    traced: list[Any] = []

    def ask(module: fx.GraphModule, inputs: Any, trace: Any, options: Any) -> fx.GraphModule:
        traced.append(trace(module, inputs))
        return module

    patient(captured_pass=ask)
    x = X.clone().requires_grad_()
    torch.testing.assert_close(jitney.compile(program, backend="patient")(x), program(x))
    (found,) = traced
    assert [n.target for n in found.graph.nodes if n.op == "call_function"][:2] == [
        torch.ops.aten.sin.default,
        torch.ops.aten.exp.default,
    ]
    assert len(found.results) == len(found.gradients) == 1 and found.gradients[0] is not None


@pytest.mark.parametrize("write", [True, False], ids=["write", "random"])
def test_what_is_more_than_a_computation_is_not_said(write: bool, patient: Callable[..., None]) -> None:
    traced: list[Any] = []

    def ask(module: fx.GraphModule, inputs: Any, trace: Any, options: Any) -> fx.GraphModule:
        traced.append(trace(module, inputs))
        return module

    patient(captured_pass=ask)
    jitney.compile(lambda x: x.add_(1) * 2 if write else torch.rand_like(x) * x, backend="patient")(X.clone())
    assert traced == [None]


def test_of_several_backends_an_operator_has_the_rule_of_whose_devices_it_is_on() -> None:
    """Tensors without memory stand for those of another device; one number of the CPU's goes with them."""
    aten, x, y = torch.ops.aten, torch.ones(2), torch.ones(2, device="meta")

    def shared(x: torch.Tensor) -> str:
        return "both"

    backends = [Backend(name, plain, level="aten", device_types=(name,)) for name in ("cpu", "meta")]
    tables = [
        {aten.relu.default: shared, aten.add.Tensor: lambda *_: "cpu", aten.empty.memory_format: lambda *_: "cpu"},
        {aten.relu.default: shared, aten.add.Tensor: lambda *args: "meta", aten.celu.default: lambda *args: "meta"},
    ]  # fmt: skip
    rules = rules_by_device(backends, tables)
    assert rules[aten.relu.default] is shared
    assert [rules[aten.add.Tensor](t, 1) for t in (x, y)] == ["cpu", "meta"]
    assert rules[aten.add.Tensor](torch.ones(()), y) == "meta" and rules[aten.add.Tensor](torch.ones(()), x) == "cpu"
    assert rules[aten.celu.default](x) is NotImplemented and rules[aten.celu.default](y) == "meta"
    assert rules[aten.empty.memory_format]([2]) == "cpu"
    assert rules[aten.empty.memory_format]([2], device=torch.device("meta")) is NotImplemented
