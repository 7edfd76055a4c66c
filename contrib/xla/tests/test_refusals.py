"""What XLA has in its own way, or takes where eager raises, runs eagerly."""

from __future__ import annotations

import math

import pytest
import torch

pytest.importorskip("jax")

import jitney  # noqa: E402
from jitney import events  # noqa: E402

NUMBERS = torch.tensor([1.5, -2.5, 300.0, -1e4, 3e9, math.inf, math.nan])
BOOLS = torch.tensor([True, False, True])
INTEGERS = torch.tensor([1, 5, 7])


def test_floats_that_become_integers_on_the_way_are_eagers():
    def program(x, small):
        sums = x.sum(dtype=small.dtype), x.prod(dtype=small.dtype), x.cumsum(0, dtype=small.dtype)
        return *sums, small.clone().copy_(x), torch.cat([small, small]).index_fill(0, INTEGERS, 2.7)

    for dtype in (torch.uint8, torch.int8, torch.int32):
        small = torch.zeros(7, dtype=dtype)
        found, right = jitney.compile(program, backend="xla")(NUMBERS, small), program(NUMBERS, small)
        torch.testing.assert_close(found, right, rtol=0, atol=0)


def test_a_float_copied_into_int64_is_checked():
    def program(x, n):
        return n.clone().copy_(x) * 2

    run, n = jitney.compile(program, backend="xla", fullgraph=True), torch.zeros(7, dtype=torch.int64)
    for x in (NUMBERS.nan_to_num(0, 1, 1), NUMBERS):
        assert torch.equal(run(x, n), program(x, n))


REFUSED = [
    (lambda x: x.relu(), BOOLS),
    (lambda x: x.abs(), BOOLS),
    (lambda x: x.floor(), BOOLS),
    (lambda x: x.argmax(), BOOLS),
    (lambda x: x.clamp(x, x), BOOLS),
    (lambda x: 5 - x, BOOLS),
    (lambda x: x.dot(x), BOOLS),
    (lambda x: x.softmax(0), INTEGERS),
    (lambda x: x.log_softmax(0), INTEGERS),
    (lambda x: x.var(), INTEGERS),
    (lambda x: x.lerp(x, 0.5), INTEGERS),
    (lambda x: torch.full_like(x, math.nan), INTEGERS),
    (lambda x: torch.full((3,), 300, dtype=torch.uint8) + x, INTEGERS),
    (lambda x: x.masked_fill(x > 1, 300), INTEGERS.to(torch.uint8)),
    (lambda x: x & x, NUMBERS),
    (lambda x: torch.bitwise_not(x), NUMBERS),
    (lambda x: x.clamp(max=1e300), NUMBERS),
    (lambda x: x.clone().fill_(1e300), NUMBERS),
    (lambda x: x.masked_fill(x > 0, -1e9), NUMBERS.half()),
    (lambda x: torch.full_like(x, 70000), NUMBERS.half()),
    (lambda x: torch.nn.functional.binary_cross_entropy(x, x), NUMBERS),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_eager_refuses_raises_as_in_eager(number):
    program, x = REFUSED[number]
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        program(x)
    with pytest.raises((RuntimeError, NotImplementedError)) as found:
        jitney.compile(program, backend="xla")(x)
    assert str(found.value) == str(expected.value)


def test_numbers_below_the_smallest_normal_one_are_not_zero():
    def program(x, y):
        return x * 1e-40, x > 1e-40, x.clamp(min=1e-40), x.masked_fill(x > 1, 1e-40), y * 1e-310, x * 1e-30

    seen = []
    arguments = torch.tensor([0.0, 1e10]), torch.tensor([1e300, -1.0], dtype=torch.float64)
    with events.listen(lambda event: seen.append(event.pieces) if isinstance(event, events.Placed) else None):
        found = jitney.compile(program, backend="xla")(*arguments)
    torch.testing.assert_close(found, program(*arguments), rtol=1e-6, atol=0)
    assert {name for name, _ in seen[0]} == {"xla", "eagerly"}


def test_numbers_beyond_the_largest_one_warn_of_nothing():
    run = jitney.compile(lambda x: (x * 1e300, x < 1e300, x / 1e300), backend="xla")
    x = torch.tensor([1.0, -2.0])
    torch.testing.assert_close(run(x), (x * math.inf, x < math.inf, x / math.inf))


def test_any_over_no_dimensions_asks_each_number():
    run = jitney.compile(lambda x: (x.any(dim=()), x.all(dim=()), x.sum(dim=())), backend="xla", fullgraph=True)
    x = torch.tensor([[1.0, 0.0], [math.nan, -0.0]])
    torch.testing.assert_close(run(x), (x.any(dim=()), x.all(dim=()), x.sum(dim=())), equal_nan=True)


def test_a_number_that_changes_is_not_wrapped_where_eager_refuses_it():
    def program(x, y, n):
        return x * n, x == n, torch.full_like(y, n)

    run = jitney.compile(program, backend="xla", dynamic=True)
    x, y = torch.tensor([1, 5, 7], dtype=torch.int8), torch.ones(2).half()
    for n in (3, 100, 300):
        assert all(torch.equal(a, b) for a, b in zip(run(x, y, n), program(x, y, n), strict=True))
    with pytest.raises(RuntimeError, match="without overflow"):
        run(x, y, 70000)
