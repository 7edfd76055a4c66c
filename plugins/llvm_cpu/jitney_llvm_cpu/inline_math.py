"""Own code for the hot functions of float elements, inlined where it is called.

A call of Sleef spills every vector register and cannot be scheduled with its neighbours; these are two to four dozen
instructions without a branch. Infinities, nan, zeros of both signs and denormal numbers, in and out, are as in C.
Only what is beyond the ``LIMITS`` of a function is left to another one.

The largest error over all floats, in units in the last place (``ULPS``, which the tests hold), and nanoseconds for
each element: one thread of a Zen 3 with AVX2, arrays within the first cache (eager: the second).

    function     own ULP   eager ULP      own   Sleef   eager
    exp             0.87        0.56     0.42    0.78    1.09
    expm1           1.47         1.0     0.76    2.79    2.91
    log             0.81        0.86     0.90    1.39    1.31
    log1p           1.40         1.0     1.27    2.07    2.21
    tanh            1.35        0.51     0.90    2.70    3.21
    erf             1.08        0.75     1.06    4.56    1.59
    sin, cos        1.48        0.61        (not measured there)

The polynomials are minimax fits (Lawson's algorithm), their coefficients rounded to float one after another, each time
with the rest fitted anew. Where there is no fused multiply-add, errors grow by some 0.5 ULP, and there is no own sine.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jitney_llvm_cpu.vector_code import Code, Value

_LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first with so few bits that a product with an exponent is exact.
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06
# Adding it puts the integer nearest to a number of moderate size into the low bits of the sum.
_ROUNDER = 12582912.0  # 1.5 * 2**23
_BIAS = 127  # of a float's exponent
_MANTISSA = 23
_SQRT_HALF_BITS = 0x3F3504F3

# (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2: to 3e-9 of exp, and to 1.4e-8 of exp - 1.
_EXP = (0.4999999403953552, 0.1666652113199234, 0.04166826233267784, 0.008368673734366894, 0.0013821041211485863)
_EXP_LEAST = -103.98  # what is less has a power of e that is rounded to 0
_EXPM1 = (0.4999999701976776, 0.1666654646396637, 0.04166743904352188, 0.008366257883608341, 0.0013870300026610494)
# (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2): to 5.9e-9 of log.
_LOG = (
    *(0.3333333134651184, -0.2500081956386566, 0.2000124156475067, -0.166234090924263),
    *(0.14201579988002777, -0.13159610331058502, 0.12762212753295898, -0.07636427879333496),
)
# (tanh(x) / x - 1) / x**2 in x**2, for |x| <= 0.625: to 4.6e-9 of tanh.
_TANH_SPLIT = 0.625
_TANH = (-0.3333328068256378, 0.13331405818462372, -0.05373651534318924, 0.02062816731631756, -0.0056922961957752705)
# erf(x) / x - 1 in x**2 for |x| <= 0.9, to 1.5e-8 of erf; -log(1 - erf(x)) for 0.9 <= x <= 3.95, to 1.7e-9 of erf.
_ERF_SPLIT = 0.9
_ERF_SMALL = (
    *(0.12837915122509003, -0.3761250674724579, 0.11281976103782654),
    *(-0.02677311562001705, 0.005003661382943392, -0.0006048860377632082),
)
_ERF_LARGE = (
    *(0.00016644578136038035, 1.127797245979309, 0.6369760632514954, 0.10411373525857925),
    *(-0.02231527678668499, 0.0030655215959995985, -0.0001982252870220691),
)
_TWO_OVER_PI = 0.6366197723675814
# pi / 2 in three parts, each rounded down: a product of the first with an integer below 2**22 loses nothing in an fma.
_HALF_PI = (1.570796251296997, 7.549789415861596e-08, 5.390302953474238e-15)
# (sin(r) / r - 1) / r**2 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2 for |r| <= pi / 4: to 4e-9 of sin, 1.2e-10 of cos.
_SIN = (-0.16666655242443085, 0.008332189172506332, -0.0001951828453456983)
_COS = (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05)


def _reduced(c: Code, x: Value, bias: int) -> tuple[Value, Value]:
    """``x = n ln 2 + r`` with ``|r| <= ln(2) / 2``: integers whose low bits are ``n + bias``, and r."""
    rounder = _ROUNDER + bias
    sum_ = c.fma(x, _LOG2_E, rounder)
    n = sum_ - rounder
    return sum_.bits(), c.fma(n, -_LN2_LOW, c.fma(n, -_LN2_HIGH, x))


def _exp_of(c: Code, r: Value) -> Value:
    return c.polynomial(r, (1.0, 1.0, *_EXP))


def _expm1_of(c: Code, r: Value) -> Value:
    return c.fma(r * r, c.polynomial(r, _EXPM1), r)


def _exp(c: Code, x: Value) -> Value:
    # Beyond these limits the result is infinite or 0, and n has more bits than an exponent. A product that comes to 0
    # would take a hundred times as long as others, and masked scores of attention are all of that kind.
    nothing = c.compare("olt", x, _EXP_LEAST)
    bits, r = _reduced(c, c.where(nothing, 0.0, x.at_most(89.0)), 2 * _BIAS)
    # 2**n in two factors, each with a normal exponent: the product may be denormal or overflow.
    half = bits.unsigned_shift(1)
    one, other = (half << _MANTISSA).from_bits(), ((bits - half) << _MANTISSA).from_bits()
    return c.where(nothing, 0.0, _exp_of(c, r) * one * other)


def _exp_within(c: Code, x: Value) -> Value:
    """For -87 < x < 88, where the result is normal."""
    bits, r = _reduced(c, x, _BIAS)
    return _exp_of(c, r) * (bits << _MANTISSA).from_bits()


def _expm1(c: Code, x: Value) -> Value:
    # Half of 2**n, since n may be 128.
    bits, r = _reduced(c, x.at_most(89.0).at_least(-18.0), _BIAS - 1)
    half_scale = (bits << _MANTISSA).from_bits()
    q = _expm1_of(c, r)
    half = c.fma(half_scale, q, half_scale - 0.5)
    unscaled = c.compare("oeq", half_scale, 0.5)  # not halved: it may be denormal
    return c.where(unscaled, q, half + half).signed_as(x)


def _mantissa_and_exponent(c: Code, x: Value) -> tuple[Value, Value]:
    """``x = m * 2**e`` with ``sqrt(1/2) <= m < sqrt(2)``, for normal x: ``m - 1``, and e as integers."""
    offset = x.bits() - _SQRT_HALF_BITS
    m = ((offset & ((1 << _MANTISSA) - 1)) + _SQRT_HALF_BITS).from_bits()
    return m - 1.0, offset >> _MANTISSA


def _log_of(c: Code, f: Value, e: Value) -> Value:
    """The logarithm of ``(1 + f) * 2**e``."""
    square = f * f
    tail = f * square * c.polynomial(f, _LOG)
    tail = c.fma(square, -0.5, c.fma(e, _LN2_LOW, tail))
    return c.fma(e, _LN2_HIGH, f + tail)


def _log_where_defined(c: Code, x: Value, result: Value, pole: float) -> Value:
    """``result`` to the right of the pole, and what logarithms are elsewhere."""
    defined = c.where(c.compare("olt", x, math.inf), result, x)  # infinity and nan stay
    left = c.where(c.compare("oeq", x, pole), -math.inf, c.where(c.compare("uno", x, x), x, math.nan))
    return c.where(c.compare("ogt", x, pole), defined, left)


def _log(c: Code, x: Value) -> Value:
    denormal = c.compare("olt", x, 2.0**-126)
    f, e = _mantissa_and_exponent(c, c.where(denormal, x * 2.0**_MANTISSA, x))
    exponent = e.to_float() + c.where(denormal, float(-_MANTISSA), 0.0)
    return _log_where_defined(c, x, _log_of(c, f, exponent), 0.0)


def _log1p(c: Code, x: Value) -> Value:
    f, e = _mantissa_and_exponent(c, x + 1.0)
    # What x + 1 has rounded away comes back: f = (x + 1) / 2**e - 1 from x itself, unless x is large.
    scale = ((_BIAS - e) << _MANTISSA).from_bits()
    f = c.where(c.compare("olt", x, 2.0**30), c.fma(x, scale, scale - 1.0), f)
    return _log_where_defined(c, x, _log_of(c, f, e.to_float()), -1.0).signed_as(x)


def _tanh(c: Code, x: Value) -> Value:
    size = x.magnitude()
    most = size.at_most(9.1)  # from there on it is 1
    large = 1.0 - 2.0 / (_exp_within(c, most + most) + 1.0)
    square = size * size
    small = c.fma(size * square, c.polynomial(square, _TANH), size)
    return c.where(c.compare("olt", size, _TANH_SPLIT), small, large).signed_as(x)


def _erf(c: Code, x: Value) -> Value:
    size = x.magnitude()
    small = c.fma(size, c.polynomial(size * size, _ERF_SMALL), size)
    exponent = c.polynomial(size.at_most(3.95), tuple(-value for value in _ERF_LARGE))
    large = 1.0 - _exp_within(c, exponent)
    return c.where(c.compare("olt", size, _ERF_SPLIT), small, large).signed_as(x)


def _turned(c: Code, x: Value, quarters: int) -> Value:
    """The sine of ``x + quarters * pi / 2``; the sine and the cosine of one number share most of their work."""
    sum_ = c.fma(x, _TWO_OVER_PI, _ROUNDER)
    n = sum_ - _ROUNDER
    first, second, third = _HALF_PI
    exact = c.fma(n, -first, x)
    nearly = c.fma(n, -second, exact)
    r = c.fma(n, -third, nearly)
    # What r has lost, where the difference is exact: sin(r + rest) is about sin(r) + rest.
    rest = c.where(c.compare("ogt", r.magnitude(), 0.0625), c.fma(n, -second, exact - nearly), 0.0)
    square = r * r
    sine = (r + c.fma(r * square, c.polynomial(square, _SIN), rest)).signed_as(r)
    cosine = c.polynomial(square, (1.0, -0.5, *_COS))
    quarter = sum_.bits() + quarters
    odd = c.bit(quarter, 0)
    sign = (quarter & 2) << 30
    return (c.where(odd, cosine, sine).bits() ^ sign).from_bits()


def _sin(c: Code, x: Value) -> Value:
    return _turned(c, x, 0)


def _cos(c: Code, x: Value) -> Value:
    return _turned(c, x, 1)


_FORMULAS: dict[str, Callable[[Code, Value], Value]] = {
    "cos": _cos,
    "erf": _erf,
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "sin": _sin,
    "tanh": _tanh,
}

# The largest error of each function, in units in the last place, with a fused multiply-add.
ULPS = {"cos": 1.5, "erf": 1.1, "exp": 0.9, "expm1": 1.5, "log": 0.9, "log1p": 1.5, "sin": 1.5, "tanh": 1.4}
# The largest size of an argument of which a function takes care; these need a fused multiply-add.
LIMITS = {"cos": 100_000.0, "sin": 100_000.0}


def supports(name: str, element: str, fused: bool = True) -> bool:
    """Is there own code for a function of ``float`` or ``double``? See ``Code`` for ``fused``."""
    return element == "float" and name in _FORMULAS and (fused or name not in LIMITS)


def definition(name: str, symbol: str, width: int, fused: bool, other: str = "") -> str:
    """LLVM IR of ``symbol``, which computes a function of ``width`` floats.

    Args:
        name: the function.
        symbol: without ``@``.
        width: lanes.
        fused: see ``Code``.
        other: the symbol of the function that is asked beyond ``LIMITS``.
    """
    code = Code(width, fused)
    x = Value(code, "%x", "float")
    result = _FORMULAS[name](code, x)
    type_ = code.type("float")
    if name not in LIMITS:
        code.lines.append(f"ret {type_} {result.name}")
    else:
        far = code.compare("ugt", x.magnitude(), LIMITS[name])
        code.lines += _unless(code, far, result, f"call {type_} @{other}({type_} %x)")
    body = "\n".join(line if line.endswith(":") else f"  {line}" for line in code.lines)
    header = f"define internal {type_} @{symbol}({type_} %x) alwaysinline nounwind willreturn memory(none)"
    return f"{header} {{\nentry:\n{body}\n}}\n"


def _unless(code: Code, mask: Value, usual: Value, call: str) -> list[str]:
    """The end of a function: the usual result, but where the mask is set, what the call gives."""
    type_, bits = code.type("float"), f"i{code.width}"
    return [
        f"%lanes = bitcast {code.type('mask')} {mask.name} to {bits}",
        f"%some = icmp ne {bits} %lanes, 0",
        "br i1 %some, label %far, label %end",
        "far:",
        f"%other = {call}",
        f"%mixed = select {code.type('mask')} {mask.name}, {type_} %other, {type_} {usual.name}",
        "br label %end",
        "end:",
        f"%result = phi {type_} [ {usual.name}, %entry ], [ %mixed, %far ]",
        f"ret {type_} %result",
    ]
