"""Sizes, ints and floats that vary: symbolic after the second value, or as the user says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers import FRONTEND, Compiled, compile_fn, t

only_jitney = pytest.mark.skipif(FRONTEND != "jitney", reason="jitney's own names")


def test_size_becomes_dynamic_after_the_second_value() -> None:
    compiled = Compiled(lambda x: x.reshape(-1) * x.shape[0] + x.sum())
    for n in (3, 4, 5, 6, 17):
        compiled(t(n, 2))
    compiled.expect(2)


def test_every_dimension_may_become_dynamic() -> None:
    compiled = Compiled(lambda x: (x @ x.T, x.shape, x.numel()))
    for n, m in [(3, 4), (5, 6), (7, 8), (9, 2)]:
        compiled(t(n, m))
    compiled.expect(2)


def test_sizes_zero_and_one_are_specialised() -> None:
    compiled = Compiled(lambda x: (x + 1, x.shape[0]))
    for n in (3, 4, 5, 1, 0, 6, 1):
        compiled(torch.ones(n, 2))


def test_broadcast_against_size_one_stays_correct() -> None:
    compiled = Compiled(lambda x, y: x + y)
    for n, m in [(3, 3), (4, 4), (5, 5), (5, 1), (1, 5), (6, 6)]:
        compiled(torch.ones(n, 2), torch.ones(m, 2))


def test_int_argument_becomes_dynamic() -> None:
    compiled = Compiled(lambda x, n: (x + n, n * 2, n))
    for n in (3, 4, 5, 100, -7):
        compiled(t(), n)
    compiled.expect(2)


def test_float_argument_becomes_dynamic() -> None:
    compiled = Compiled(lambda x, f: (x * f, f + 1))
    for f in (0.5, 1.5, 2.5, 1e-3):
        compiled(t(), f)
    compiled.expect(2)


def test_float_nan_inf_and_negative_zero() -> None:
    compiled = Compiled(lambda x, f: (x * f, f))
    for f in (0.5, float("nan"), float("inf"), -0.0, 0.0, float("nan")):
        compiled(t(), f)


def test_int_steering_python_control_flow_stays_correct() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        for i in range(n):
            x = x + i
        if n > 3:
            return x * n
        return x, [n] * 2, str(n)

    compiled = Compiled(fn)
    for n in (1, 2, 3, 4, 5, 0, 2):
        compiled(t(), n)


def test_int_used_as_index_key_and_format() -> None:
    def fn(x: torch.Tensor, n: int, items: list[str], d: dict[int, str]) -> tuple[Any, ...]:
        return x[n], items[n], d.get(n), f"{n:03d}", x[: n + 1], hash(n), n in (1, 2), "ab" * n

    compiled = Compiled(fn)
    for n in (0, 1, 2, 3, 1):
        compiled(t(6), n, ["a", "b", "c", "d"], {1: "one", 3: "three"})


def test_size_steering_python_control_flow_stays_correct() -> None:
    def fn(x: torch.Tensor) -> Any:
        if x.shape[0] > 4:
            return x.sum()
        if x.shape[0] % 2 == 0:
            return x * 2
        return [x[i] for i in range(x.shape[0])]

    compiled = Compiled(fn)
    for n in (3, 4, 5, 2, 6, 3, 8, 1):
        compiled(t(n))


def test_size_arithmetic() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        n, m = x.shape
        half = n // 2
        total = n * m + half - 1
        return (
            x[:half],
            x.new_zeros(total),
            torch.arange(n),
            max(n, m),
            min(n, m),
            n / m,
            -n,
            n**2,
            divmod(total, n),
            (n, m),
        )

    compiled = Compiled(fn)
    for n in (4, 6, 8, 9):
        compiled(t(n, 3))


def test_sizes_escape_as_plain_ints() -> None:
    compiled = Compiled(lambda x: (x.shape[0], x.size(), x.numel(), len(x), {"n": x.shape[0] + 1}, x * 2))
    for n in (3, 4, 5):
        out = compiled(t(n))
    assert type(out[0]) is int and type(out[4]["n"]) is int and type(out[1]) is torch.Size


def test_sizes_stored_in_state_are_plain_ints() -> None:
    class Holder:
        n: Any = None

    def fn(x: torch.Tensor, h: Holder, items: list[Any]) -> torch.Tensor:
        h.n = x.shape[0] * 2
        items.append(x.shape[0])
        return x + h.n

    compiled = Compiled(fn)
    holder = Holder()
    for n in (3, 4, 5):
        compiled(t(n), holder, [])
        assert type(holder.n) is int and holder.n == 2 * n


def test_equal_sizes_of_two_arguments_that_come_apart() -> None:
    compiled = Compiled(lambda x, y: torch.cat([x, y]) + x.shape[0] - y.shape[0])
    for n, m in [(3, 3), (4, 4), (5, 6), (7, 2)]:
        compiled(t(n), t(m))


def test_dynamic_true_compiles_once() -> None:
    compiled = Compiled(lambda x: x.reshape(-1) + x.shape[0], dynamic=True)
    for n in (3, 4, 5):
        compiled(t(n, 2))
    compiled.expect(1)


def test_dynamic_false_compiles_every_size() -> None:
    compiled = Compiled(lambda x: x.reshape(-1) + x.shape[0], dynamic=False)
    for n in (3, 4, 5, 4):
        compiled(t(n, 2))
    compiled.expect(3)


def test_dynamic_false_compiles_every_int() -> None:
    compiled = Compiled(lambda x, n: x + n, dynamic=False)
    for n in (3, 4, 5, 4):
        compiled(t(), n)
    compiled.expect(3)


def test_break_and_dynamic_sizes() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        n = x.shape[0]
        y = x + n
        print("size", n)
        return y * n, n

    compiled = Compiled(fn)
    for n in (3, 4, 5, 6):
        compiled(t(n))
    compiled.expect(4)


def test_growing_cache_of_key_values() -> None:
    def fn(x: torch.Tensor, cache: torch.Tensor | None) -> torch.Tensor:
        return x if cache is None else torch.cat([cache, x])

    compiled = Compiled(fn)
    cache = None
    for _ in range(7):
        cache = compiled(t(2, 2), cache)
    assert cache is not None and cache.shape == (14, 2)


@only_jitney
def test_mark_dynamic_compiles_once() -> None:
    import jitney

    compiled = Compiled(lambda x: x * x.shape[0])
    for n in (3, 4, 5):
        x = t(n, 2)
        jitney.mark_dynamic(x, 0)
        assert torch.equal(compiled.compiled(x), x * n)
    compiled.expect(1)


@only_jitney
def test_mark_static_compiles_every_size() -> None:
    import jitney

    compiled = Compiled(lambda x: x * x.shape[0])
    for n in (3, 4, 5):
        x = t(n, 2)
        jitney.mark_static(x, 0)
        assert torch.equal(compiled.compiled(x), x * n)
    compiled.expect(3)


def test_compiled_without_dynamic_argument_accepts_batches() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Flatten(0), torch.nn.Dropout(0.0))
    compiled = Compiled(model)
    for n in (2, 3, 4, 5):
        compiled(t(n, 3))
    compiled.expect(2)


def test_convolution_with_varying_image_size() -> None:
    compiled = Compiled(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, padding=1), torch.nn.MaxPool2d(2)).eval())
    for n in (4, 6, 8):
        compiled(t(1, 1, n, n + 2))


def test_compile_fn_takes_dynamic() -> None:
    assert torch.equal(compile_fn(lambda x: x + 1, dynamic=None)(t()), t() + 1)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_floats_that_are_no_numbers_are_constants(value: float) -> None:
    f = Compiled(lambda x, y: x * y)
    for y in (value, value, 2.5, value, 3.5, -value):
        f(t(3), y)
