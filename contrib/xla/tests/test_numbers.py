"""Every function of one or two numbers beside eager: at NaN, infinities, zeros with a sign, and far out."""

from __future__ import annotations

import math

import pytest
import torch

pytest.importorskip("jax")

import jitney  # noqa: E402
from jitney_xla.rules import RULES  # noqa: E402
from jitney_xla.rules.pointwise import COMPARISONS, FLOAT, ROUNDINGS  # noqa: E402

NAN, INF = math.nan, math.inf
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.0, 41.0, 88.0, 89.0, 1e-20, 3e38, -3e38]
aten = torch.ops.aten


def numbers(length, dtype=torch.float32):
    """The special ones among ordinary ones, so that vector code and what comes after it meet them."""
    x = torch.linspace(-6, 6, length, dtype=torch.float64)
    x[:: max(1, length // len(SPECIAL))][: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=torch.float64)
    return x.to(dtype)


EXTREMES = ("maximum", "minimum", "clamp")  # which of two zeros they give is nobody's promise


def same(found, eager, exact, name):
    """Equal in what is not finite and in signs of zeros; else as near to float64's number as eager's, or 4 units."""
    assert found.dtype == eager.dtype and found.shape == eager.shape, name
    if not eager.dtype.is_floating_point:
        assert torch.equal(found, eager), name
        return
    for sort in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(sort(found), sort(eager)), name
    counts = eager.isfinite() & exact.isfinite()
    zero = counts & (eager == 0) & (found == 0) & (name not in EXTREMES)
    assert torch.equal(found[zero].signbit(), eager[zero].signbit()), name
    f, e, x = found[counts].double(), eager[counts].double(), exact[counts].double()
    # What is smaller than the smallest normal number is zero for XLA.
    allowed = 4 * torch.finfo(eager.dtype).eps * x.abs() + 2 * (e - x).abs() + torch.finfo(torch.float32).tiny
    assert bool(((f - x).abs() <= allowed).all()), (name, f[(f - x).abs() > allowed], x[(f - x).abs() > allowed])


def beside(program, *arguments):
    """The program's results in eager, compiled, and in float64."""
    compiled = jitney.compile(program, backend="xla", fullgraph=True)
    wide = [a.double() if a.is_floating_point() else a for a in arguments]
    return zip(compiled(*arguments), program(*arguments), program(*wide), strict=True)


UNARY = [*FLOAT, *ROUNDINGS, "neg", "abs", "sign", "relu", "isnan", "isinf", "logical_not"]
FUNCTIONS = {
    **{name: getattr(aten, name) for name in UNARY},
    "elu": torch.nn.functional.elu,
    "leaky": torch.nn.functional.leaky_relu,
    "clamp": lambda x: x.clamp(-1, 2),
    "plus zero": lambda x: x + 0.0,
    "minus": lambda x: 0.0 - x,
    "over 3": lambda x: x / 3,
    "halved": lambda x: (x / 1e30) / 1e30,
    **{f"to the {y}": (lambda x, y=y: x**y) for y in (0, 0.5, -0.5, 1, 2, 3, -1, -2, 2.5, 5)},
}


@pytest.mark.parametrize(("dtype", "length"), [(torch.float32, 19), (torch.float32, 523), (torch.float16, 523)])
def test_functions_of_one_number(dtype, length):
    x = numbers(length, dtype)
    names = list(FUNCTIONS)
    for name, (found, eager, exact) in zip(names, beside(lambda x: [FUNCTIONS[n](x) for n in names], x), strict=True):
        same(found, eager, exact, name)


PAIRS = {
    **{name: getattr(aten, name) for name in [*COMPARISONS, "maximum", "minimum", "add", "sub", "mul", "div"]},
    "pow": torch.pow,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "where": lambda x, y: torch.where(x > y, x, y),
    "clamp": lambda x, y: x.clamp(y, y + 1),
}


def test_functions_of_each_two_special_numbers():
    x = torch.tensor(SPECIAL)
    x, y = x.repeat(len(SPECIAL)), x.repeat_interleave(len(SPECIAL))
    names = list(PAIRS)
    found = beside(lambda x, y: [PAIRS[n](x, y) for n in names], x, y)
    for name, (made, eager, exact) in zip(names, found, strict=True):
        if name in ("fmod", "remainder"):  # eager's float32 gives NaN for a remainder of a large quotient
            near = ~(x.isfinite() & y.isfinite() & (y != 0)) | ((x / y).abs() < 1e6)
            made, eager, exact = made[near], eager[near], exact[near]
        # Rounding decides in which direction a quotient falls; eager's float32 is what it is to be compared with.
        same(made, eager, eager if name in ("floor", "trunc") else exact, name)


def test_chains_that_are_fused_are_as_right_as_single_operators():
    def program(x):
        return (
            (x * 0.9).exp() * (x * -0.9).exp(),
            x.clamp(-80).exp().log(),
            x.sigmoid() * x.erf(),
            torch.relu(x.tanh() + 0.0).sqrt(),
            (x.clamp(min=0) - x.maximum(x.neg())).sign(),
            x.softmax(0),
            torch.where(x.isfinite(), x, 0.0).log_softmax(0),
            x.amax(),
            x.nan_to_num().amin(),
            x.sum(),
            x.nan_to_num(0, 1, -1).clamp(-9, 9).sum(),
            x.argmax(),
        )

    for length in (29, 523):
        for n, (found, eager, exact) in enumerate(beside(program, numbers(length))):
            same(found, eager, exact, n)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_integers_wrap_around_and_divide_as_in_eager(dtype):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.tensor([low, low + 1, high, high - 1, 0, 1, 5, 7, 100], dtype=dtype)
    y = torch.tensor([3, 2, 3, 2, 3, 7, 2, 3, 9], dtype=dtype)

    def program(x, y):
        made = [x + y, x - y, x * y, x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), -x]
        made += [x.abs(), x / y, x.sum(), x.prod(), x.cumsum(0), ~x, x & y, x.amax(), x > y, x.argmin(), x.float()]
        return made

    for n, (found, eager, _) in enumerate(beside(program, x, y)):
        if eager.dtype.is_floating_point:
            torch.testing.assert_close(found, eager)
        else:
            assert torch.equal(found, eager), n


def test_every_rule_is_of_an_operator():
    assert all(isinstance(op, torch._ops.OpOverload) for op in RULES)
