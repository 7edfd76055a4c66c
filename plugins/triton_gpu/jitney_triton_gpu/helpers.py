"""What generated kernels call: scalar operations that Triton lacks, and how two results of a reduction become one."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


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
    """The greater; nan if one is nan."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def minimum_nan(a, b):
    """The lesser; nan if one is nan."""
    return tl.where((a < b) | (a != a), a, b)


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
def logaddexp(a, b):
    """The logarithm of the sum of both powers of e; of equal infinities that."""
    high, low = maximum_nan(a, b), minimum_nan(a, b)
    infinite = (high == low) & (high - high != 0)
    return tl.where(infinite, high, high + libdevice.log1p(libdevice.exp(low - high)))
