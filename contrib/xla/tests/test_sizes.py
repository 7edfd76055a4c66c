from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

pytest.importorskip("jax")

import jitney  # noqa: E402
from jitney_xla.sizes import NotHere, is_symbolic, numbers_of, resolver  # noqa: E402


def fake(*sizes):
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(sizes))
    return mode.from_tensor(torch.zeros(sizes), symbolic_context=context)


def test_sizes_are_known_from_the_arguments():
    x, other = fake(6, 7), fake(5)
    assert is_symbolic(x) and not is_symbolic(torch.zeros(3))
    resolve = resolver(numbers_of([x], [torch.zeros(4, 9)]))
    assert [resolve(n) for n in (x.shape[0], x.shape[1] * 2 + 1, 3, *x.stride())] == [4, 19, 3, 9, 1]
    with pytest.raises(NotHere, match="no argument has the size"):
        resolver({})(other.shape[0])


def test_empty_tensors_run_operator_by_operator():
    run = jitney.compile(lambda x: (x * 2).sum(0), backend="xla", dynamic=True, fullgraph=True)
    for n in (3, 0, 4):
        assert torch.equal(run(torch.ones(n, 2)), torch.full((2,), 2.0 * n))
