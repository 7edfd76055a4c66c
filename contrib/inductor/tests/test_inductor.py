from __future__ import annotations

import pytest
import torch
from torch import nn

import jitney
import jitney_inductor
from jitney import events
from jitney.backends import HOOK_API_VERSION, registry
from jitney.errors import InvalidOption

# What takes long to begin pays for large models only: own processes, headers compiled before, a trial of vectors.
QUICK = {"settings": {"compile_threads": 1, "cpp_cache_precompile_headers": False, "cpp.simdlen": 1}}
# Importing Inductor says that torch itself uses something deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
needs_compiler = pytest.mark.skipif(bool(jitney_inductor.lacks()), reason="no C++ compiler")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))


def test_pip_made_it_known_by_name():
    assert registry.get("inductor") is jitney_inductor.backend
    assert jitney_inductor.jitney_hook_api == HOOK_API_VERSION


@needs_compiler
def test_a_training_step_is_eagers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    x = torch.randn(5, 6)
    net(x).square().sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    run = jitney.compile(net, backend="inductor", options=QUICK, fullgraph=True)
    made = run(x)
    torch.testing.assert_close(made, net(x))
    made.square().sum().backward()
    torch.testing.assert_close([p.grad for p in net.parameters()], expected)


@needs_compiler
def test_a_graph_may_hold_tensors():
    def fn(x):
        return x[[-1, 0]] * torch.tensor([1.0, 2.0])

    x = torch.arange(6.0).view(3, 2)
    run = jitney.compile(fn, backend="inductor", options=QUICK, fullgraph=True)
    torch.testing.assert_close(run(x), fn(x))


@needs_compiler
def test_one_graph_for_many_sizes_with_eagers_random_numbers_and_strides():
    def fn(x, y):
        return torch.dropout((x.t() * 2 + y).softmax(0), 0.5, True), x.shape[0] * 2

    run = jitney.compile(fn, backend="inductor", options=QUICK, dynamic=True)
    graphs = []

    def look(event):
        if isinstance(event, events.AtenGraph) and event.kind == "inference":
            graphs.append((event.graph, str(event.graph)))

    with events.listen(look):
        for n, m in ((3, 5), (8, 5), (64, 17)):
            x, y = torch.randn(n, m), torch.randn(m, n)
            torch.manual_seed(1)
            made, twice = run(x, y)
            torch.manual_seed(1)
            right, _ = fn(x, y)
            torch.testing.assert_close(made, right)
            assert made.stride() == right.stride() and twice == 2 * n
    assert [str(graph) == text for graph, text in graphs] == [True]  # one, which Inductor has left as it was


def test_other_options_are_refused():
    with pytest.raises(InvalidOption, match="mode"):
        jitney.compile(torch.sin, backend="inductor", mode="reduce-overhead")
    with pytest.raises(InvalidOption, match="settings"):
        jitney.compile(torch.sin, backend="inductor", options={"freezing": True})
