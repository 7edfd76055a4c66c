"""Collectives in a backward graph: where they are, and that the numbers are those without them (one rank)."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import jitney
from jitney import events
from jitney_ddp_bucketing.in_graph import Slot, Variant, with_collectives

REDUCE, WAIT = "_c10d_functional.all_reduce.default", "_c10d_functional.wait_tensor.default"


@pytest.fixture
def alone():
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=10))
    yield
    dist.destroy_process_group()


def test_slots_follow_the_memory_of_the_parameter():
    assert Slot.of(3, torch.empty(2, 3)).order == (0, 1)
    assert Slot.of(3, torch.empty(2, 3).t()).order == (1, 0)
    assert Slot.of(3, torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)).order == (0, 2, 3, 1)
    assert Slot.of(3, torch.empty(4, 6)[:, ::2]).order == (0, 1)  # not dense
    assert Slot.of(3, torch.empty(())).numel == 1


def traced(function, *examples):
    """An ATen graph with a tuple as output, FakeTensors in its nodes."""
    seen = []

    def compile_graph(graph, inputs, request):
        seen.append(graph)
        return graph.forward

    jitney.compile(function, backend=jitney.backends.Backend("spy", compile_graph, level="aten"))(*examples)
    return seen[0]


def test_collectives_start_when_their_last_gradient_is_there(alone):
    """Buckets in order: what the first needs comes first, though the graph computes it last."""

    def gradients(x, y):
        early = x.sin()
        late = y.exp().cos()
        return late.t(), early, early * 2

    x, y = torch.randn(2, 3), torch.randn(3, 4)
    graph = traced(gradients, x, y)
    request = SimpleNamespace(gradients=(7, 5, 6), tell=lambda title, rows: None)
    slots = {at: Slot.of(at, value) for at, value in ((5, x), (6, x), (7, y.t()))}
    variant = Variant(((slots[5], slots[6]), (slots[7],)), dist.group.WORLD.group_name, 0.5)
    found = with_collectives(graph, request, variant)
    found.graph.lint()
    names = [str(n.target).removeprefix("aten.") for n in found.graph.nodes if n.op == "call_function"]
    assert names.index("sin.default") < names.index(REDUCE) < names.index("exp.default")
    assert names.count(REDUCE) == 2 and names.index(WAIT) > len(names) - 1 - names[::-1].index(REDUCE)
    results = found(x, y)
    for got, expected in zip(results, gradients(x, y), strict=True):
        torch.testing.assert_close(got, expected / 2)
        assert got.shape == expected.shape
    outputs = next(iter(reversed(found.graph.nodes))).args[0]
    assert [tuple(n.meta["val"].shape) for n in outputs] == [(4, 3), (2, 3), (2, 3)]


def test_a_missing_gradient_is_reduced_as_zeros(alone):
    graph = traced(lambda x: (x.sin(), x * 2), torch.ones(3))
    output = next(iter(reversed(graph.graph.nodes)))
    output.args = ((output.args[0][0], None),)
    graph.recompile()
    slots = tuple(Slot.of(at, torch.ones(3)) for at in (0, 1))
    request = SimpleNamespace(gradients=(0, 1), tell=lambda title, rows: None)
    found = with_collectives(graph, request, Variant((slots,), dist.group.WORLD.group_name, 1.0))
    sin, missing = found(torch.ones(3))
    torch.testing.assert_close(sin, torch.ones(3).sin())
    assert missing.tolist() == [0, 0, 0]


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_a_backend_keeps_the_order_of_the_collectives(alone, backend):
    """Each layer's gradients are on their way before the next layer's are computed."""
    if backend == "llvm_cpu":
        pytest.importorskip("jitney_llvm_cpu")
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.GELU())])
    options = {"ddp": "in_graph", "bucket_cap_mb": 0.001}
    ddp = jitney.compile(DDP(model), backend=backend, options=options)
    x = torch.randn(4, 16)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    called = []

    class Calls(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append(str(func))
            return func(*args, **(kwargs or {}))

    told = []
    with events.listen(lambda e: told.append(e) if isinstance(e, events.Told) else None):
        for _ in range(2):
            ddp.zero_grad()
            loss = ddp(x).sum()
            called.clear()
            with Calls():
                loss.backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], expected)
    buckets = called.count(REDUCE)
    assert buckets >= 3 and called.count(WAIT) == buckets
    assert called.index(WAIT) > len(called) - 1 - called[::-1].index(REDUCE)
    if backend == "aot_eager":
        first, second = [i for i, name in enumerate(called) if name == REDUCE][:2]
        assert "aten.mm.default" in called[first:second]
    rows = next(e.rows for e in told if e.title == "DDP collectives")
    assert len(rows) == buckets and "starts after operator" in rows[0]
