"""Regions around convolutions in channels_last: the same numbers, eager's strides outside, the format inside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

import jitney
from jitney.backends import Backend
from jitney_lowering import CHANNEL_REDUCTIONS, Convolution, channels_last, decompositions
from jitney_lowering.restride import restride

aten = torch.ops.aten


class Plain:
    """A backend that runs graphs as they are, after the pass: what stand-ins say of strides must be true of tensors."""

    def __init__(
        self,
        worth: Callable[[Convolution], float] = lambda convolution: 10.0,
        reading: tuple[Any, ...] = (),
        plain_weights: bool = False,
    ) -> None:
        self.graphs: list[fx.GraphModule] = []
        self.converted: list[int] = []
        self.worth = worth
        self.reading = reading
        self.plain_weights = plain_weights
        self.backend = Backend(
            "plain", self._compile, level="aten", decompositions=decompositions(), joint_pass=self._joint_pass
        )

    def _joint_pass(self, graph: fx.Graph, options: Any) -> None:
        self.converted.append(channels_last(graph, "cpu", self.worth, self.reading, self.plain_weights))

    def _compile(self, graph: fx.GraphModule, inputs: Any, request: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        promised = [node.meta["val"] if isinstance(node, fx.Node) else node for node in output.args[0]]

        def run(*args: Any) -> list[Any]:
            return [_as_promised(made, value) for made, value in zip(graph.forward(*args), promised, strict=True)]

        return run

    def formats(self, target: Any) -> list[bool]:
        """Of each call of an operator: is its (first) result in channels_last?"""
        values = [n.meta["val"] for graph in self.graphs for n in graph.graph.nodes if n.target is target]
        firsts = [v[0] if isinstance(v, (list, tuple)) else v for v in values]
        return [v is not None and v.stride()[1] == 1 for v in firsts]


def _as_promised(made: Any, value: Any) -> Any:
    """The result, which lies as its stand-in does, but for dimensions of one element."""
    if not isinstance(made, torch.Tensor) or not all(isinstance(n, int) for n in value.stride()):
        return made
    assert [a for a, n in zip(made.stride(), made.shape, strict=True) if n > 1] == [
        a for a, n in zip(value.stride(), value.shape, strict=True) if n > 1
    ]
    return restride(made, value.stride(), made.dtype)


class Residual(nn.Module):
    """Convolutions with what stands between them in networks for images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        self.gate = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return F.relu(y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True))) + x)


