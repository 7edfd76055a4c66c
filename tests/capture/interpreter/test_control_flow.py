"""while, for, else, break, continue, if; nested; with try."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import check, t


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_if_elif_else(n: int) -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        if n == 0:
            y = x + 1
        elif n == 1:
            y = x * 2
        elif n == 2 and x.shape[0] == 3:
            y = x - 1
        else:
            y = -x
        return y

    check(fn, t(), n, graphs=1)


@pytest.mark.parametrize("n", [0, 3, 10])
def test_while_else(n: int) -> None:
    def fn(x: torch.Tensor, n: int) -> tuple[Any, ...]:
        i = 0
        while i < n:
            i += 1
            if i == 2:
                continue
            x = x + i
            if i > 5:
                break
        else:
            x = -x
        return x, i

    check(fn, t(), n)


@pytest.mark.parametrize("stop", [0, 2, 99])
def test_for_else_break_continue(stop: int) -> None:
    def fn(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        seen = []
        for i in items:
            if i == stop:
                break
            if i % 2:
                continue
            x = x * 2
            seen.append(i)
        else:
            seen.append("else")
        return x, seen, i

    check(fn, t(), [1, 2, 3, 4, 0], graphs=None)


def test_nested_loops_with_breaks_out_of_the_inner() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        found = []
        for i in range(4):
            for j in range(4):
                if j > i:
                    break
                if (i + j) % 2:
                    continue
                x = x + i * j
                found.append((i, j))
            else:
                found.append(i)
                continue
            found.append(-i)
        return x, found

    check(fn, t(), graphs=1)


def test_loop_variable_and_loop_over_nothing() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> Any:
        for _ in []:
            x = x * 100
        for i, j in enumerate(items):
            pass
        return x + i + j

    check(fn, t(), [5, 6], graphs=1)
    check(fn, t(), [], raises=UnboundLocalError)


def test_loop_over_every_kind_of_iterable() -> None:
    def fn(x: torch.Tensor, d: dict[str, int], s: str) -> tuple[Any, ...]:
        out: list[Any] = []
        for k in d:
            out.append(k)
        for k, v in d.items():
            out.append((k, v))
        for c in s:
            out.append(c)
        for v in d.values():
            out.append(v)
        for b in b"ab":
            out.append(b)
        for i in range(5, 0, -2):
            out.append(i)
        for a, b in zip((1, 2), [3, 4], strict=True):
            out.append(a * b)
        for r in reversed([1, 2]):
            out.append(r)
        for f in map(lambda v: v + 1, filter(None, [0, 1, 2])):
            out.append(f)
        for row in x:
            out.append(row * 2)
        for n in x.shape:
            out.append(n)
        for u in sorted({3, 1}):
            out.append(u)
        return tuple(out)

    check(fn, t(2, 2), {"a": 1, "b": 2}, "xyz", graphs=1)


def test_loop_modifying_the_list_it_runs_over() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        for i in items:
            if i < 4:
                items.append(i + 2)
            x = x + i
        return x, items

    check(fn, t(), [1, 2], calls=1, graphs=1)


def test_return_from_within_loops_and_try() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        for i in range(10):
            try:
                while True:
                    if i == n:
                        return x + i
                    break
            finally:
                x = x * 2
        return "end"

    check(fn, t(), 3)
    check(fn, t(), 30)


def test_loop_with_tensor_accumulator_over_many_steps() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x)
        for i in range(30):
            h = torch.tanh(h + x * i)
        return h

    check(fn, t(), graphs=1)


def test_while_with_complex_conditions() -> None:
    def fn(x: torch.Tensor, queue: list[int]) -> tuple[Any, ...]:
        out = []
        while queue and (head := queue.pop(0)) < 10 or not out:
            out.append(head)
            if head * 2 < 30:
                queue.append(head * 2)
            x = x + head
        return x, out

    check(fn, t(), [1, 5], calls=1, graphs=1)


def test_recursion() -> None:
    def fib(n: int, x: torch.Tensor) -> torch.Tensor:
        return x if n < 2 else fib(n - 1, x) + fib(n - 2, x)

    def even(n: int) -> bool:
        return True if n == 0 else odd(n - 1)

    def odd(n: int) -> bool:
        return False if n == 0 else even(n - 1)

    check(lambda x: (fib(6, x), even(10), odd(7)), t(), graphs=1)


def test_unbounded_recursion_raises_as_eager() -> None:
    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        return down(x, n + 1)

    check(lambda x: type(_caught(down, x)).__name__, t(), calls=1, skips=None)


def _caught(f: Any, x: torch.Tensor) -> BaseException | None:
    try:
        f(x, 0)
    except RecursionError as e:
        return e
    return None


def test_beam_search_like_bookkeeping() -> None:
    def fn(x: torch.Tensor, width: int) -> tuple[Any, ...]:
        beams: list[tuple[float, list[int]]] = [(0.0, [])]
        for step in range(3):
            grown = []
            for score, path in beams:
                for choice in range(3):
                    grown.append((score + (choice * 7 + step * 3) % 5, [*path, choice]))
            grown.sort(key=lambda p: (-p[0], p[1]))
            beams = grown[:width]
        return beams, x * beams[0][0]

    check(fn, t(), 2, graphs=1)
