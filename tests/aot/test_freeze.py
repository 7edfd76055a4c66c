"""``options={"freeze": True}``: eager's numbers; what depends on parameters only is guarded and gone from the graph."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn

import jitney
from jitney import events
from jitney.aot import freeze
from jitney.backends import Backend, CompileRequest, hookimpl, registry
from jitney.errors import InvalidOption, SavedError

aten = torch.ops.aten
BACKENDS = ["aot_eager", "llvm_cpu"]


class Fused(nn.Module):
    """One projection from three weights, as attention writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Parameter(torch.randn(6, 6)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.cat([self.q, self.k, self.v])
        return nn.functional.linear(x, weight * weight.norm(dim=1, keepdim=True).rsqrt())


class FrozenNorm(nn.Module):
    """Batch norm whose statistics are buffers, as detectors have it."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("weight", "bias", "mean", "var"):
            self.register_buffer(name, torch.rand(5) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias, mean, var = (getattr(self, n).view(1, -1, 1, 1) for n in ("weight", "bias", "mean", "var"))
        scale = weight * (var + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


class Positions(nn.Module):
    """What is added to each position depends on the weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(12, 6), nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.table(torch.arange(x.shape[1])))


def images(*more: nn.Module, channels: int = 3, **conv: Any) -> nn.Module:
    net = nn.Sequential(nn.Conv2d(channels, 5, 3, **conv), *more)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
            nn.init.uniform_(module.weight, -2, 2)
            nn.init.uniform_(module.bias)
    return net


class Affine(nn.Module):
    """Arithmetic on each channel, in every order."""

    def __init__(self, net: nn.Module, *sizes: int) -> None:
        super().__init__()
        self.net = net
        self.a, self.b = nn.Parameter(torch.rand(sizes) + 0.5), nn.Parameter(torch.rand(sizes) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a * self.net(x) / self.b - 0.25
        return (self.b + y * 2).relu()


PICTURE = (2, 3, 6, 6)
# A module, the size of its input, how many operations go into weights.
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "a batch norm after a convolution": (lambda: images(nn.BatchNorm2d(5), nn.ReLU()), PICTURE, 2),
    "of groups, without a bias": (
        lambda: images(nn.BatchNorm2d(5), channels=5, groups=5, bias=False),
        (2, 5, 6, 6),
        2,
    ),
    "after a transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 5, 3, stride=2), FrozenNorm()),
        PICTURE,
        2,
    ),
    "buffers as statistics": (lambda: images(FrozenNorm(), padding=1), PICTURE, 2),
    "a batch norm that two read": (lambda: Twice(), PICTURE, 0),
    "arithmetic after a convolution": (lambda: Affine(images(), 5, 1, 1), PICTURE, 5),
    "arithmetic after a linear layer": (lambda: Affine(nn.Linear(6, 4), 4), (3, 6), 5),
    "arithmetic that is not of channels": (lambda: Affine(images(), 4), PICTURE, 0),
    "a projection made of three": (Fused, (4, 6), 0),
    "positions": (Positions, (2, 7, 6), 0),
    "a batch norm before": (
        lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4), nn.Softmax(-1)),
        (4, 6),
        0,
    ),
}


