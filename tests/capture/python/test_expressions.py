"""Slices, unpacking, f-strings, walrus, assert, lambdas in expressions.

PYTEST_DONT_REWRITE: the asserts are under test.
"""

# ruff: noqa: PIE800, PIE804

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import check, t


@pytest.mark.parametrize(
    "s", [slice(1, 3), slice(None, None, 2), slice(-2, None), slice(None, None, -1), slice(5, 1, -2), slice(None)]
)
def test_slice_of_list_tuple_and_string(s: slice) -> None:
    def fn(x: torch.Tensor, items: list[int], tup: tuple[int, ...], text: str) -> tuple[Any, ...]:
        return items[s], tup[s], text[s], x + len(items[s])

    check(fn, t(), [1, 2, 3, 4, 5, 6], (1, 2, 3, 4, 5, 6), "abcdef", graphs=1)


def test_slice_assignment_and_deletion() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> list[Any]:
        items[1:2] = [x, x + 1]
        items[::2] = ["a"] * len(items[::2])
        items[:0] = [0]
        del items[-1:]
        return items

    check(fn, t(), [1, 2, 3, 4], calls=1, graphs=1)


def test_slice_object_attributes() -> None:
    def fn(x: torch.Tensor, s: slice) -> tuple[Any, ...]:
        start, stop, step = s.indices(x.shape[0])
        return s.start, s.stop, s.step, start, stop, step, x[s], slice(1, 2) == slice(1, 2)

    check(fn, t(6), slice(1, None, 2), graphs=1)


def test_unpacking() -> None:
    def fn(x: torch.Tensor, pair: tuple[Any, Any], nested: list[Any]) -> tuple[Any, ...]:
        a, b = pair
        (c, d), e = nested
        [f, *g] = [1, 2, 3]
        *h, i = "xyz"
        j, *k, m = range(5)
        a, b = b, a
        return a, b, c, d, e, f, g, h, i, j, k, m, x + j + m

    check(fn, t(), (1, 2), [(3, 4), 5], graphs=1)


def test_unpacking_of_tensors_and_shapes() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        n, m = x.shape
        first, second = x
        q, k, v = x.repeat(3, 1).chunk(3)
        values, indices = x.max(dim=1)
        head, *rest = x.unbind(1)
        return n, m, first, second, q, k, v, values, indices, head, rest

    check(fn, t(2, 4), graphs=1)


def test_unpacking_in_displays_and_calls() -> None:
    def add(*args: Any, **kwargs: Any) -> Any:
        return sum(args) + sum(kwargs.values())

    def fn(x: torch.Tensor, items: list[int], d: dict[str, int]) -> tuple[Any, ...]:
        merged = {**d, "z": 9, **{"y": 8}}
        return [*items, 0, *items], (*items,), {*items, 7}, merged, add(x, *items, 5, *items, **d, w=1), x + 1

    check(fn, t(), [1, 2], {"a": 3}, graphs=1)


def test_unpacking_wrong_length_raises_as_eager() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        a, b = items
        return x + a + b

    check(fn, t(), [1, 2, 3], raises=ValueError)
    check(fn, t(), [1], raises=ValueError)


def test_starred_assignment_too_short_raises_as_eager() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        a, *b, c = items
        return x + a + c

    check(fn, t(), [1], raises=ValueError)


def test_f_strings() -> None:
    def fn(x: torch.Tensor, n: int, f: float, s: str) -> tuple[Any, ...]:
        w = 8
        return (
            f"{n} {f:.2f} {s!r} {s:>5}|{n:05d}|{f:e}|{n:,}",
            f"{n=} {f!s:>{w}} {n + 1} {{braces}} {'nested ' + s}",
            f"{x.shape} {x.dtype} {x.shape[0]}",
            f"{n:#x} {n:b} {s!a}",
            "%d %s %.1f" % (n, s, f),
            "{0} {name} {0!r}".format(n, name=s) if n else "",
            x + n,
        )

    check(fn, t(2, 3), 1234, 3.14159, "hé", graphs=1)


def test_f_string_calls_user_format() -> None:
    class Money:
        def __init__(self, n: int) -> None:
            self.n = n

        def __format__(self, spec: str) -> str:
            return f"<{self.n}:{spec}>"

        def __str__(self) -> str:
            return "money"

        def __repr__(self) -> str:
            return "Money()"

    def fn(x: torch.Tensor) -> tuple[str, torch.Tensor]:
        m = Money(3)
        return f"{m:abc} {m} {m!s} {m!r} {format(m, 'q')} {str(m)} {repr(m)}", x + m.n

    check(fn, t(), graphs=1)


