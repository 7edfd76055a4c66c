"""Where a program of attention looks: at all that is seen, and nowhere at once at what is hidden and called whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from jitney_lowering.attention import PRODUCTS
from jitney_lowering.attention.mask import Bound, Mask, masks, without
from jitney_lowering.index import Var, index
from jitney_lowering.ir import Value, apply, constant, load, position
from jitney_triton_gpu.attention.bounds import span

ROWS, COLUMNS, BLOCK = 37, 45, 16
Y, X = Var("y", ROWS), Var("x", COLUMNS)
products = load(PRODUCTS, Y * COLUMNS + X, torch.float32)
y, x = position(Y, torch.int64), position(X, torch.int64)


def number(n: int) -> Value:
    return constant(n, torch.int64)


def hidden(condition: Value, score: Value = products, by: float = float("-inf")) -> Value:
    return apply("where", condition, score, constant(by, torch.float32))


def window(size: int) -> Value:
    return apply("and", apply("le", x, y), apply("lt", apply("sub", y, x), number(size)))


# A score, and who sees whom.
SCORES: dict[str, tuple[Value, Callable[[int, int], bool]]] = {
    "all": (products, lambda i, j: True),
    "causal": (hidden(apply("le", x, y)), lambda i, j: j <= i),
    "what is later": (hidden(apply("ge", x, y)), lambda i, j: j >= i),
    "window": (hidden(window(13)), lambda i, j: i - 13 < j <= i),
    "both sides": (hidden(apply("le", apply("abs", apply("sub", y, x)), number(5))), lambda i, j: abs(i - j) <= 5),
    "not": (hidden(apply("not", apply("gt", x, apply("add", y, number(3))))), lambda i, j: j <= i + 3),
    "keys": (hidden(apply("lt", x, number(29))), lambda i, j: j < 29),
    "nested": (hidden(apply("lt", x, number(29)), hidden(apply("le", x, y))), lambda i, j: j < 29 and j <= i),
    "low numbers": (hidden(window(13), by=-1e30), lambda i, j: i - 13 < j <= i),
    "added": (apply("add", products, hidden(apply("le", x, y), constant(0.0, torch.float32))), lambda i, j: j <= i),
}


# The same with a number that is read.
length = load("lengths", index(0), torch.int64)
READ: dict[str, tuple[Value, Callable[[int, int, int], bool]]] = {
    "keys": (hidden(apply("lt", x, length)), lambda i, j, n: j < n),
    "not": (hidden(apply("not", apply("ge", x, length)), by=-1e30), lambda i, j, n: j < n),
    "one more": (hidden(apply("le", x, apply("add", length, number(1)))), lambda i, j, n: j <= n + 1),
    "causal": (hidden(apply("lt", x, length), hidden(apply("le", x, y))), lambda i, j, n: j < n and j <= i),
    "both": (hidden(apply("and", apply("le", x, y), apply("lt", x, length))), lambda i, j, n: j < n and j <= i),
    "left": (hidden(apply("ge", x, length)), lambda i, j, n: j >= n),
    "between": (hidden(apply("lt", x, number(40)), hidden(apply("ge", x, length))), lambda i, j, n: n <= j < 40),
}


def ranges_of(
    score: Value, first: int, columns: bool, read: int = 0
) -> tuple[list[tuple[int, int, bool]], tuple[Mask, ...]]:
    """The ranges that the program from ``first`` on goes through, and the masks that it leaves out of some."""
    count = COLUMNS if columns else ROWS
    found = masks(score, Y, X)
    made = span(found, ("first", f"(first + {BLOCK} - 1)"), count, ("BLOCK", BLOCK), columns=columns, keys=COLUMNS,
                name=lambda value: f"({str(value).replace(str(length), str(read))})")  # fmt: skip
    functions = {"minimum": min, "maximum": max, "where": lambda c, a, b: a if c else b}
    names = {"tl": type("tl", (), functions), "first": first, "BLOCK": BLOCK}
    exec("\n".join(made.lines), names)
    numbers = [(int(eval(begin, names)), int(eval(end, names)), full) for begin, end, full in made.ranges]
    return numbers, made.known


@pytest.mark.parametrize("columns", [True, False], ids=["keys", "queries"])
@pytest.mark.parametrize("name", SCORES)
def test_all_that_is_seen_is_looked_at(name: str, columns: bool) -> None:
    score, sees = SCORES[name]
    check(score, sees, columns, 0)


@pytest.mark.parametrize("columns", [True, False], ids=["keys", "queries"])
@pytest.mark.parametrize("read", [-3, 0, 1, 17, 32, 44, 45, 100])
@pytest.mark.parametrize("name", READ)
def test_numbers_that_are_read(name: str, read: int, columns: bool) -> None:
    score, sees = READ[name]
    some = all(any(sees(i, j, read) for j in range(COLUMNS)) for i in range(ROWS))
    check(score, (lambda i, j: sees(i, j, read)) if some else (lambda i, j: True), columns, read)


def check(score: Value, sees: Callable[[int, int], bool], columns: bool, read: int) -> None:
    """All that is seen is in a range, and once; nothing of a range that is called whole is hidden."""
    mine, others = (ROWS, COLUMNS) if columns else (COLUMNS, ROWS)
    for first in range(0, mine, BLOCK):
        block = range(first, min(first + BLOCK, mine))
        looked: list[int] = []
        ranges, known = ranges_of(score, first, columns, read)
        for begin, end, full in ranges:
            for start in range(begin, end, BLOCK):
                reached = range(start, start + BLOCK)
                looked += [n for n in reached if n < others]
                if full:
                    assert reached[-1] < others
                    pairs = [(i, n) if columns else (n, i) for i in block for n in reached]
                    bounds = [bound for mask in known for bound in mask.bounds]
                    assert all(left(b, i, j, read) <= 0 for i, j in pairs for b in bounds)
                    assert len(known) < len(masks(score, Y, X)) or all(sees(*pair) for pair in pairs)
        assert len(looked) == len(set(looked))
        seen = {n for i in block for n in range(others) if (sees(i, n) if columns else sees(n, i))}
        assert seen <= set(looked)


def left(bound: Bound, i: int, j: int, read: int) -> int:
    number = 0 if bound.number is None else eval(str(bound.number).replace(str(length), str(read)))
    return bound.row * i + bound.column * j + bound.constant + bound.factor * int(number)


@pytest.mark.parametrize("columns", [True, False], ids=["keys", "queries"])
@pytest.mark.parametrize("name", ["keys", "not", "causal", "both", "left"])
def test_what_is_beyond_a_number_is_not_looked_at(name: str, columns: bool) -> None:
    score, _ = READ[name]
    first, read = (16, 16) if columns else (0, 16) if name == "left" else (32, 16)
    ranges, _ = ranges_of(score, first, columns, read)
    assert sum(max(0, end - begin) for begin, end, _ in ranges) < (COLUMNS if columns else ROWS)


@pytest.mark.parametrize("name", ["causal", "window", "both sides", "low numbers"])
def test_what_is_far_is_not_looked_at(name: str) -> None:
    score, _ = SCORES[name]
    assert sum(max(0, end - begin) for begin, end, _ in ranges_of(score, 0, True)[0]) < COLUMNS
    assert str(without(score, ranges_of(score, 0, True)[1])) == str(products)


def test_where_a_query_sees_nothing_all_is_looked_at() -> None:
    """All gradients of values are nan then."""
    assert masks(hidden(apply("lt", x, apply("sub", y, number(4)))), Y, X) == []


@pytest.mark.parametrize("divisor, bounded", [(8.0, True), (1e-9, False), (0.0, False)])
def test_scores_that_are_divided(divisor: float, bounded: bool) -> None:
    score = hidden(apply("le", x, y), apply("div", products, constant(divisor, torch.float32)), by=-1e30)
    assert bool(masks(score, Y, X)) == bounded


@pytest.mark.parametrize("beside", [load("bias", X, torch.float32), constant(-1e9, torch.float32)], ids=["bias", "low"])
def test_low_numbers_beside_what_may_be_as_low_are_numbers(beside: Value) -> None:
    assert masks(apply("add", hidden(apply("le", x, y), by=-1e9), beside), Y, X) == []


def test_integers_that_may_wrap_are_not_compared() -> None:
    small = [apply("cast", v, dtype=torch.uint8) for v in (x, y)]
    (mask,) = masks(hidden(apply("le", *small)), Y, X)
    assert mask.bounds == () and not mask.exact
