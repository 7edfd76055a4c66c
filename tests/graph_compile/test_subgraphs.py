"""Captured graphs in pieces: where they may be cut, and that the pieces do what the whole does."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jitney
from jitney.backends import hookimpl, registry


@pytest.fixture
def everywhere():
    """An extension that cuts every graph wherever it may be cut; ``.places`` are the operations after each cut."""
    found = SimpleNamespace(places=[])

    def jitney_split_graph(graph, inputs, request, places):
        found.places.append([node.name for node in places])
        return places

    found.jitney_split_graph = hookimpl(jitney_split_graph)
    registry.register_extension(found, "everywhere")
    yield found
    registry.unregister_extension(found)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x))) + x


class Shared(Plain):
    """One weight in two pieces, and a view that both see."""

    def forward(self, x):
        turned = self.a.weight.t()
        return self.b(F.gelu(self.a(x))) @ turned, turned.sum()


class Normed(nn.Module):
    """Buffers that are written to; values that are no tensors; writes to memory that both sides would see."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        left, right = x.chunk(2, dim=1)
        left = left * 2
        left.add_(1)
        return self.out(torch.cat([left, right], 1).mean((2, 3)))


class Recurrent(nn.Module):
    """A tuple of results, and a state that changes within the forward."""

    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 4)

    def forward(self, x):
        y, h = self.gru(x)
        with torch.no_grad():
            scale = y.abs().amax()
        return self.out(y) / scale + h.sum()


class Cast(Plain):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.b(torch.tanh(self.a(x)))
        return y.float() + x


class Checkpointed(Plain):
    def forward(self, x):
        y = torch.utils.checkpoint.checkpoint(lambda v: self.b(torch.sigmoid(self.a(v))), x, use_reentrant=False)
        return self.b(self.a(y))


SHAPES = {Normed: (2, 3, 6, 6), Recurrent: (2, 3, 4)}


def step(module, x):
    out = module(x)
    sum((o.float() ** 2).sum() for o in (out if isinstance(out, tuple) else (out,))).backward()
    return out


CASES = [(kind, b) for kind in (Plain, Shared, Normed, Recurrent, Cast) for b in ("eager", "aot_eager")]


@pytest.mark.parametrize(("kind", "backend"), [*CASES, (Checkpointed, "aot_eager")])
def test_the_pieces_do_what_the_whole_does(everywhere, kind, backend):
    torch.manual_seed(0)
    eager = kind()
    module = copy.deepcopy(eager)
    compiled = jitney.compile(module, backend=backend, fullgraph=True)
    for _ in range(2):
        x, y = torch.randn(SHAPES.get(kind, (3, 4))), None
        y = x.clone().requires_grad_()
        x.requires_grad_()
        torch.testing.assert_close(step(compiled, y), step(eager, x))
        torch.testing.assert_close(y.grad, x.grad)
    for (name, p), (_, q) in zip(module.named_parameters(), eager.named_parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, msg=name)
    for (name, p), (_, q) in zip(module.named_buffers(), eager.named_buffers(), strict=True):
        torch.testing.assert_close(p, q, msg=name)
    assert everywhere.places[0]


def test_no_cut_parts_writes_from_what_sees_them(everywhere):
    jitney.compile(Normed(), backend="eager", fullgraph=True)(torch.randn(2, 3, 6, 6))
    assert everywhere.places == [["add_", "batch_norm", "chunk", "mul", "cat", "mean", "linear"]]


def test_a_checkpointed_region_stays_together(everywhere):
    jitney.compile(Checkpointed(), backend="aot_eager", fullgraph=True)(torch.randn(3, 4))
    assert everywhere.places == [["linear_2", "linear_3"]]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_that_are_symbols_reach_every_piece(everywhere, backend):
    def run(x, w):
        y = (x @ w).relu().reshape(-1)
        return (y * 2).reshape(x.shape[0], -1) + x.shape[0]

    compiled = jitney.compile(run, backend=backend, dynamic=True, fullgraph=True)
    for n in (3, 5, 7):
        x, w = torch.randn(n, 4), torch.randn(4, 2, requires_grad=True)
        torch.testing.assert_close(compiled(x, w), run(x, w))
    assert len(everywhere.places) == 1 and len(everywhere.places[0]) >= 4


def test_each_piece_has_a_backward_of_its_own(everywhere):
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    order = []
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: order.append(name))
    out = jitney.compile(module, backend="aot_eager")(torch.randn(2, 4))
    seen = []
    grad_fn = out.grad_fn
    while grad_fn is not None and "graph" in type(grad_fn).__name__:
        seen.append(type(grad_fn).__name__)
        grad_fn = next((f for f, _ in grad_fn.next_functions if f is not None and "graph" in type(f).__name__), None)
    out.sum().backward()
    assert len(seen) == 3
    assert [name[0] for name in order] == ["2", "2", "1", "1", "0", "0"]


def test_values_that_no_later_piece_reads_are_let_go(everywhere):
    seen = []

    def backend(graph, inputs):
        def run(*args):
            seen.append(len(args))
            return graph(*args)

        return run

    compiled = jitney.compile(lambda x: x.sin().cos().tan(), backend=backend)
    compiled(torch.ones(2))
    assert seen == [1, 1, 1]
    text = jitney._util.generated_code.text_of(compiled._jitney_root.functions[0].__globals__["_graph"]).source
    assert "del a0\n" in text and "del v0\n" in text


def test_cutting_where_it_may_not_be_cut_is_refused_by_name():
    def jitney_split_graph(graph):
        return [next(node for node in graph.graph.nodes if node.op == "placeholder")]

    bad = SimpleNamespace(jitney_split_graph=hookimpl(jitney_split_graph))
    registry.register_extension(bad, "butcher")
    try:
        with pytest.raises(jitney.errors.BackendFailed, match="extension butcher: returned nodes that are not among"):
            jitney.compile(lambda x: x.sin().cos(), backend="eager")(torch.ones(2))
    finally:
        registry.unregister_extension(bad)
