"""Every pointwise rule beside eager: dtypes, special values, promotion, layouts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import Captured, lowered

import jitney
from jitney_lowering.rules import RULES
from jitney_lowering.rules.pointwise import POINTWISE

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 3.0, -3.0, 6.5, 20.5, -7.25, 100.0, -100.0, 1e-3, 1e-30,
           math.inf, -math.inf, math.nan]  # fmt: skip
# Halves may differ from eager in their last bit: eager's kernels round otherwise for float16. (All of them round
# otherwise in what is left over after whole vectors: the tests have none of that.)
NOT_EXACT = {"erf", "gelu", "gelu_backward", "sigmoid_backward"}


def floats(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(44, generator=generator, dtype=torch.float64) * 3
    return torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), drawn]).to(dtype)


def integers(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, 100, (20,), generator=generator)
    return torch.cat([torch.tensor([0, 1, 2, 5, limits.min, limits.max]).to(dtype), drawn.to(dtype)])


def truths(seed: int = 0) -> torch.Tensor:
    return torch.rand(8, generator=torch.Generator().manual_seed(seed)) < 0.5


UNARY_OF_FLOATS: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name)
    for name in """
    exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sqrt rsqrt
    floor ceil trunc round abs neg sign frac reciprocal sigmoid square signbit isnan isinf isposinf isneginf logical_not
    deg2rad rad2deg sinc relu nan_to_num logit lgamma isfinite sgn
    """.split()
} | {
    "round_2": lambda x: torch.round(x, decimals=2),
    "round_m1": lambda x: torch.round(x, decimals=-1),
    "entr": torch.special.entr,
    "nan_to_num_3": lambda x: torch.nan_to_num(x, 1.5, 7.0, -7.0),
    "logit_eps": lambda x: torch.logit(x, 0.1),
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 1.5, 10.0),
    "elu": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.3),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "hardtanh": lambda x: F.hardtanh(x, -0.7, 1.1),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": lambda x: F.hardshrink(x, 0.6),
    "softshrink": lambda x: F.softshrink(x, 0.6),
    "threshold": lambda x: F.threshold(x, 0.5, 9.0),
    "logsigmoid": F.logsigmoid,
    "clamp": lambda x: x.clamp(-1.5, 2.25),
    "clamp_min": lambda x: x.clamp_min(0.3),
    "clamp_max": lambda x: x.clamp_max(0.3),
    **{f"pow {e}": (lambda x, e=e: x**e) for e in (0, 0.5, -0.5, 1, -1, 2, -2, 3, 2.7)},
    "2 ** x": lambda x: 2.0**x,
    "1 ** x": lambda x: 1.0**x,
    "scalars": lambda x: (x + 0.1) * 0.3 - 1.7 / (0.9 - x),
    "to double": lambda x: x.double() * 2,
    "to half": lambda x: x.to(torch.bfloat16) + 1,
    "to bool": lambda x: x.bool(),
    "compare": lambda x: (x > 0.1, x >= 1, x < 0.5, x <= 3, x == 0.5, x != 2),
    "remainder": lambda x: x % 1.5,
    "remainder -": lambda x: x % -1.5,
    "fmod": lambda x: torch.fmod(x, 1.5),
    "floor_divide": lambda x: x // 1.5,
    "div trunc": lambda x: torch.div(x, 1.5, rounding_mode="trunc"),
    "masked_fill": lambda x: x.masked_fill(x > 0, -2.5),
    "rsub": lambda x: torch.rsub(x, 1.5, alpha=2.5),
    "xlogy": lambda x: torch.xlogy(x, 2.5),
}


@pytest.mark.parametrize("name", UNARY_OF_FLOATS)
def test_one_float_operand(name: str) -> None:
    def fn(*xs: torch.Tensor) -> list[Any]:
        return [UNARY_OF_FLOATS[name](x) for x in xs]

    dtypes = FLOATS if name != "lgamma" else FLOATS[:2]
    args = [floats(dtype) for dtype in dtypes]
    captured = lowered(fn, *args, whole=None)
    assert all(not hasattr(s, "target") for s in captured.program.steps), "an operator ran as a whole"


@pytest.mark.parametrize("name", sorted(set(UNARY_OF_FLOATS) - NOT_EXACT))
def test_halves_are_rounded_where_eager_rounds_them(name: str) -> None:
    def fn(*xs: torch.Tensor) -> list[Any]:
        return [UNARY_OF_FLOATS[name](x) for x in xs]

    lowered(fn, floats(torch.bfloat16), floats(torch.float16), whole=None, exact=True)


BINARY_OF_FLOATS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: torch.add(a, b, alpha=1.7),
    "sub": lambda a, b: torch.sub(a, b, alpha=0.3),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "heaviside": torch.heaviside,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp far": lambda a, b: torch.lerp(a, b, 0.8),
    "lerp tensor": lambda a, b: torch.lerp(a, b, b),
    "addcmul": lambda a, b: torch.addcmul(a, b, b, value=0.3),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.3),
    "where": lambda a, b: torch.where(a > b, a, b),
    "where number": lambda a, b: torch.where(a > b, a, 1.5),
    "clamp": lambda a, b: torch.clamp(a, -b.abs(), b.abs()),
    "logical": lambda a, b: (a.logical_and(b), a.logical_or(b), a.logical_xor(b)),
    "compare": lambda a, b: (a > b, a >= b, a < b, a <= b, a == b, a != b),
    "prelu": lambda a, b: aten._prelu_kernel(a, b),
    "backwards": lambda a, b: [
        aten.tanh_backward(a, b), aten.silu_backward(a, b), aten.mish_backward(a, b),
        aten.threshold_backward(a, b, 0.5), aten.elu_backward(a, 0.7, 1.0, 1.0, False, b),
        aten.elu_backward(a, 0.7, 1.0, 1.0, True, b), aten.leaky_relu_backward(a, b, 0.1, False),
        aten.hardtanh_backward(a, b, -1.0, 1.0), aten.hardsigmoid_backward(a, b), aten.hardswish_backward(a, b),
        aten.hardshrink_backward(a, b, 0.6), aten.softshrink_backward(a, b, 0.6), aten.logit_backward(a, b),
        aten.logit_backward(a, b, 0.1), aten.softplus_backward(a, b, 1.5, 10.0),
        aten.native_dropout_backward(a, b > 0, 1.25),
    ],
    "sigmoid_backward": lambda a, b: aten.sigmoid_backward(a, b),
    "gelu_backward": lambda a, b: [aten.gelu_backward(a, b), aten.gelu_backward(a, b, approximate="tanh")],
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY_OF_FLOATS)
def test_two_float_operands(name: str) -> None:
    def fn(*xs: torch.Tensor) -> list[Any]:
        return [BINARY_OF_FLOATS[name](a, b) for a, b in zip(xs[::2], xs[1::2], strict=True)]

    args = [t for dtype in FLOATS for t in (floats(dtype), floats(dtype, 1).flip(0))]
    lowered(fn, *args)


@pytest.mark.parametrize("name", sorted(set(BINARY_OF_FLOATS) - NOT_EXACT))
def test_halves_are_rounded_where_eager_rounds_two(name: str) -> None:
    def fn(*xs: torch.Tensor) -> list[Any]:
        return [BINARY_OF_FLOATS[name](a, b) for a, b in zip(xs[::2], xs[1::2], strict=True)]

    args = [t for dtype in FLOATS[2:] for t in (floats(dtype), floats(dtype, 1).flip(0))]
    lowered(fn, *args, exact=True)


INTEGER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sums": lambda a, b: (a + b, a - b, a * b, torch.add(a, b, alpha=3), a + 2),
    "square": lambda a, b: a**2,
    "cube": lambda a, b: a**3,
    "true division": lambda a, b: a / 7,
    "float functions": lambda a, b: (a.sin(), a.exp(), torch.sigmoid(b)),
    "constants divide": lambda a, b: (a // 7, a % 7, torch.fmod(a, 7), torch.div(a, 7, rounding_mode="trunc")),
    "extremes": lambda a, b: (torch.maximum(a, b), torch.minimum(a, b), a.clamp(2, 50)),
    "bits": lambda a, b: (a & b, a | b, a ^ b, ~a, a & 12, a << 1, b >> 2),
    "compare": lambda a, b: (a > b, a >= 3, a < b, a <= b, a == b, a != 5),
    "float beside": lambda a, b: (a * 0.5, a > 1.5, a + 0.25),
    "where": lambda a, b: torch.where(a > b, a, b),
    "rounding": lambda a, b: (a.floor(), a.ceil(), a.round(), a.trunc()),
    "logical": lambda a, b: (a.logical_and(b), a.logical_not(), a.bool()),
    "to float": lambda a, b: (a.float(), a.double(), a.bfloat16()),
}


@pytest.mark.parametrize("name", INTEGER_FUNCTIONS)
def test_integers(name: str) -> None:
    def fn(*xs: torch.Tensor) -> list[Any]:
        return [INTEGER_FUNCTIONS[name](a, b) for a, b in zip(xs[::2], xs[1::2], strict=True)]

    args = [t for dtype in INTEGERS for t in (integers(dtype), integers(dtype, 1).flip(0))]
    lowered(fn, *args)


def test_truth_values() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        return [a & b, a | b, a ^ b, ~a, a + b, a * b, a == b, a.float(), torch.where(a, b, ~b), a + 1, a * 0.5, a > b,
                torch.maximum(a, b)]  # fmt: skip

    lowered(fn, truths(), truths(1))


@pytest.mark.parametrize("divide", ["//", "%", "fmod", "trunc"])
def test_integers_divided_by_a_tensor_run_as_a_whole(divide: str) -> None:
    """There may be a zero among the divisors, which eager refuses."""
    functions: dict[str, Any] = {
        "//": (torch.floor_divide, "floor_divide.default"),
        "%": (torch.remainder, "remainder.Tensor"),
        "fmod": (torch.fmod, "fmod.Tensor"),
        "trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), "div.Tensor_mode"),
    }
    fn, operator = functions[divide]
    lowered(fn, torch.tensor([7, -7, 5]), torch.tensor([2, 2, -3]), whole=[operator])


MIXES = [
    (torch.float32, torch.int64),
    (torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.float16),
    (torch.uint8, torch.int8),
    (torch.bool, torch.float16),
    (torch.int32, torch.bool),
    (torch.float64, torch.bfloat16),
]


@pytest.mark.parametrize(("first", "second"), MIXES)
def test_types_are_promoted_as_in_eager(first: torch.dtype, second: torch.dtype) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, single: torch.Tensor) -> Any:
        pairs = [(a, b), (b, a), (a, single), (single, b), (single, single)]
        return [f(x, y) for x, y in pairs for f in (torch.add, torch.mul, torch.true_divide, torch.gt, torch.eq)]

    a = torch.tensor([1.5, 0.0, 100.25, 3.0]).to(first)
    b = torch.tensor([2.75, 1.0, 3.0, 77.5]).to(second)
    lowered(fn, a, b, torch.tensor(2.6).to(second))


NUMBERS: dict[str, Callable[..., Any]] = {
    "add": lambda x: (x + 0.3, 0.3 + x, torch.add(x, 0.3, alpha=0.7)),
    "sub": lambda x: (x - 0.3, 0.3 - x),
    "mul": lambda x: (x * 0.3, 0.3 * x),
    "div": lambda x: (x / 0.3, 0.3 / x),
    "floor": lambda x: (x // 0.3, torch.div(x, 0.3, rounding_mode="trunc")),
    "remainder": lambda x: (x % 0.3, torch.fmod(x, 0.3)),
    "pow": lambda x: (x.abs() ** 0.3, 0.3**x),
    "compare": lambda x: (x > 0.3, x >= 0.3, x < 0.3, x <= 0.3, x == 0.3, x != 0.3),
    "choose": lambda x: (torch.where(x > 0, x, 0.3), x.masked_fill(x > 0, 0.3), x.clamp(-0.3, 0.3)),
    "lerp": lambda x: (torch.lerp(x, x * 2, 0.3), torch.addcmul(x, x, x, value=0.3)),
    "shrink": lambda x: (F.hardshrink(x, 0.3), F.softshrink(x, 0.3), F.threshold(x, 0.3, 0.7)),
    "threshold's gradient": lambda x: aten.threshold_backward(x * 2, x, 0.3),
    "activations": lambda x: (F.leaky_relu(x, 0.3), F.elu(x, 0.3), F.softplus(x, 0.3), F.hardtanh(x, -0.3, 0.3)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_rounded_to_halves_where_eager_rounds_them(name: str, dtype: torch.dtype) -> None:
    near = torch.tensor([0.3, -0.3, 0.7, 0.30078125, 0.2998046875, 0.35, 0.65, 1.3], dtype=dtype)
    lowered(NUMBERS[name], torch.cat([floats(dtype), *[near] * 8]), whole=None, exact=True)


def test_a_tensor_without_dimensions_is_rounded_to_the_others_half_where_eager_does_so() -> None:
    def fn(a: torch.Tensor, s: torch.Tensor) -> Any:
        return a * s, s * a, a + s, s + a, a - s, a / s, s / a, torch.maximum(a, s), a > s, torch.where(a > 0, a, s)

    lowered(fn, floats(torch.bfloat16), torch.tensor(1.00390625 / 3), exact=True)


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(2, 3, 4, 5),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(5, 4, 3, 2).permute(3, 2, 1, 0),
    "sliced": lambda: torch.randn(4, 6, 8, 5)[::2, 1:4, ::2],
    "expanded": lambda: torch.randn(1, 3, 1, 5).expand(2, 3, 4, 5),
    "empty": lambda: torch.randn(2, 0, 4, 5),
    "ones": lambda: torch.randn(1, 3, 1, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_have_eagers_strides(layout: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * 2 + 1, x + y, (x.exp(), x > y)

    lowered(fn, LAYOUTS[layout](), torch.randn(5))


@pytest.mark.parametrize("layout", sorted(set(LAYOUTS) - {"sliced"}))
def test_results_have_eagers_strides_where_sizes_are_symbols(layout: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * 2 + 1, x + y, (x.exp(), x > y)

    lowered(fn, LAYOUTS[layout](), torch.randn(5), dynamic=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_operands_are_broadcast(dynamic: bool) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        return a + b, b * c, a - c, (a + b) * c

    lowered(fn, torch.randn(4, 1, 3), torch.randn(5, 1), torch.randn(()), dynamic=dynamic)


def test_sizes_are_operands() -> None:
    def fn(x: torch.Tensor) -> Any:
        n, m = x.shape
        return x * n, x / (n * m), x > m, x.long() + n, x.bfloat16() * n

    lowered(fn, torch.randn(5, 7), dynamic=True)


def test_a_float_at_the_border_of_a_comparison_is_rounded_as_eager_rounds_it() -> None:
    x = torch.tensor([0.1, 0.3], dtype=torch.bfloat16)
    lowered(lambda x: (x > 0.1, x == 0.1, x < 0.3, x >= 0.3), x, exact=True)


def test_every_rule_is_reached_by_a_test_of_this_file() -> None:
    """A rule without a row above must be named here, with the file that tests it."""
    elsewhere = {
        "binary_cross_entropy", "binary_cross_entropy_backward", "huber_loss", "huber_loss_backward",
        "mse_loss_backward", "log_sigmoid_backward", "nextafter", "convert_element_type", "lift_fresh_copy",
        # test_special_functions.py
        "digamma", "polygamma", "erfinv", "special_erfcx", "special_log_ndtr", "i0", "special_i0e", "special_i1",
        "special_i1e", "angle",
    }  # fmt: skip
    names = {str(target).split(".")[1] for target in POINTWISE}
    source = Path(__file__).read_text()
    missing = {n for n in names - elsewhere if n.lstrip("_").removesuffix("_kernel") not in source}
    unused = {"rsub", "clone", "to_copy", "true_divide", "special_entr", "special_xlog1py"}
    written_as_operators = {"eq", "ne", "lt", "le", "gt", "ge"}
    bits = {n for n in names if n.startswith(("bitwise", "__"))}
    assert {n for n in missing - bits if n.lstrip("_") not in unused | written_as_operators} == set()


@pytest.mark.parametrize("exponent", [4, 5, 7, 10, 16, -5, 17])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: str(d)[6:])
def test_whole_powers_are_rounded_once(dtype: torch.dtype, exponent: int) -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(4000, generator=generator, dtype=torch.float64) * 2
    edges = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e10, -1e20, 1e-10, 3e38, 65504.0]
    x = torch.cat([drawn, torch.tensor(edges, dtype=torch.float64)]).to(dtype)
    eager = x**exponent
    found = jitney.compile(lambda z: z**exponent, backend="llvm_cpu", fullgraph=True)(x)
    assert torch.equal(found.isnan(), eager.isnan()) and torch.equal(found.isinf(), eager.isinf())
    assert torch.equal(found.signbit()[~eager.isnan()], eager.signbit()[~eager.isnan()])
    info = torch.finfo(dtype)
    usual = eager.isfinite() & (eager.abs() > 1e4 * info.tiny)
    exact = x.double() ** exponent
    apart = ((found.double() - exact) / exact).abs()[usual] / info.eps
    assert apart.max() <= (1.01 if dtype is torch.float64 else 0.51 if 0 < exponent < 17 else 1.5)


def test_nextafter() -> None:
    x = floats(torch.float32)
    lowered(torch.nextafter, x, x.flip(0), exact=True)


def test_uniform_numbers_of_a_counter() -> None:
    seed, counter = torch.tensor([2**62 + 5]), torch.arange(-20, 300).view(16, 20)
    lowered(torch.ops.jitney.uniform, seed, counter, exact=True)
    lowered(lambda s, c: torch.ops.jitney.uniform(s, c * 2**33) + torch.ops.jitney.uniform(s + 1, c), seed, counter)


ZEROS: dict[str, Callable[..., Any]] = {
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "sub_alpha_0": lambda a, b: torch.sub(a, b, alpha=0),
    "sub_alpha_0.0": lambda a, b: torch.sub(a, b, alpha=0.0),
    "add_alpha_0": lambda a, b: torch.add(a, b, alpha=0),
    "rsub_alpha_0": lambda a, b: torch.rsub(a, b, alpha=0),
}


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_signs_of_zeros_are_those_of_eagers_kernel_for_one_element(name: str, dtype: torch.dtype) -> None:
    """Vectors of eager's kernels may have other signs than what is left over after them (and bfloat16 all others)."""
    zeros = torch.tensor([0.0, -0.0], dtype=dtype)
    for a, b in torch.cartesian_prod(torch.arange(2), torch.arange(2)):
        x, y = zeros[a : a + 1], zeros[b : b + 1]
        assert torch.equal(jitney.compile(ZEROS[name], backend="llvm_cpu")(x, y).signbit(), ZEROS[name](x, y).signbit())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_bounds_are_rounded_to_halves_before_they_are_compared(dtype: torch.dtype) -> None:
    x = torch.tensor([-0.0, 0.0, 1.0, -1.0] * 8, dtype=dtype)
    for bound in (lambda x: x.clamp(1e-45, 2.0), lambda x: x.clamp_min(1e-45), lambda x: x.clamp_max(-1e-45)):
        assert torch.equal(jitney.compile(bound, backend="llvm_cpu")(x).signbit(), bound(x).signbit())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_nextafter_of_halves_is_a_neighbour_among_halves(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, math.inf, -2.0, 0.0], dtype=dtype)
    five = torch.full_like(x, 5.0)
    assert torch.equal(jitney.compile(torch.nextafter, backend="llvm_cpu")(x, five), torch.nextafter(x, five))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, *FLOATS], ids=lambda d: str(d)[6:])
