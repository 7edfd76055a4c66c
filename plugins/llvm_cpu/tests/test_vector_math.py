from __future__ import annotations

import ctypes
import math

import pytest
import torch

from jitney_llvm_cpu import inline_math, symbols
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.vector_math import BYTES, ELEMENTS, FUNCTIONS, INTRINSICS, VectorMath, vector

DTYPES = {"float": torch.float32, "double": torch.float64}
HOST = Target.host()
ENGINE = Engine(HOST)
# What is exact: every bit is torch's.
EXACT = {*INTRINSICS, "fmod", "nextafter"}
# Farthest from the exact result, in units in the last place, as inline_math and Sleef's names state.
ULPS = {"erfc": 1.6, "hypot": 0.6}


def stated(name, element):
    own = inline_math.ULPS.get(name) if element == "float" else None
    return own or ULPS.get(name, 1.01)


def by_lane(function):
    """Python's own function for each element; what it refuses is nan."""

    def one(*numbers):
        try:
            return function(*numbers)
        except ValueError:
            return math.nan

    return lambda *tensors: torch.tensor(
        [one(*row) for row in zip(*(t.tolist() for t in tensors), strict=True)], dtype=tensors[0].dtype
    )


# Where torch is not a reference: it adds in two roundings, its sqrt is MKL's, and its fmod gives up on large quotients.
MEANING = {"fma": lambda a, b, c: torch.addcmul(c, a, b), "sqrt": by_lane(math.sqrt), "fmod": by_lane(math.fmod)}


def meaning_of(name):
    return MEANING.get(name) or getattr(torch, name)


def arity(name):
    return INTRINSICS[name][1] if name in INTRINSICS else FUNCTIONS[name].arguments


def apply(callee, element, width, *arguments):
    """A callee over whole tensors, whose length is a multiple of the width."""
    type_ = vector(element, width)
    loads = "".join(
        f"  %p{k} = getelementptr {element}, ptr %from{k}, i64 %i\n  %x{k} = load {type_}, ptr %p{k}, align 4\n"
        for k in range(len(arguments))
    )
    text = f"""{callee.declaration}{callee.definition}
define void @all(ptr %to, {", ".join(f"ptr %from{k}" for k in range(len(arguments)))}, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}  %r = call {type_} @{callee.symbol}({", ".join(f"{type_} %x{k}" for k in range(len(arguments)))})
  %q = getelementptr {element}, ptr %to, i64 %i
  store {type_} %r, ptr %q, align 4
  %next = add i64 %i, {width}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
    result = torch.empty_like(arguments[0])
    function = ENGINE.compile(text).function("all", *[ctypes.c_void_p] * (1 + len(arguments)), ctypes.c_int64)
    assert len(result) % width == 0
    function(result.data_ptr(), *(a.data_ptr() for a in arguments), len(result))
    return result


def ulps(result, exact):
    """Distance from the exact value (as double) in units in the last place of the result's dtype; 0 if both are nan."""
    limits = torch.finfo(result.dtype)
    size = exact.abs().clamp(min=limits.smallest_normal)
    # frexp: size = mantissa * 2**exponent, 0.5 <= mantissa < 1
    last = torch.ldexp(torch.full_like(exact, limits.eps / 2), torch.frexp(size).exponent)
    same = (result.double() == exact.to(result.dtype).double()) | (result.isnan() & exact.isnan())
    return torch.where(same, 0.0, (result.double() - exact).abs() / last).nan_to_num(nan=math.inf, posinf=math.inf)


