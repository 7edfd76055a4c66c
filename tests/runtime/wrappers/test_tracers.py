"""torch's own tracers see the original: what they record holds no compiled code, whether it has run before or not."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import jitney

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*is_fx_tracing"),
]


class Model(nn.Module):
    """A layer and an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)) + 1


def plain(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2 + 1


def proxy() -> Any:
    return jitney.compile(Model(), backend="llvm_cpu")


KINDS: dict[str, Callable[[], Any]] = {
    "module": proxy,
    "module in place": lambda: jitney.compile(Model(), backend="llvm_cpu", inplace=True),
    "part": lambda: nn.Sequential(proxy(), nn.ReLU()),
    "leaf": lambda: nn.Sequential(jitney.compile(nn.Linear(4, 4), backend="llvm_cpu"), nn.ReLU()),
    "function": lambda: jitney.compile(plain, backend="llvm_cpu"),
    "forward": lambda: proxy().forward,
}


def x() -> torch.Tensor:
    return torch.ones(2, 4)


def of_make_fx(value: Any) -> Any:
    return make_fx(value)(x())


def of_export(value: Any) -> Any:
    return torch.export.export(value, (x(),)).module()


def of_strict_export(value: Any) -> Any:
    return torch.export.export(value, (x(),), strict=True).module()


TRACERS: dict[str, Callable[[Any], Any]] = {
    "jit.trace": lambda value: torch.jit.trace(value, (x(),)),
    "fx": torch.fx.symbolic_trace,
    "make_fx": of_make_fx,
    "export": of_export,
    "strict export": of_strict_export,
}


def operations(traced: Any) -> str:
    if isinstance(traced, torch.fx.GraphModule):
        return str([n.target for n in traced.graph.nodes])
    return str(traced.inlined_graph if isinstance(traced, nn.Module) else traced.graph)


def can(tracer: str, kind: str) -> bool:
    if "export" in tracer:
        takes_it = kind not in ("function", "forward")
        return takes_it and (tracer == "export" or kind == "module in place")  # TorchDynamo reads no proxies
    return not ("fx" in tracer and kind == "forward")  # nor does FX take bound methods


@pytest.mark.parametrize(("tracer", "kind"), [(t, k) for t in TRACERS for k in KINDS if can(t, k)])
@pytest.mark.parametrize("warm", [False, True])
def test_a_tracer_sees_the_original(tracer: str, kind: str, warm: bool) -> None:
    compiled = KINDS[kind]()
    if warm:
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                compiled(x())
    wanted, other = compiled(x()), torch.randn(2, 4)
    traced = TRACERS[tracer](compiled)
    if (tracer, kind) != ("fx", "leaf"):  # whose graph holds modules
        assert ("sin" if kind == "function" else "relu") in operations(traced).lower()
    torch.testing.assert_close(traced(x()), wanted)
    torch.testing.assert_close(traced(other), compiled(other))


def test_a_traced_module_is_saved_with_its_parameters() -> None:
    compiled = proxy()
    traced, file = torch.jit.trace(compiled, (x(),)), io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    loaded = torch.jit.load(file)
    assert list(loaded.state_dict()) == ["layer.weight", "layer.bias"]
    torch.testing.assert_close(loaded(x()), compiled(x()))


def test_modules_and_functions_are_scripted_as_their_originals() -> None:
    for compiled in (proxy(), jitney.compile(plain, backend="llvm_cpu")):
        torch.testing.assert_close(torch.jit.script(compiled)(x()), compiled(x()))


def test_a_class_of_proxies_has_the_forward_of_its_originals() -> None:
    assert type(proxy()).forward is Model.forward