class Twice(nn.Module):
    """The result of the convolution is used beside the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.norm(y) + y


def told(listened: list[Any]) -> list[str]:
    """What was said of freezing."""
    return [row for e in listened if isinstance(e, events.Told) and e.title == "freeze" for row in e.rows]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_numbers_are_eagers_before_and_after_parameters_change(name: str, backend: str) -> None:
    make, size, merged = CASES[name]
    net = make().eval()
    x = torch.randn(size)
    heard: list[Any] = []
    with torch.no_grad(), events.listen(heard.append):
        compiled = jitney.compile(net, backend=backend, options={"freeze": True})
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        if backend == "llvm_cpu":  # which takes batch norms apart
            assert f"{merged} operations merged" in told(heard)[0], told(heard)
        torch.testing.assert_close(compiled(-x), net(-x), rtol=1e-4, atol=1e-5)
        assert sum(isinstance(e, events.FrameCaptured) for e in heard) == 1
        for parameter in [*net.parameters(), *net.buffers()]:
            if parameter.is_floating_point():
                parameter.mul_(1.5)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


class Looks:
    """A backend that keeps the graphs that it has got."""

    def __init__(self) -> None:
        self.graphs: list[fx.Graph] = []
        self.backend = Backend("looks", self.compile, level="aten")

    def compile(self, module: fx.GraphModule, inputs: Any, request: CompileRequest) -> Any:
        self.graphs.append(module.graph)
        return module.forward

    def frozen(self, net: nn.Module, *inputs: torch.Tensor) -> Any:
        """The module compiled, once its result was compared."""
        compiled = jitney.compile(net, backend=self.backend, options={"freeze": True})
        with torch.no_grad():
            torch.testing.assert_close(compiled(*inputs), net(*inputs), rtol=1e-4, atol=1e-5)
        return compiled


def operators(graph: fx.Graph) -> list[Any]:
    return [node.target for node in graph.nodes if node.op == "call_function"]


def test_what_depends_on_parameters_only_is_no_part_of_the_graph() -> None:
    looks = Looks()
    looks.frozen(Fused(), torch.randn(4, 6))
    assert set(operators(looks.graphs[0])) <= {aten.mm.default, aten.t.default}
    looks.frozen(Affine(images().eval(), 5, 1, 1), torch.randn(PICTURE))
    assert operators(looks.graphs[1]) == [aten.convolution.default, aten.relu.default]


CHANGES: dict[str, Callable[[Fused], Any]] = {
    "written to": lambda net: nn.init.ones_(net.q),
    "loaded": lambda net: net.load_state_dict({n: p + 1 for n, p in net.state_dict().items()}),
    "replaced": lambda net: setattr(net, "k", nn.Parameter(torch.ones(6, 6))),
    "given other memory": lambda net: setattr(net.v, "data", torch.ones(6, 6)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_parameter_that_changes_is_noticed_and_named(change: str) -> None:
    net, x, looks = Fused(), torch.randn(4, 6), Looks()
    compiled = looks.frozen(net, x)
    CHANGES[change](net)
    heard: list[Any] = []
    with torch.no_grad(), events.listen(heard.append):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), net(x))
    (again,) = [e for e in heard if isinstance(e, events.Recompiled)]
    assert "whose numbers are in the graph (options={'freeze': True}), is as it was" in again.guard
    assert again.found == ("another tensor" if change == "replaced" else "written to since")
    assert len(looks.graphs) == 2


def step(net: nn.Module, compiled: bool = False) -> None:
    """One step of an optimizer that writes to parameters without counting it."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, fused=True)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    versions = [p._version for p in net.parameters()]
    (jitney.compile(optimizer.step, backend="eager", fullgraph=True) if compiled else optimizer.step)()
    assert versions == [p._version for p in net.parameters()]


def move(net: Fused) -> None:
    """Other numbers where these were: memory that is given back is given out again."""
    memory = np.frombuffer(MEMORY, np.float32)
    net.q.data = torch.ones(6, 6)
    memory[:] = memory + 1
    net.q.data = torch.from_numpy(memory).view(6, 6)