def test_f_string_of_a_tensor_prints_its_values() -> None:
    check(lambda x: (f"{x}", f"{x.sum()}", x + 1), t())


def test_walrus() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        if (n := len(items)) > 2:
            x = x + n
        while (m := n) > 0:
            n -= 1
        found = [y for i in items if (y := i * 2) > 2]
        return x, n, m, y, found, (z := x * 2), z

    check(fn, t(), [1, 2, 3], graphs=1)


def test_assert_passes_and_fails() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        assert n > 0, f"n is {n}"
        assert x.shape[0] == 3
        return x + n

    check(fn, t(), 1, graphs=1)
    check(fn, t(), -1, raises=AssertionError)


def test_assert_on_tensor_value() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        assert y.sum() > 0, "not positive"
        return y * 2

    check(fn, t())
    check(fn, t() - 100, raises=AssertionError)


def test_assert_without_message() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        assert items
        return x + 1

    check(fn, t(), [1], graphs=1)
    check(fn, t(), [], raises=AssertionError)


def test_lambda_forms() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        add = lambda a, b=2, *c, d=4, **e: a + b + sum(c) + d + len(e)  # noqa: E731
        twice = lambda f: lambda v: f(f(v))  # noqa: E731
        return add(x), add(x, 1, 5, 6, d=7, z=1), twice(lambda v: v * 3)(x), (lambda: x)()

    check(fn, t(), graphs=1)


def test_subscripts_nested_and_mixed() -> None:
    def fn(x: torch.Tensor, data: dict[str, Any]) -> torch.Tensor:
        data["a"][1]["b"][0] += 1
        return data["a"][1]["b"][0] + x[0][1] + data["t"][1]

    check(fn, t(2, 2), {"a": [0, {"b": [5]}], "t": (1, 2)}, calls=1, graphs=1)


def test_dict_and_set_displays_keep_order() -> None:
    def fn(x: torch.Tensor, k: str) -> dict[Any, Any]:
        return {"z": 1, k: x + 1, 3: [x], (1, 2): {"n": None}, "a": {1, 2}}

    check(fn, t(), "key", graphs=1)


def test_constants_of_every_kind() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        return (
            1,
            -2.5,
            3j,
            "s",
            b"b",
            None,
            True,
            ...,
            (1, (2, 3)),
            frozenset({1}),
            10**30,
            float("nan"),
            float("inf"),
            x,
        )

    check(fn, t())


def test_multiple_targets_and_evaluation_order() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        seen: list[str] = []

        def note(s: str, v: Any) -> Any:
            seen.append(s)
            return v

        d: dict[Any, Any] = {}
        a = b = d[note("key", "k")] = note("value", x + 1)
        note("obj", d)[note("k2", 1)] = note("v2", 2)
        pair = (note("l", 1), note("r", 2))
        return a is b, d, pair, seen

    check(fn, t(), graphs=1)


def test_global_names_of_builtins_and_modules() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        return __name__, torch.float32, len([1]), torch.nn.functional.relu(x), torch.pi

    check(fn, t(), graphs=1)


def test_undefined_names_raise_as_eager() -> None:
    def unbound(x: torch.Tensor, flag: bool) -> torch.Tensor:
        if flag:
            y = x + 1
        return y

    def missing(x: torch.Tensor) -> torch.Tensor:
        return x + no_such_name  # type: ignore[name-defined]  # noqa: F821

    check(unbound, t(), False, raises=UnboundLocalError)
    check(unbound, t(), True, graphs=1)
    check(missing, t(), raises=NameError)


def test_tensor_conversion_in_conditions_of_known_value() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 2 and x.dim() == 1 and x.dtype == torch.float32 and not x.requires_grad:
            return x + 1
        return x - 1

    check(fn, t(), graphs=1)


def test_large_expression_with_many_temporaries() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x + 1) * (x + 2) - ((x + 3) / (x + 40) + (x * (x - (x + (x - (x * 2))))))

    check(fn, t(), graphs=1)


def test_type_annotations_inside_function() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + 1
        z: int
        z = 3
        return y * z

    check(fn, t(), graphs=1)


def test_imports_inside_function() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        import math
        from math import floor as fl

        import torch.nn.functional as functional

        return functional.relu(x) + math.sqrt(4) + fl(2.5)

    check(fn, t(), graphs=1)