def test_numbers_before_the_operator(dtype: torch.dtype) -> None:
    x = (torch.arange(40) % 7 + 1 if not dtype.is_floating_point else (torch.arange(40) - 20.5) * 0.37).to(dtype)

    def shifted(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return 3 << x, 100 >> x, -5 << x

    def rest(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return 17 % x, -17 % x, torch.remainder(5, x)

    for function in (rest,) if dtype.is_floating_point else (rest, shifted):
        found = jitney.compile(function, backend="llvm_cpu", fullgraph=True)(x)
        for got, wanted in zip(found, function(x), strict=True):
            assert got.dtype is wanted.dtype and torch.equal(got, wanted)


def quotients(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), torch.remainder(17, y),
        torch.where(x > 2, x, x // y).roll(1),
    )  # fmt: skip


def test_integers_by_what_is_known_to_be_positive() -> None:
    x, y = torch.arange(-40, 40).view(8, 10), torch.randint(-3, 9, (8, 10))
    lowered(lambda x, y: quotients(x, y.clamp(min=1)), x, y)
    lowered(lambda x, y: quotients(x, torch.arange(1, 11)), x, y)
    lowered(lambda x, y: F.pad(x // y.clamp(1, 5), (2, 3))[:, ::2], x, y, whole=None)
    lowered(lambda x, y: quotients(x.int(), y.int().clamp(min=2)), x, y)


def test_integers_by_what_may_be_zero_run_as_a_whole() -> None:
    x, y = torch.arange(-40, 40), torch.arange(1, 81)
    lowered(lambda x, y: x // y, x, y, whole=["floor_divide.default"])
    lowered(lambda x, y: x % y.clamp(min=0), x, y, whole=["remainder.Tensor"])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        jitney.compile(lambda x, y: x // y, backend="llvm_cpu")(x, y - 1)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_by_a_tensor_as_on_cuda(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in (aten.floor_divide.default, aten.remainder.Tensor, aten.fmod.Tensor, aten.div.Tensor_mode,
                   aten.remainder.Scalar_Tensor):  # fmt: skip
        monkeypatch.setitem(POINTWISE, target, POINTWISE[target].on_cuda())
        monkeypatch.setitem(RULES, target, POINTWISE[target])
    x, y = torch.arange(-40, 40).to(dtype), torch.randint(1, 9, (80,)).to(dtype)
    if dtype is not torch.uint8:
        y[::3] *= -1
    lowered(quotients, x, y)
    y[5] = 0  # any number, and no error
    jitney.compile(quotients, backend=Captured().backend)(x, y)
