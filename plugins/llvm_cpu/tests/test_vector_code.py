from __future__ import annotations

import pytest

from jitney_llvm_cpu.vector_code import Code, Value


def code(width=4, fused=True):
    made = Code(width, fused)
    return made, Value(made, "%x", "float")


def test_operators_write_instructions_in_order():
    made, x = code()
    (2.0 - x) * x
    assert made.lines == [
        "%v0 = fsub <4 x float> splat (float 0x4000000000000000), %x",
        "%v1 = fmul <4 x float> %v0, %x",
    ]


def test_integers_have_their_own_instructions():
    made, x = code()
    ((x.bits() >> 3) & 7) - 1
    assert [line.split()[2] for line in made.lines] == ["bitcast", "ashr", "and", "sub"]
    assert "<4 x i32>" in made.lines[1] and "splat (i32 7)" in made.lines[2]


def test_one_lane_is_a_scalar():
    made, x = code(1)
    x.at_most(0.5)
    assert made.lines[0] == "%v0 = fcmp ogt float %x, 0x3FE0000000000000"
    assert made.lines[1] == "%v1 = select i1 %v0, float 0x3FE0000000000000, float %x"


def test_numbers_are_rounded_to_float():
    made, x = code(1)
    x + 0.1
    assert made.lines == ["%v0 = fadd float %x, 0x3FB99999A0000000"]


@pytest.mark.parametrize(("fused", "name"), [(True, "@llvm.fma."), (False, "@llvm.fmuladd.")])
def test_products_and_sums_are_fused_where_they_may_be(fused, name):
    made, x = code(fused=fused)
    made.polynomial(x, (1.0, 2.0, 3.0))
    assert len(made.lines) == 2 and all(name in line for line in made.lines)
    assert "0x4008000000000000" in made.lines[0] and "0x3FF0000000000000" in made.lines[1]


def test_kinds_do_not_mix():
    _, x = code()
    with pytest.raises(AssertionError):
        x + x.bits()
    with pytest.raises(AssertionError, match="no such operation"):
        x << 3
