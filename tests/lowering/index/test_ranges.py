"""Bounds and proofs over symbolic sizes: what is true is proven where lowering needs it, what is not true never."""

import pytest

import jitney_lowering.index as ix
from jitney_lowering.index import Opaque, Size, Var, at_most, equal, is_zero, less, max_, min_

A, B, C = Size("A"), Size("B"), Size("C")
i, j = Var("i", 8), Var("j", 16)
a, b, f = Var("a", A), Var("b", B), Var("f", A * B)
g = Opaque("g")


@pytest.mark.parametrize(
    "claim",
    [
        less(a, A),
        less(a * B + b, A * B),
        less(a * B * C + b * C + Var("c", C), A * B * C),
        at_most(a * B + b, A * B - 1),
        less(f // B, A),
        less(f % B, B),
        less(g % A, A),
        less(A - 1 - a, A),
        at_most(A, A * B),
        less(A, A * B),
        less(i, 8),
        less(min_(g, a), A),
        less(max_(a, b), max_(A, B)),
        less(-1, i * 3 + a * B),
        equal(a * B + b, b + B * a),
        is_zero((a * B + b) // (A * B)),
        ix.fits_int32(i * 1000 + j // 3),
        ix.fits_int32(i * 2**28),
    ],
)
def test_what_can_be_proven(claim):
    assert claim


@pytest.mark.parametrize(
    "claim",
    [
        less(a, A - 1),
        less(a, B),
        less(a * B + b, A * B - 1),
        less(f // A, A),
        less(A, A),
        less(g, A),
        less(i, 7),
        less(0, i),
        at_most(A * 2, A * B - 1),
        less(min_(a, g), g),
        less(max_(g, a), A),
        equal(a, b),
        is_zero(g - a),
        is_zero(i // 4),
        ix.fits_int32(a),
        ix.fits_int32(i * 2**29),
        ix.fits_int32((i * 2**40) // 7),
        ix.fits_int32((g * 3 + i) % 7),
    ],
)
def test_what_is_not_true_is_not_proven(claim):
    assert not claim


@pytest.mark.parametrize(
    ("made", "bounds"),
    [
        (i, (0, 7)),
        (i * 3 - j, (-15, 21)),
        ((i - j) // 4, (-4, 1)),
        ((i - j) % 4, (0, 3)),
        (a, (0, None)),
        (A - a, (1, None)),
        (A * B - A, (2, None)),
        (a - A, (None, -1)),
        (g, (None, None)),
        (g % 5 * i, (0, 28)),
        (min_(g, i), (None, 7)),
        (max_(g, i), (0, None)),
        (Var("v", Size("s", 2, 10)) * 2 + 1, (1, 19)),
        (i // A, (0, 3)),
        (Var("empty", 0), (0, 0)),
    ],
)
def test_bounds(made, bounds):
    assert made.bounds() == bounds