MEMORY = bytearray(6 * 6 * 4)
UNCOUNTED: dict[str, Callable[[Any], Any]] = {
    "a fused optimizer": step,
    "a fused optimizer that is compiled": lambda net: step(net, compiled=True),
    "other memory at the same address": move,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", UNCOUNTED)
def test_what_writes_without_counting_is_noticed(change: str, backend: str) -> None:
    net, x = Fused(), torch.randn(4, 6)
    UNCOUNTED[change](net)
    compiled = jitney.compile(net, backend=backend, options={"freeze": True})
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        UNCOUNTED[change](net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


def test_statistics_that_a_batch_norm_writes_to_are_compared() -> None:
    net, x, heard = images(nn.BatchNorm2d(5)).eval(), torch.randn(PICTURE), list[Any]()
    compiled = jitney.compile(net, backend="llvm_cpu", options={"freeze": True})
    with torch.no_grad(), events.listen(heard.append):
        for _ in range(3):
            compiled(x)
        assert not [e for e in heard if isinstance(e, events.Recompiled)]
        version = net[1].running_var._version
        net.train()(x * 3 + 1)
        net.eval()
        assert net[1].running_var._version == version
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    (again,) = [e for e in heard if isinstance(e, events.Recompiled)]
    assert "running_mean" in again.guard and again.found == "written to since"


class Gives(nn.Module):
    """Results that depend on parameters alone, views of them among these."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 4))
        self.register_buffer("b", torch.randn(6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        k = self.w * 2
        first, second = k.split(3)
        item = (self.b + 1).unbind()[1]
        return first, second, item, k.reshape(24), k.t(), self.b.clone(), self.w.exp().t().contiguous(), x + k[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_call_gives_the_caller_tensors_of_its_own(backend: str) -> None:
    net, heard = Gives(), list[Any]()
    net.b[0] = torch.nan  # is what it was
    compiled = jitney.compile(net, backend=backend, options={"freeze": True})
    with torch.no_grad(), events.listen(heard.append):
        for _ in range(3):
            found, wanted = compiled(torch.ones(4)), net(torch.ones(4))
            torch.testing.assert_close(found, wanted, equal_nan=True)
            assert [t.stride() for t in found] == [t.stride() for t in wanted]
            for tensor in (*found, *wanted):
                tensor.mul_(3)
            torch.testing.assert_close(found, wanted, equal_nan=True)  # views of one another, as eager's are
    assert not told(heard)[0].startswith("0 ") and not [e for e in heard if isinstance(e, events.Recompiled)]


class After(nn.Module):
    """A linear layer, then some arithmetic."""

    def __init__(self, arithmetic: Callable[[torch.Tensor], torch.Tensor], size: float) -> None:
        super().__init__()
        self.layer, self.arithmetic = nn.Linear(4, 3), arithmetic
        nn.init.constant_(self.layer.weight, size)
        nn.init.zeros_(self.layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.arithmetic(self.layer(x))


# What arithmetic does after the layer, the size of its weights, that of what comes in.
EXTREMES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "a division by zero": (lambda y: y / 0.0, 1.0, 1.0),
    "weights that would overflow": (lambda y: y * 1e30, 1e20, 1e-30),
    "weights that would vanish": (lambda y: y * 1e-30, 1e-20, 1e35),
    "one after the other": (lambda y: y * 1e-30 * 1e30, 1.0, 1.0),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_weights_stay_as_they_are_where_new_ones_would_not_fit(name: str) -> None:
    arithmetic, weight, size = EXTREMES[name]
    net, x = After(arithmetic, weight), torch.full((2, 4), size)
    compiled = jitney.compile(net, backend="aot_eager", options={"freeze": True})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=0)


class Writes(nn.Module):
    """A batch norm in training, and what reads its statistics then."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.sin()) + self.norm.running_mean * 2


def test_pieces_of_a_graph_that_writes_are_not_frozen() -> None:
    def everywhere(graph: Any, inputs: Any, request: Any, places: Any) -> list[Any]:
        return list(places)

    cutter = SimpleNamespace(jitney_split_graph=hookimpl(everywhere))
    registry.register_extension(cutter, "cutter")
    heard: list[Any] = []
    try:
        for net, lines in ((Writes(), ["not frozen: an extension cuts it into pieces, and it writes to tensors"]),
                           (Fused(), None)):  # fmt: skip
            twin, x = copy.deepcopy(net), torch.randn(4, 6)
            compiled = jitney.compile(net, backend="aot_eager", options={"freeze": True})
            with torch.no_grad(), events.listen(heard.append):
                for _ in range(3):
                    torch.testing.assert_close(compiled(x), twin(x))
            assert lines is None or told(heard) == lines
    finally:
        registry.unregister_extension(cutter)
    assert any("values computed from" in line and not line.startswith("0 ") for line in told(heard))


def test_of_a_long_chain_only_the_end_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.rand(300, 300))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            w = self.w
            for _ in range(20):
                w = w / w.sum(0)
            return x @ w

    held: list[int] = []
    merge = freeze._Freezer.merge

    def counted(work: Any) -> int:
        held.append(sum(t.nbytes for t in work.values.values()))
        return merge(work)

    monkeypatch.setattr(freeze._Freezer, "merge", counted)
    net, x = Chain(), torch.randn(2, 300)
    with torch.no_grad():
        torch.testing.assert_close(jitney.compile(net, backend="aot_eager", options={"freeze": True})(x), net(x))
    assert 0 < held[0] < 3 * net.w.nbytes


def test_only_what_was_computed_with_is_asked() -> None:
    net, x, looks = nn.Sequential(nn.Linear(6, 6), Fused()), torch.randn(2, 6), Looks()
    compiled = looks.frozen(net, x)
    nn.init.ones_(net[0].weight)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x))
    assert len(looks.graphs) == 1


def test_what_trains_is_not_frozen_and_says_so() -> None:
    net, x = images(nn.BatchNorm2d(5)), torch.randn(PICTURE)
    twin = copy.deepcopy(net)
    heard: list[Any] = []
    compiled = jitney.compile(net, backend="llvm_cpu", options={"freeze": True})
    with events.listen(heard.append):
        compiled(x).sigmoid().sum().backward()
    assert told(heard) == ["not frozen: it trains (torch.no_grad() and eval() make it an inference graph)"]
    twin(x).sigmoid().sum().backward()
    torch.testing.assert_close([p.grad for p in net.parameters()], [p.grad for p in twin.parameters()])
    with torch.no_grad():  # statistics that the graph writes to are no constants
        for _ in range(2):
            torch.testing.assert_close(compiled(x), twin(x))
            torch.testing.assert_close(net[1].running_mean, twin[1].running_mean)


