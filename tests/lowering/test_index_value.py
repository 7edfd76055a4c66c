"""Index expressions as values, and what depends on where it is, read at places that are computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lowering.graphs import kinds, lowered, trained

from jitney_lowering.index import Index, Opaque, index, max_, min_
from jitney_lowering.index_value import index_value
from jitney_lowering.ir import Constant, constant, position

A, B = Opaque("a", 0, 30), Opaque("b", 0, 30)


def expressions(depth: int) -> st.SearchStrategy[Index]:
    leaves = st.one_of(st.sampled_from([A, B]), st.integers(-5, 9).map(index))
    if not depth:
        return leaves
    below = expressions(depth - 1)
    return st.one_of(
        leaves,
        st.tuples(below, below).map(lambda p: p[0] + p[1]),
        st.tuples(below, below).map(lambda p: p[0] * p[1]),
        st.tuples(below, st.integers(1, 7)).map(lambda p: p[0] // p[1]),
        st.tuples(below, st.integers(1, 7)).map(lambda p: p[0] % p[1]),
        st.tuples(below, below).map(lambda p: min_(*p)),
        st.tuples(below, below).map(lambda p: max_(*p)),
    )


@given(expressions(3), st.integers(0, 30), st.integers(0, 30))
def test_a_value_is_what_the_expression_is(i: Index, a: int, b: int) -> None:
    value = index_value(i, {A: position(index(a)), B: constant(b, torch.int64)})
    assert value.dtype is torch.int64
    assert folded(str(value)) == i.evaluate({A: a, B: b})
    assert isinstance(index_value(index(7), {}), Constant)


def folded(text: str) -> int:
    return eval(text, {"minimum": min, "maximum": max, "remainder": lambda x, y: x % y})


@pytest.mark.parametrize(
    "source",
    [
        lambda x: torch.triu(x),
        lambda x: torch.cat([x[:2], -x[2:]]),
        lambda x: torch.nn.functional.pad(x.exp(), (1, 2, 0, 0))[:, :6].contiguous(),
        lambda x: x * torch.arange(x.shape[1]),
        lambda x: x.flip(0).cos() + torch.eye(6),
        lambda x: torch.roll(x, 2, 1).view(9, 4).repeat_interleave(2, 1)[:6, :6] * x,
    ],
    ids=["triu", "cat", "pad", "arange", "eye", "roll"],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_few_elements_of_what_depends_on_where_it_is(
    source: Callable[[torch.Tensor], torch.Tensor], dynamic: bool
) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        y = source(x)
        return torch.stack([y[i, j], y.gather(1, i[:, None])[:, 0], y.index_select(0, i[:1])[0]])

    x = torch.randn(6, 6, requires_grad=True)
    trained(fn, x, torch.tensor([0, 5, 2, 2, 4, 1]), torch.tensor([5, 0, -3, 2, 1, 4]), dynamic=dynamic, whole=None)


def test_nothing_is_stored_of_what_few_elements_are_picked_from() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        table = torch.triu(x[:, None] * x[None, :])
        return table[i, i.flip(0)]

    captured = lowered(fn, torch.randn(64), torch.randint(64, (5,)))
    assert [kind for kind in kinds(captured.program) if kind != "any"] == ["pointwise"]  # the others are checks
