from __future__ import annotations

import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from jitney_inductor.sizes import Assumptions, unknown_symbols


def fake(*sizes):
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(sizes))
    return mode.from_tensor(torch.zeros(sizes), symbolic_context=context)


def test_nothing_is_checked_where_nothing_was_assumed():
    assert Assumptions([fake(5, 7)]).check() is None
    assert Assumptions([torch.zeros(3)]).check() is None


def test_what_was_assumed_is_checked_also_of_a_later_graph():
    x = fake(6, 7)
    forward = Assumptions([x])
    assert bool(x.shape[0] % 3 == 0)  # as Inductor does
    for assumed in (forward, Assumptions([x])):
        holds = assumed.check()
        assert holds is not None
        assert holds([torch.zeros(9, 7)]) and not holds([torch.zeros(10, 7)])


def test_an_assumption_about_sizes_that_are_not_here_never_holds():
    x = fake(6, 7)
    assumed = Assumptions([x.shape[0]])
    assert bool(x.shape[1] % 7 == 0)
    holds = assumed.check()
    assert holds is not None and not holds([6])


def test_a_size_that_no_input_has_is_told():
    x = fake(6, 7)
    graph = torch.fx.GraphModule({}, torch.fx.Graph())
    node = graph.graph.placeholder("x")
    node.meta["val"] = torch.empty(0)
    assert unknown_symbols(graph, [x]) == ""
    node.meta["val"] = x.shape[0]
    assert unknown_symbols(graph, [x.shape[0] * 2]).startswith("no input has the size")
