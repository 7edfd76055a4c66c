"""List, set, dict comprehensions and generator expressions, nested and with closures."""

from __future__ import annotations

from typing import Any

import torch
from helpers import check, t


def test_list_comprehension_over_range() -> None:
    check(lambda x: [x + i for i in range(3)], t(), graphs=1)


def test_list_comprehension_with_conditions() -> None:
    check(lambda x, n: [x * i if i % 2 else -i for i in range(n) if i != 3 if i < 6], t(), 8, graphs=1)


def test_set_comprehension() -> None:
    check(lambda x, items: ({i % 3 for i in items}, x + 1), t(), [1, 2, 3, 4, 5], graphs=1)


def test_dict_comprehension() -> None:
    check(lambda x, d: {k.upper(): x * v for k, v in d.items() if v}, t(), {"a": 1, "b": 0, "c": 3}, graphs=1)


def test_generator_expression_in_calls() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        total = sum(x * i for i in range(4))
        longest = max((i for i in (3, 1, 2)), key=lambda v: -v)
        joined = ",".join(str(i) for i in range(3))
        return (
            total,
            longest,
            joined,
            tuple(x + i for i in range(2)),
            any(i > 1 for i in range(3)),
            all(i for i in (1, 0)),
        )

    check(fn, t(), graphs=1)


def test_nested_loops_in_one_comprehension() -> None:
    check(lambda x: [(i, j, x + i * j) for i in range(3) for j in range(i) if i + j > 1], t(), graphs=1)


def test_nested_comprehensions() -> None:
    check(lambda x: [[x[i, j] * 2 for j in range(x.shape[1])] for i in range(x.shape[0])], t(2, 3), graphs=1)


def test_comprehension_closes_over_locals() -> None:
    def fn(x: torch.Tensor, scale: float) -> tuple[Any, ...]:
        offset = scale + 1
        rows = [[x * scale + offset + i for i in range(2)] for _ in range(2)]
        scale = 10
        return rows, {i: offset + scale for i in range(2)}

    check(fn, t(), 2.0, graphs=1)


def test_lambdas_made_in_comprehension_share_the_last_value() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        late = [lambda: x + i for i in range(3)]
        early = [lambda i=i: x + i for i in range(3)]
        return [f() for f in late], [f() for f in early]

    check(fn, t(), graphs=1)


def test_comprehension_does_not_leak_its_variable() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        i = 100
        items = [i for i in range(3)]
        return items, i, x + i

    check(fn, t(), graphs=1)


def test_comprehension_over_tensor() -> None:
    check(lambda x: [row.sum() for row in x], t(3, 2), graphs=1)


def test_comprehension_over_zip_enumerate_dict_views() -> None:
    def fn(x: torch.Tensor, d: dict[str, int]) -> tuple[Any, ...]:
        return (
            [(i, a, x + b) for i, (a, b) in enumerate(zip("ab", (1, 2), strict=False), start=5)],
            [k for k in d],
            [v for v in d.values()],
            {v: k for k, v in reversed(d.items())},
        )

    check(fn, t(), {"p": 1, "q": 2}, graphs=1)


def test_comprehension_in_class_body() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        class Holder:
            sizes = [i * 2 for i in range(3)]

        return Holder.sizes, x + Holder.sizes[1]

    check(fn, t(), graphs=1)


def test_generator_expression_is_lazy() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        seen: list[int] = []

        def note(i: int) -> int:
            seen.append(i)
            return i

        gen = (x + note(i) for i in range(10))
        first = next(gen)
        second = next(gen)
        return first, second, seen, next(iter([]), "default")

    check(fn, t(), graphs=1)


def test_generator_expression_evaluates_first_iterable_early() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        items = [1, 2]
        gen = (x * i for i in items)
        items = [5]
        other = [3]
        late = (i for _ in range(1) for i in other)
        other = [4]
        return list(gen), list(late), items

    check(fn, t(), graphs=1)


def test_generator_expression_passed_to_function() -> None:
    def consume(it: Any) -> Any:
        total = None
        for v in it:
            total = v if total is None else total + v
        return total

    check(lambda x: consume(x * i for i in range(1, 4)), t(), graphs=1)


def test_set_and_dict_comprehension_with_duplicates_keep_last() -> None:
    check(lambda x: ({i % 2: i for i in range(5)}, {i // 2 for i in range(5)}, x + 1), t(), graphs=1)


def test_comprehension_with_method_calls_and_attributes() -> None:
    check(lambda x, names: [n.strip().split("=")[0] for n in names if "=" in n] + [x + 1], t(), [" a=1", "b", "c=2"])


def test_comprehension_with_exception_inside() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> Any:
        try:
            return [x / (10 // i) for i in items]
        except ZeroDivisionError as e:
            return str(e), x - 1

    check(fn, t(), [1, 0], graphs=1)


def test_walrus_in_comprehension_binds_in_function() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        values = [last := x + i for i in range(3)]
        return values[-1] is last, last

    check(fn, t(), graphs=1)


def test_star_unpacking_of_generator() -> None:
    check(lambda x: torch.stack([*(x + i for i in range(3))]), t(), graphs=1)
    check(lambda x: torch.cat(tuple(x * i for i in range(2))), t(), graphs=1)
