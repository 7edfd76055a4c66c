"""What generated kernels call: scalar operations that Triton lacks, and how two results of a reduction become one."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def number(a):
    """An integer of 8 or 16 bits as float32, by integer addition: units that convert are few.

    It is added to the last bits of 1.5 * 2**23, whose neighbours are a whole one apart.
    """
    return (a.to(tl.int32) + 0x4B400000).to(tl.float32, bitcast=True) - 12582912.0


@triton.jit
def floordiv_int(a, b):
    """``a // b`` rounded to minus infinity."""
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)


@triton.jit
def mod_int(a, b):
    """``a % b`` with the sign of ``b``."""
    m = a % b
    return tl.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)


@triton.jit
def remainder_float(a, b):
    """``a % b`` with the sign of ``b``."""
    m = libdevice.fmod(a, b)
    return tl.where((m != 0) & ((m < 0) != (b < 0)), m + b, m)


@triton.jit
def maximum_nan(a, b):
    """The greater, 0.0 rather than -0.0; nan if one is nan."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum_nan(a, b):
    """The lesser, -0.0 rather than 0.0; nan if one is nan."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def middling(b):
    """A power of two that brings a divisor to where its reciprocal is exact to the last bit: 2**64, 1 or 2**-64."""
    size = tl.abs(b)
    small = tl.where(size < 5.421010862427522e-20, 1.8446744073709552e19, 1.0)
    return tl.where(size > 1.8446744073709552e19, 5.421010862427522e-20, small)


@triton.jit
def shared_quotient(a, b):
    """``a / b`` of float32 where many are divided by the same: a product with the reciprocal, and what that leaves
    (Markstein 1990). Correctly rounded, but for the last bit where numerator or quotient is below 1e-30.

    ``div_rn`` branches for zeros, of which a softmax of masked rows has many.
    """
    scale = middling(b)
    b = b * scale
    a = a * scale
    inverse = tl.div_rn(1.0, b)
    near = a * inverse
    better = tl.fma(tl.fma(-near, b, a), inverse, near)
    return tl.where((tl.abs(better) < float("inf")) & (near != 0.0), better, near)


@triton.jit
def rough_quotient(a, b):
    """``a / b`` to 22 bits."""
    scale = middling(b)
    return (a * scale) / (b * scale)


@triton.jit
def online(most, total, value):
    """The greater, and the sum of ``exp(x - most)`` with one value more."""
    best = maximum_nan(most, value)
    scaled = online_scaled(most, total, best)
    return best, scaled + tl.where(value == float("-inf"), 0.0, libdevice.exp(value - best))


@triton.jit
def online_scaled(most, total, best):
    """A sum of ``exp(x - most)`` as one of ``exp(x - best)``."""
    return tl.where(most == best, total, total * libdevice.exp(most - best))


@triton.jit
def online_total(total, best):
    """The sum; nan where all were minus infinity, as eager has it."""
    return tl.where(best == float("-inf"), float("nan"), total)


@triton.jit
def shift_left(a, b, bits: tl.constexpr):
    """As torch: 0 where the shift is too far or negative."""
    bad = (b < 0) | (b >= bits)
    return tl.where(bad, a - a, a << tl.where(bad, b - b, b))


@triton.jit
def shift_right(a, b, bits: tl.constexpr):
    """As torch: the sign everywhere where the shift is too far or negative."""
    bad = (b < 0) | (b >= bits)
    return a >> tl.where(bad, b - b + (bits - 1), b)


@triton.jit
def shift_right_unsigned(a, b, bits: tl.constexpr):
    """As torch: 0 where the shift is too far."""
    bad = b >= bits
    return tl.where(bad, a - a, a >> tl.where(bad, b - b, b))


@triton.jit
def uniform(seed, counter):
    """See ``jitney_lowering.philox``: the highest 24 bits of Philox's first word."""
    bits = tl.randint(seed, counter).to(tl.uint32, bitcast=True) >> 8
    return bits.to(tl.int32).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def add(a, b):
    """The sum."""
    return a + b


@triton.jit
def multiply(a, b):
    """The product."""
    return a * b


@triton.jit
def either(a, b):
    """Is one of them true?"""
    return a | b