class Network(nn.Module):
    """A stem, blocks, a pool, a detour, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 8, 3, 2, 1), nn.Sequential(Residual(8), Residual(8))
        self.last, self.head = nn.Conv2d(16, 4, 1), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.blocks(self.stem(x))
        detour = F.interpolate(F.max_pool2d(x, 3, 2, 1), scale_factor=2)
        features = self.last(torch.cat([x, detour], 1))
        return features, self.head(features.mean((2, 3))), features.flatten(2).transpose(1, 2).softmax(-1)


def both(
    model: nn.Module, backend: Any, *args: torch.Tensor, train: bool, dynamic: bool | None = False, near: float = 2e-4
) -> None:
    """The compiled model's results, gradients and their strides are eager's."""
    models = [copy.deepcopy(model).train(train) for _ in range(2)]
    compiled = jitney.compile(models[0], backend=backend, dynamic=dynamic)
    given = [[a.clone().requires_grad_(train) for a in args] for _ in models]
    with torch.set_grad_enabled(train):
        results = [compiled(*given[0]), models[1](*given[1])]
    flat: list[list[torch.Tensor]] = [[*r] if isinstance(r, tuple) else [r] for r in results]
    if train:
        for tensors in flat:
            sum((t.double().square().mean() for t in tensors), torch.zeros(())).backward()
        for tensors, own, inputs in zip(flat, models, given, strict=True):
            tensors += [t.grad for t in (*own.parameters(), *inputs) if t.grad is not None]
            tensors += own.buffers()
    for ours, eagers in zip(*flat, strict=True):
        torch.testing.assert_close(ours, eagers, rtol=2e-3, atol=2e-4)
        assert _strides(ours) == _strides(eagers)


def _strides(x: torch.Tensor) -> list[int]:
    """Those that matter: of a dimension with one element autograd's formulas leave any."""
    return [step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_a_network_is_one_region(train: bool, dynamic: bool) -> None:
    plain = Plain()
    both(Network(), plain.backend, torch.randn(2, 3, 16, 12), train=train, dynamic=dynamic)
    assert plain.converted == [1]
    formats = plain.formats(aten.convolution.default)
    assert formats.count(True) >= 6  # the gates have one pixel, which has no format
    if train:
        assert plain.formats(aten.convolution_backward.default).count(True) >= 5


@pytest.mark.parametrize("train", [False, True])
def test_kernels_follow(train: bool) -> None:
    both(Network(), "llvm_cpu", torch.randn(2, 3, 16, 12), train=train)


def test_a_convolution_that_saves_less_than_conversions_cost_stays() -> None:
    plain = Plain(lambda convolution: 0.4)
    both(nn.Conv2d(4, 4, 3, padding=1), plain.backend, torch.randn(2, 4, 8, 8), train=False)
    assert plain.converted == [0] and plain.formats(aten.convolution.default) == [False]
    assert not any(plain.formats(aten.clone.default))


@pytest.mark.parametrize(("window", "plain_weights", "converted"), [(1, True, 1), (1, False, 0), (3, True, 0)])
def test_weights_that_a_library_reads_as_they_are_count(window: int, plain_weights: bool, converted: int) -> None:
    """Of many weights and few pixels: single pixels' are saved where images have channels last, others are copied."""
    plain = Plain(lambda convolution: 0.2, plain_weights=plain_weights)
    model = nn.Sequential(nn.Conv2d(64, 64, window, padding=window // 2), nn.Tanh(), nn.Conv2d(64, 64, 1))
    both(model, plain.backend, torch.randn(1, 64, 2, 2), train=True)
    assert plain.converted == [converted]


@pytest.mark.parametrize("reading", [(), CHANNEL_REDUCTIONS])
def test_reductions_read_values_as_they_lie(reading: tuple[Any, ...]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return F.silu(F.conv2d(x, weight)).mean((2, 3))

    weight, plain = torch.randn(8, 4, 3, 3), Plain(reading=reading)
    with torch.no_grad():
        x = torch.randn(2, 4, 9, 8)
        torch.testing.assert_close(jitney.compile(model, backend=plain.backend)(x), model(x))
    assert plain.converted == [1]
    copies = plain.formats(aten.clone.default)
    assert copies == ([True] if reading else [True, False])  # into the region, and out of it again


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [1, 2, (2, 3), (1, 3), (0, 2, 3), (1, 2, 3)])
@pytest.mark.parametrize("reduction", [torch.mean, torch.sum, torch.amax, torch.amin])
def test_reductions_of_regions(reduction: Callable[..., Any], dim: Any, keepdim: bool, dynamic: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 6, 1)

        def forward(self, x: torch.Tensor) -> Any:
            x = F.relu(self.first(x))
            found = reduction(x, dim, keepdim=keepdim)
            return self.last(x * found if keepdim else x), found

    for batch in (2, 3):
        both(Model(), "llvm_cpu", torch.randn(batch, 4, 9, 8), train=False, dynamic=dynamic)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_group_norms_between_convolutions(groups: int, train: bool) -> None:
    model = nn.Sequential(nn.Conv2d(4, 16, 3), nn.GroupNorm(groups, 16), nn.ReLU(), nn.Conv2d(16, 4, 1))
    plain = Plain(reading=CHANNEL_REDUCTIONS)
    both(model, plain.backend, torch.randn(2, 4, 9, 8), train=train)
    if not train:  # it is of the region
        assert plain.formats(aten.clone.default).count(True) == 1
    both(model, "llvm_cpu", torch.randn(2, 4, 9, 8), train=train)


def test_what_is_asked_of_a_convolution() -> None:
    asked = []
    plain = Plain(lambda convolution: asked.append(convolution) or 1.0)
    model = nn.Sequential(nn.Conv2d(4, 8, 1), nn.Conv2d(8, 8, 3, groups=2)).double()
    both(model, plain.backend, torch.randn(2, 4, 8, 8).double(), train=False)
    assert asked == [Convolution(1, 4, 8, 1, torch.float64), Convolution(2, 8, 8, 9, torch.float64)]


@pytest.mark.parametrize("train", [False, True])
def test_a_convolution_that_loses_more_stays_at_the_edge(train: bool) -> None:
    """Forward it does, backward it does not: what is kept between both has the region's format."""
    plain = Plain(lambda convolution: -9.0 if convolution.results == 2 and not convolution.backward else 10.0)
    layers = [nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1), nn.Tanh(), nn.Conv2d(2, 8, 3)]
    both(nn.Sequential(*layers), plain.backend, torch.randn(2, 4, 8, 8), train=train)
    assert plain.formats(aten.convolution.default) == [True, False, True]


def test_nothing_changes_for_what_is_in_channels_last_already() -> None:
    plain = Plain()
    x = torch.randn(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)
    both(nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU()), plain.backend, x, train=False)
    assert plain.converted == [0]


def test_the_option_switches_it_off() -> None:
    compiled = jitney.compile(nn.Conv2d(4, 4, 3), backend="llvm_cpu", options={"layout_optimization": False})
    graphs: list[fx.Graph] = []

    def look(event: Any) -> None:
        if isinstance(event, jitney.events.AtenGraph):
            graphs.append(event.graph)

    with jitney.events.listen(look), torch.no_grad():
        compiled(torch.randn(4, 4, 64, 64))
    assert graphs and not any(node.target is aten.clone.default for graph in graphs for node in graph.nodes)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_tensor_made_on_the_way_is_read_by_a_region(train: bool, dynamic: bool) -> None:
    class Scaled(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self[1](self[0](x))
            return torch.where(x > 0, x * torch.tensor([0.5, 1, 2, 1])[:, None, None], torch.tensor(0.5))

    model = Scaled(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    for backend in (Plain().backend, "llvm_cpu"):
        both(model, backend, torch.randn(2, 4, 12, 12), train=train, dynamic=dynamic)


@pytest.mark.parametrize("pool", [F.max_pool3d, F.avg_pool3d])
@pytest.mark.parametrize("batch", [[], [2]])
def test_a_pool_of_three_dimensions_is_of_a_region_of_such(pool: Callable[..., Any], batch: list[int]) -> None:
    both(_Apply(lambda x: pool(F.conv2d(x, WEIGHT).relu(), 2)), "llvm_cpu", torch.randn(2, 4, 12, 12), train=False)
    volume = nn.Sequential(nn.Conv3d(2, 4, 3), _Apply(lambda x: pool(x, 2)))
    plain = Plain()
    both(volume, plain.backend, torch.randn(*batch, 2, 8, 8, 8), train=True)
    assert plain.converted[0]


WEIGHT = torch.randn(4, 4, 3, 3)
STEPS: dict[str, Callable[[int], nn.Module]] = {
    "conv": lambda c: nn.Conv2d(c, c, 3, padding=1),
    "pointwise conv": lambda c: nn.Conv2d(c, c, 1, bias=False),
    "depthwise": lambda c: nn.Conv2d(c, c, 3, padding=1, groups=c),
    "transposed": lambda c: nn.ConvTranspose2d(c, c, 3, padding=1),
    "norm": lambda c: nn.BatchNorm2d(c, eps=0.1),  # or two of a few pixels multiply rounding errors by some hundreds
    "group norm": lambda c: nn.GroupNorm(2, c),
    "relu": lambda c: nn.ReLU(),
    "gelu": lambda c: nn.GELU(),
    "average": lambda c: nn.AvgPool2d((3, 1), 1, (1, 0)),  # (3, 3) would leave of 2 x 2 pixels rounding errors alone
    "greatest": lambda c: nn.MaxPool2d(3, 1, 1),
    "pad": lambda c: nn.ZeroPad2d((1, -1, 0, 0)),
    "shuffle": lambda c: nn.Sequential(nn.PixelUnshuffle(2), nn.PixelShuffle(2)),
    "chunks": lambda c: _Apply(lambda x: torch.cat([t * n for n, t in enumerate(x.chunk(2, 1), 1)], 1)),
    "rows": lambda c: _Apply(lambda x: x.flatten(2).softmax(-1).view(x.shape)),
    "last": lambda c: _Apply(lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],), eps=0.1).permute(0, 3, 1, 2)),
    "flipped": lambda c: _Apply(lambda x: x.flip(3) + x.roll(1, 2)),
    "column": lambda c: _Apply(lambda x: x * x.amax((2, 3), keepdim=True) - x[:, :, :1]),
    "turned": lambda c: _Apply(lambda x: x.transpose(2, 3).contiguous()),
}


class _Apply(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=6).filter(lambda names: any("conv" in n for n in names)),
    st.booleans(),
    st.sampled_from(["plain", "llvm_cpu"]),
    st.tuples(st.integers(1, 2), st.sampled_from([2, 4]), st.sampled_from([2, 6])),
)
def test_any_chain_gives_what_eager_gives(names: list[str], train: bool, backend: str, sizes: tuple[int, ...]) -> None:
    batch, channels, side = sizes
    torch.manual_seed(0)
    model = nn.Sequential(*(STEPS[name](channels) for name in names))
    x = torch.randn(batch, channels, side, side)
    both(model, Plain().backend if backend == "plain" else backend, x, train=train)