def spread(element, count=1 << 14):
    """Values over all exponents, both signs, special ones first."""
    dtype = DTYPES[element]
    limits = torch.finfo(dtype)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, limits.max, -limits.max, limits.tiny]
    special += [limits.tiny / 2, -limits.tiny / 8, limits.smallest_normal * limits.eps, 0.5, 709.8, 88.73]
    generator = torch.Generator().manual_seed(3)
    kind = torch.int32 if element == "float" else torch.int64
    edges = torch.iinfo(kind)
    bits = torch.randint(edges.min, edges.max, (count // 2,), generator=generator, dtype=kind)
    near = torch.randn(count // 2 - len(special), generator=generator, dtype=torch.float64) * 3
    return torch.cat([torch.tensor(special, dtype=torch.float64).to(dtype), bits.view(dtype), near.to(dtype)])


def result_is_infinite_early(result, exact):
    return result.isinf() & (exact.abs() > torch.finfo(result.dtype).max / 2.1)


def widths(element):
    native = HOST.lanes(BYTES[element])
    return sorted({1, max(2, native // 2), native, 2 * native})


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", sorted({*INTRINSICS, *FUNCTIONS}))
def test_each_function_at_each_width(name, element):
    values = spread(element)
    arguments = [values, values.roll(-1), values.roll(5)][: arity(name)]
    meaning = meaning_of(name)
    results = [apply(VectorMath(HOST, ENGINE).call(name, element, w), element, w, *arguments) for w in widths(element)]
    for result in results[1:]:
        # Sleef's sine and cosine take another path if one of the lanes is large.
        one_ulp = 2 * torch.finfo(result.dtype).eps if name in ("sin", "cos", "tan") else 0
        torch.testing.assert_close(result, results[0], rtol=one_ulp, atol=0, equal_nan=True)
    if name in EXACT:
        torch.testing.assert_close(results[0], meaning(*arguments), rtol=0, atol=0, equal_nan=True)
        return
    exact = meaning(*(a.double() for a in arguments))
    error = ulps(results[0], exact)
    if name == "lgamma":  # its zeros are crossed at an angle: there the error is absolute
        error = torch.where((results[0].double() - exact).abs() < 1e-6, 0.0, error)
    if name in ("sinh", "cosh"):  # infinite from exp(x) on, as in eager
        error = torch.where(result_is_infinite_early(results[0], exact), 0.0, error)
    # For double the reference is as far from the exact result as we are.
    bound = stated(name, element) if element == "float" else 2 * stated(name, element) + 1
    worst = int(error.argmax())
    assert error[worst] <= bound, [float(a[worst]) for a in arguments] + [float(results[0][worst]), float(exact[worst])]


@pytest.mark.parametrize("name", ["erfinv", "digamma", "nonsense"])
def test_what_nobody_has_is_not_supported(name):
    maths = VectorMath(HOST, ENGINE)
    assert not maths.supports(name, "float")
    with pytest.raises(LookupError, match=name):
        maths.call(name, "float", 8)
    assert not maths.supports("exp", "half") and maths.supports("exp", "double") and maths.supports("sqrt", "float")


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("element", ELEMENTS)
def test_without_sleef_the_c_library_serves(name, element, monkeypatch):
    find = symbols.find
    monkeypatch.setattr(symbols, "find", lambda symbol: None if symbol.startswith("Sleef_") else find(symbol))
    maths = VectorMath(HOST, ENGINE)
    width = HOST.lanes(BYTES[element])
    callee = maths.call(name, element, width)
    assert callee.source in ("libm", "inline")
    values = spread(element, 1 << 10)
    arguments = [values, values.roll(-1)][: arity(name)]
    result = apply(callee, element, width, *arguments)
    if name in ("sinh", "cosh"):  # torch's overflow too early
        arguments = [torch.where(values.abs() > (88 if element == "float" else 709), 1.0, values)]
        result = apply(callee, element, width, *arguments)
    expected = meaning_of(name)(*arguments)
    error = ulps(result, expected.double())
    error = torch.where((result - expected).abs() < 1e-6, 0.0, error)
    assert error.max() <= 4


def test_a_machine_without_avx_has_no_sleef():
    old = Target("x86_64-unknown-linux-gnu", "x86-64", "+sse2", 16)
    assert VectorMath(old).sleef_lanes("float", 4) == 0


@pytest.mark.parametrize(
    ("features", "width", "lanes"),
    [("+avx", 8, 8), ("+avx", 4, 8), ("+avx", 16, 8), ("+avx,+avx512f", 16, 16), ("+avx,+avx512f", 4, 8)],
)
def test_sleefs_width_that_fits_best(features, width, lanes):
    target = Target("x86_64-unknown-linux-gnu", "x86-64", features, 16)
    assert VectorMath(target).sleef_lanes("float", width) == lanes


def test_sleef_on_arm_has_sixteen_bytes():
    target = Target("aarch64-unknown-linux-gnu", "generic", "", 16)
    assert [VectorMath(target).sleef_lanes(element, 4) for element in ELEMENTS] == [4, 2]


def test_a_function_that_fails_its_trial_is_not_used(monkeypatch):
    monkeypatch.setattr("jitney_llvm_cpu.vector_math.passes", lambda candidate, engine: candidate.name != "tan")
    maths = VectorMath(HOST, ENGINE)
    assert maths.call("tan", "float", HOST.lanes(4)).source == "libm"
    if symbols.find("Sleef_asinf8_u10") is not None and HOST.has("avx2"):
        assert maths.call("asin", "float", HOST.lanes(4)).source == "sleef"