def test_parameters_of_functions_and_other_tensors() -> None:
    weight, plain = nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x @ (weight.exp() + plain.exp())

    compiled, x = jitney.compile(fn, backend="aot_eager", options={"freeze": True}), torch.randn(2, 4)
    with torch.no_grad():
        for value in (1.0, 2.0):
            torch.testing.assert_close(compiled(x), fn(x))
            plain.fill_(value)  # is no parameter, so its numbers are read at each call
        nn.init.ones_(weight)
        torch.testing.assert_close(compiled(x), fn(x))


def test_what_would_grow_or_is_random_is_computed_at_each_call() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.row = nn.Parameter(torch.randn(400))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.row[:, None] * self.row + nn.functional.dropout(self.row, 0.5)

    net, looks = Grows(), Looks()
    with torch.no_grad():
        torch.manual_seed(0)
        found = jitney.compile(net, backend=looks.backend, options={"freeze": True})(torch.zeros(400, 400))
        torch.manual_seed(0)
        torch.testing.assert_close(found, net(torch.zeros(400, 400)))
    (graph,) = looks.graphs
    assert len(operators(graph)) > 4 and not [n for n in graph.nodes if n.op == "get_attr"]


def test_under_autocast_and_in_inference_mode() -> None:
    net, x = images(nn.BatchNorm2d(5)).eval(), torch.randn(PICTURE)
    compiled = jitney.compile(net, backend="llvm_cpu", options={"freeze": True})
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x), net(x), rtol=3e-2, atol=3e-2)


def test_compiled_code_keeps_no_model_alive() -> None:
    net = images(nn.BatchNorm2d(5)).eval()
    compiled = jitney.compile(nn.Module.__call__, backend="llvm_cpu", options={"freeze": True})
    with torch.no_grad():
        compiled(net, torch.randn(PICTURE))
    gone = weakref.ref(net[0].weight)
    del net
    gc.collect()
    assert gone() is None


def test_what_is_frozen_stays_in_its_process(tmp_path: Any) -> None:
    heard: list[Any] = []
    compiled = jitney.compile(Fused(), backend="aot_eager", options={"freeze": True})
    with jitney.config.patch(cache=True, cache_dir=str(tmp_path)), torch.no_grad(), events.listen(heard.append):
        compiled(torch.randn(4, 6))
    (stored,) = [e.reason for e in heard if isinstance(e, events.FrameStored)]
    assert stored == "the numbers of parameters are in its graph (options={'freeze': True})"
    with pytest.raises(SavedError, match="the numbers of parameters are in its code"):
        jitney.save(compiled, tmp_path / "file")


def test_a_backend_that_takes_captured_graphs_says_that_it_does_nothing() -> None:
    with pytest.warns(UserWarning, match="backend 'eager' takes graphs as they were captured: option 'freeze' does"):
        jitney.compile(Fused(), backend="eager", options={"freeze": True})
    with pytest.raises(InvalidOption, match="'freeze' of jitney's own is bool"):
        jitney.compile(Fused(), backend="eager", options={"freeze": 1})


def test_with_symbolic_sizes_several_backends_and_a_graph_break() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = images(nn.BatchNorm2d(5)), FrozenNorm()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            jitney.graph_break()
            return self.second(y)

    for net in (images(nn.BatchNorm2d(5)).eval(), Broken().eval()):
        compiled = jitney.compile(net, backend="auto", dynamic=True, options={"freeze": True})
        heard: list[Any] = []
        with torch.no_grad(), events.listen(heard.append):
            for batch in (2, 3, 5):
                x = torch.randn(batch, 3, 6 + batch, 6)
                torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
            captured = sum(isinstance(e, events.FrameCaptured) for e in heard)
            for parameter in net.parameters():
                parameter.add_(0.5)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        assert captured == (2 if isinstance(net, Broken) else 1)
        assert "2 operations merged into weights" in told(heard)[0]


def test_each_graph_beside_eager() -> None:
    net, x = images(nn.BatchNorm2d(5)).eval(), torch.randn(PICTURE)
    compiled = jitney.compile(net, backend="llvm_cpu", options={"freeze": True, "crosscheck": True})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("freeze", [True, False])
def test_tensors_may_be_swapped_and_that_is_seen(freeze: bool) -> None:
    """``swap_tensors`` refuses tensors to which somebody holds a weak reference."""
    module = images(nn.BatchNorm2d(5)).eval()
    conv, norm = module[0], module[1]  # type: ignore[index]
    compiled = jitney.compile(module, backend="aot_eager", options={"freeze": freeze}, dynamic=False)
    x = torch.rand(PICTURE)
    with torch.no_grad():
        compiled(x)
        for tensor in (conv.weight, norm.bias, norm.running_mean):
            other = (
                nn.Parameter(torch.rand_like(tensor)) if isinstance(tensor, nn.Parameter) else torch.rand_like(tensor)
            )
            for _ in range(2):  # there and back
                torch.utils.swap_tensors(tensor, other)
                torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
