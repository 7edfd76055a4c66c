from __future__ import annotations

import ctypes
import math

import pytest
import torch

from jitney_llvm_cpu import inline_math
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.inline_math import LIMITS, ULPS, definition, supports
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.vector_math import VectorMath

HOST = Target.host()
PLAIN = Target(HOST.triple, HOST.cpu, HOST.features.replace("+fma,", "-fma,").replace("+fma4,", "-fma4,"), 16)
NAMES = sorted(ULPS)


def defined(name, width, fused, target):
    if name not in LIMITS:
        return definition(name, "f", width, fused)
    far = VectorMath(target).library(name, "float", width)  # beyond the limits
    return far.declaration + far.definition + definition(name, "f", width, fused, far.symbol)


def run(name, values, width=8, fused=True, target=HOST):
    text = (
        defined(name, width, fused, target)
        + f"""
define void @all(ptr %to, ptr %from, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %from, i64 %i
  %q = getelementptr float, ptr %to, i64 %i
  %x = load TYPE, ptr %p, align 4
  %r = call TYPE @f(TYPE %x)
  store TYPE %r, ptr %q, align 4
  %next = add i64 %i, {width}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
""".replace("TYPE", "float" if width == 1 else f"<{width} x float>")
    )
    result = torch.empty_like(values)
    assert len(values) % width == 0
    function = Engine(target).compile(text).function("all", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function(result.data_ptr(), values.data_ptr(), len(values))
    return result


def every(step):
    """Every so many-th of all floats, in the order of their bits."""
    bits = torch.arange(-(2**31), 2**31, step, dtype=torch.int64)
    return bits[: len(bits) // 64 * 64].to(torch.int32).view(torch.float32)


def error(result, exact):
    """In units in the last place; exact values are doubles. Infinite where one is nan or infinite and the other not."""
    size = exact.abs().clamp(2.0**-126, 2.0**128)
    last = torch.ldexp(torch.full_like(exact, 2.0**-24), torch.frexp(size).exponent)
    same = (result == exact.float()) | (result.isnan() & exact.isnan())
    return torch.where(same, 0.0, (result.double() - exact).abs() / last).nan_to_num(nan=math.inf)


@pytest.mark.parametrize("name", NAMES)
def test_the_stated_error_holds_over_all_floats(name):
    values = every(997)
    found = error(run(name, values, fused=HOST.has_fma), getattr(torch, name)(values.double()))
    worst = int(found.argmax())
    assert found[worst] <= ULPS[name] + (0 if HOST.has_fma else 0.6), float(values[worst])


@pytest.mark.skipif(not HOST.has("fma"), reason="the host has no fused multiply-add to go without")
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(LIMITS)))
def test_without_fused_multiply_add_the_error_is_a_little_larger(name):
    values = every(4999)
    found = error(run(name, values, fused=False, target=PLAIN), getattr(torch, name)(values.double()))
    worst = int(found.argmax())
    assert found[worst] <= ULPS[name] + 0.6, float(values[worst])


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-45, -1e-45, 1.1754942e-38, -1.1754942e-38]
SPECIAL += [3.4028235e38, -3.4028235e38, 88.72283, 88.72284, -103.97, -104.0, 1.0000001, -0.99999994, 0.625, 0.9]
SPECIAL += [1e5, 100000.01, -99999.99, 1.5707964, -3.1415927, 0.7853982, 6.2831855, 12345.678, -1e10]
SPECIAL += [-87.33655, -87.4, 0.3465735, 0.35]


@pytest.mark.parametrize("width", [1, 4, 8, 16])
@pytest.mark.parametrize("name", NAMES)
def test_special_values_are_as_in_c(name, width):
    values = torch.tensor([*SPECIAL, *[0.5] * (-len(SPECIAL) % 16)])
    result = run(name, values, width)
    exact = getattr(torch, name)(values.double()).float()
    torch.testing.assert_close(result, exact, rtol=3e-7, atol=3e-45, equal_nan=True)
    zero = exact == 0
    assert torch.equal(result[zero].signbit(), exact[zero].signbit())
    assert torch.equal(result == 0, zero) and torch.equal(result.isinf(), exact.isinf())


@pytest.mark.parametrize(
    ("name", "least", "most"), [("tanh", -1, 1), ("erf", -1, 1), ("exp", 0, math.inf), ("sin", -1, 1), ("cos", -1, 1)]
)
def test_results_stay_within_their_range(name, least, most):
    result = run(name, every(997))
    result = result[~result.isnan()]
    assert result.min() >= least and result.max() <= most


def test_every_width_gives_the_same_bits():
    values = torch.randn(1024) * 3
    for name in NAMES:
        assert torch.equal(run(name, values, 1).nan_to_num(7.0), run(name, values, 8).nan_to_num(7.0))


def test_what_is_here_is_known():
    assert set(inline_math._FORMULAS) == set(ULPS)
    assert supports("exp", "float") and not supports("exp", "double") and not supports("tan", "float")
    assert supports("sin", "float") and not supports("sin", "float", fused=False)


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_an_element_does_not_depend_on_what_is_beside_it(name):
    """Beyond the limits another function is asked, which gives other last bits."""
    near = torch.linspace(-50, 50, 1024)
    mixed = near.clone()
    mixed[::8] = 1e7
    kept = torch.arange(1024) % 8 != 0
    assert torch.equal(run(name, mixed)[kept], run(name, near)[kept])


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_the_stated_error_holds_up_to_the_limit_and_beyond(name):
    """Multiples of pi / 2 are where sines lose most."""
    most = int(LIMITS[name] * 2 / math.pi) + 64
    near = (torch.arange(-most, most, dtype=torch.float64) * (math.pi / 2)).float()
    near = torch.cat([near, near.nextafter(torch.tensor(math.inf)), near.nextafter(torch.tensor(-math.inf))])
    values = near[: len(near) // 64 * 64]
    found = error(run(name, values), getattr(torch, name)(values.double()))
    worst = int(found.argmax())
    assert found[worst] <= ULPS[name], float(values[worst])