@triton.jit
def both(a, b):
    """Are both true?"""
    return a & b


@triton.jit
def maximum_int(a, b):
    """The greater."""
    return tl.where(a > b, a, b)


@triton.jit
def minimum_int(a, b):
    """The lesser."""
    return tl.where(a < b, a, b)


@triton.jit
def places(value, best, at, last, floats: tl.constexpr):
    """The positions of values that are the best one, or nan; elsewhere the last."""
    same = value == best
    if floats:
        same = same | (value != value)
    return tl.where(same, at, last)


@triton.jit
def first_greater(a, at_a, b, at_b):
    """The greater and its position: nan before all, the lower position of equals."""
    nan_a, nan_b = a != a, b != b
    better = (nan_a & ~nan_b) | ((a > b) & ~nan_b)
    same = (nan_a & nan_b) | (a == b)
    first = better | (same & (at_a < at_b))
    return tl.where(first, a, b), tl.where(first, at_a, at_b)


@triton.jit
def first_lesser(a, at_a, b, at_b):
    """The lesser and its position: nan before all, the lower position of equals."""
    nan_a, nan_b = a != a, b != b
    better = (nan_a & ~nan_b) | ((a < b) & ~nan_b)
    same = (nan_a & nan_b) | (a == b)
    first = better | (same & (at_a < at_b))
    return tl.where(first, a, b), tl.where(first, at_a, at_b)


@triton.jit
def decoded(
    code,
    mantissa: tl.constexpr,
    bias: tl.constexpr,
    most: tl.constexpr,
    infinity: tl.constexpr,
    overflows: tl.constexpr,
    unsigned: tl.constexpr,
):
    """The float32 that a code of 8 bits stands for: ``jitney_lowering.ir.Float8`` says what the numbers are."""
    bits = code.to(tl.int32)
    size = bits & 0x7F
    moved = size << (23 - mantissa)
    normal = (moved + ((127 - bias) << 23)).to(tl.float32, bitcast=True)
    small = size.to(tl.float32) * (1.0 / (1 << (bias + mantissa - 1)))
    value = tl.where(size < (1 << mantissa), small, normal)
    if infinity > 0:
        value = tl.where(size >= infinity, (moved | 0x7F800000).to(tl.float32, bitcast=True), value)
    elif unsigned:
        value = tl.where(bits == 0x80, float("nan"), value)
    else:
        value = tl.where(size > most, float("nan"), value)
    sign = (bits & 0x80) << 24
    return (value.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)


@triton.jit
def encoded(
    value,
    mantissa: tl.constexpr,
    bias: tl.constexpr,
    most: tl.constexpr,
    infinity: tl.constexpr,
    overflows: tl.constexpr,
    unsigned: tl.constexpr,
):
    """The code of 8 bits of a float32, rounded to nearest even."""
    shift: tl.constexpr = 23 - mantissa
    magic: tl.constexpr = (128 - bias + shift) << 23
    bits = value.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    odd = (size >> shift) & 1
    normal = (size + (((bias - 127) << 23) + (1 << (shift - 1)) - 1) + odd) >> shift
    # After the addition the last bit of the float32 is worth the last bit of the code.
    base = tl.full([], magic, tl.int32)
    raised = size.to(tl.float32, bitcast=True) + base.to(tl.float32, bitcast=True)
    small = raised.to(tl.int32, bitcast=True) - base
    code = tl.where(size < ((128 - bias) << 23), small, normal)
    nan: tl.constexpr = 0x80 if unsigned else 0x7F
    code = tl.where(code > most, nan if overflows else most, code)
    code = tl.where(size > 0x7F800000, nan, code)
    sign = (bits >> 24) & 0x80
    if unsigned:
        sign = tl.where(code == 0, 0, sign)
    return (code | sign).to(tl.uint8)


@triton.jit
def logaddexp(a, b):
    """The logarithm of the sum of both powers of e; of equal infinities that."""
    high, low = maximum_nan(a, b), minimum_nan(a, b)
    infinite = (high == low) & (high - high != 0)
    return tl.where(infinite, high, high + libdevice.log1p(libdevice.exp(low - high)))
