"""Quotients and remainders: single rules, and views of contiguous data that collapse to their strides."""

import random
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jitney_lowering.index import Names, Opaque, Size, Var, index, max_, min_

A, B, C = Size("A"), Size("B"), Size("C")
i, j, k = Var("i", 8), Var("j", 16), Var("k", 4)
a, b, f = Var("a", A), Var("b", B), Var("f", A * B)
g = Opaque("g")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (i * 64 + j * 4 + k, "i*64 + j*4 + k"),
        (j * 4 + i * 64 + k - k, "i*64 + j*4"),
        ((i + 1) * (j - 2) + g, "-i*2 + i*j + j + g - 2"),
        ((g * 6 + 4) // 2, "g*3 + 2"),
        ((g * 4) // 8, "g//2"),
        ((g * 4 + 3) // 8, "g//2"),
        ((g * 4 + k) // 8, "g//2"),
        ((g * 4 + k) % 8, "k + (g % 2)*4"),
        ((g * 16 + j) // 16, "g"),
        ((g * 16 + j) % 16, "j"),
        ((g * 16 + 15 - j) % 16, "-j + 15"),
        ((i - 8) // 8, "-1"),
        (g // 3 // 5, "g//15"),
        (g % 15 % 5, "g % 5"),
        (g % 15 // 5, "g//5 % 3"),
        (g // 4 * 4 + g % 4, "g"),
        (g // 12 * 12 + g // 4 % 3 * 4 + g % 4, "g"),
        (g // 4 % 3 * 4 + g % 4, "g % 12"),
        (g - g // 4 * 4, "g % 4"),
        (g - g % 4, "(g//4)*4"),
        ((g - 3) % 8, "(g + 5) % 8"),
        ((g * 3 + j) // 7 % 5, "(j + g*3)//7 % 5"),
        ((a * B + b) // B, "a"),
        ((a * B + b) % B, "b"),
        ((a * B + b) // (A * B), "0"),
        ((b * A * 2 + a) // (A * 2), "b"),
        ((a * A * B + b * A) // (A * B), "a"),
        ((g * B + b) // (A * B), "g//A"),
        ((g * (A + 1) + a) // (A + 1), "g"),
        ((g * (A + 1) + a) % (A + 1), "a"),
        (f // B * B + f % B, "f"),
        (A * B // A, "B"),
        (g + index(-6) // A, "g + (-6)//A"),
        ((A * 2 + 2) // (2 * A + 2), "1"),
        ((a + A - 1) % A, "(a - 1) % A"),
        (min_(i, 7), "i"),
        (min_(i, 8, a), "min(a, i)"),
        (max_(a, A, 0), "A"),
        (max_(min_(g, A - 1), 0), "max(min(g, A - 1), 0)"),
        (Var("n", 1) * 5 + Size("m", 4, 4), "4"),
    ],
)
def test_simplifications(made, text):
    assert str(made) == text
    made.verify()


affine = st.builds(
    lambda steps, offset: sum((v * step for v, step in zip((i, j, k, a, b, f, g, A), steps)), index(offset)),
    st.lists(st.integers(-9, 30), min_size=1, max_size=8),
    st.integers(-9, 30),
).filter(lambda x: x.value is None)
divisors = st.one_of(st.integers(1, 30), st.sampled_from([A, B, A * B, 2 * A, A + 1, B - 1]))


@given(affine, divisors)
def test_a_number_divided_and_put_together_again_is_itself(x, by):
    assert (x // by) * by + x % by is x


def flatten(at, shape):
    flat = index(0)
    for i, size in zip(at, shape):
        flat = flat * size + i
    return flat


def unflatten(flat, shape):
    at = []
    for size in reversed(shape):
        at.append(flat % size)
        flat = flat // size
    return at[::-1]


def a_view(t, draw):
    """A random view of a tensor, and the function from the view's index to the tensor's; None if there is none."""
    size = list(t.shape)
    kind = draw.choice(["view", "view", "permute", "slice", "select", "expand", "unsqueeze"])
    dim = draw.randrange(max(len(size), 1))
    if kind == "view":
        new = some_shape(t.numel(), draw)
        try:
            return t.view(new), lambda at: unflatten(flatten(at, new), size)
        except RuntimeError:  # needs a copy
            return None
    if kind == "permute":
        order = draw.sample(range(len(size)), len(size))
        return t.permute(order), lambda at: [at[order.index(d)] for d in range(len(size))]
    if kind == "slice":
        start = draw.randrange(size[dim])
        step = draw.choice([1, 1, 2, 3])
        window = (slice(None),) * dim + (slice(start, draw.randint(start + 1, size[dim]), step),)
        return t[window], lambda at: [*at[:dim], at[dim] * step + start, *at[dim + 1 :]]
    if kind == "select" and len(size) > 1:
        place = draw.randrange(size[dim])
        return t.select(dim, place), lambda at: [*at[:dim], index(place), *at[dim:]]
    if kind == "expand" and size[dim] == 1:
        return t.expand([3 if d == dim else -1 for d in range(len(size))]), lambda at: [
            *at[:dim],
            index(0),
            *at[dim + 1 :],
        ]
    if kind == "unsqueeze":
        return t.unsqueeze(dim), lambda at: [*at[:dim], *at[dim + 1 :]]
    return None


def some_shape(count, draw):
    shape = []
    while count > 1 and len(shape) < 4:
        shape.append(draw.choice([d for d in range(1, count + 1) if count % d == 0]))
        count //= shape[-1]
    return draw.sample([*shape, count], len(shape) + 1)


@pytest.mark.parametrize("seed", range(5))
def test_views_of_contiguous_data_collapse_to_their_strides(seed):
    draw = random.Random(seed)
    for _ in range(60):
        base = torch.empty([draw.choice([1, 2, 3, 4, 6, 8]) for _ in range(draw.randint(1, 4))], device="meta")
        view, steps = base, []
        for _ in range(6):
            found = a_view(view, draw)
            if found is not None:
                view = found[0]
                steps.append(found[1])
        names = Names()
        variables = [names.var(size) for size in view.shape]
        at = [index(v) for v in variables]
        for step in reversed(steps):
            at = step(at)
        wanted = sum((v * stride for v, stride in zip(variables, view.stride())), index(view.storage_offset()))
        flat = flatten(at, base.shape)
        assert flat is wanted
        assert [flat.stride(v).value for v in variables] == [
            s if n > 1 else 0 for s, n in zip(view.stride(), view.shape)
        ]


def grouped(factors, draw):
    """The factors, multiplied together in random groups."""
    factors = draw.sample(factors, len(factors))
    cuts = sorted(draw.sample(range(1, len(factors)), draw.randrange(len(factors))))
    return [prod(factors[a:b], start=index(1)) for a, b in zip([0, *cuts], [*cuts, len(factors)])]


@pytest.mark.parametrize("factors", [(2, 3, 5, 2), (2, 2, 3, 3), (A, 4, 3), (A, B, C), (A, B, 2)])
def test_reshapes_and_permutations_that_are_undone_leave_no_trace(factors):
    draw = random.Random(1)
    for _ in range(100):
        size = grouped(factors, draw)
        names = Names()
        variables = [names.var(n) for n in size]
        at, undo = list(variables), []
        for _ in range(2):
            if draw.random() < 0.5:
                new = grouped(factors, draw)
                undo.append(lambda at, old=size, new=new: unflatten(flatten(at, new), old))
                at, size = unflatten(flatten(at, size), new), new
            else:
                order = draw.sample(range(len(size)), len(size))
                undo.append(lambda at, order=order: [at[order.index(d)] for d in range(len(order))])
                at, size = [at[d] for d in order], [size[d] for d in order]
        for step in reversed(undo):
            at = step(at)
        assert [index(i) for i in at] == variables
