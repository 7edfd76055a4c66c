"""Generators (yield from, send, throw, close, return values), iterators written as classes, itertools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import check, t


def numbers(x: torch.Tensor, n: int) -> Iterator[torch.Tensor]:
    for i in range(n):
        yield x + i


def test_consumed_by_for_and_by_builtins() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        total = torch.zeros_like(x)
        for v in numbers(x, 3):
            total = total + v
        a, b = numbers(x, 2)
        first, *rest = numbers(x, 3)
        return (
            total,
            a,
            b,
            first,
            rest,
            list(numbers(x, 2)),
            tuple(numbers(x, 1)),
            sum(numbers(x, 2)),
            dict(enumerate(numbers(x, 2))),
        )

    check(fn, t(), graphs=1)


def test_next_with_and_without_default() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        gen = numbers(x, 1)
        first = next(gen)
        second = next(gen, "end")
        try:
            next(gen)
        except StopIteration as e:
            third = e.value
        return first, second, third

    check(fn, t(), graphs=1)


def test_send_and_return_value() -> None:
    def averager(x: torch.Tensor) -> Any:
        total, count = x, 1
        while True:
            got = yield total / count
            if got is None:
                return total, count
            total, count = total + got, count + 1

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        gen = averager(x)
        out = [next(gen), gen.send(x * 2), gen.send(1)]
        try:
            gen.send(None)
        except StopIteration as e:
            out.append(e.value)
        return tuple(out)

    check(fn, t(), graphs=1)


def test_send_to_a_fresh_generator_raises() -> None:
    def fn(x: torch.Tensor) -> Any:
        gen = numbers(x, 1)
        try:
            gen.send(1)  # type: ignore[attr-defined]
        except TypeError as e:
            return str(e), x + 1

    check(fn, t())


def test_yield_from_with_result_and_lists() -> None:
    def inner(x: torch.Tensor) -> Any:
        got = yield x + 1
        yield x * got
        return "inner done"

    def outer(x: torch.Tensor) -> Any:
        result = yield from inner(x)
        yield result
        yield from [1, 2]
        yield from numbers(x, 2)
        return "outer done"

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        gen = outer(x)
        return next(gen), gen.send(3), *gen

    check(fn, t(), graphs=1)


def test_throw_caught_and_uncaught() -> None:
    def guarded(log: list[str]) -> Any:
        try:
            while True:
                try:
                    yield "ready"
                except ValueError as e:
                    log.append(str(e))
                    yield "recovered"
        finally:
            log.append("finally")

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[str] = []
        gen = guarded(log)
        out = [next(gen), gen.throw(ValueError("v")), next(gen)]
        try:
            gen.throw(KeyError("k"))
        except KeyError as e:
            out.append(e.args)
        return out, log, x + 1

    check(fn, t(), graphs=1)


def test_close_runs_finally_and_catches_generator_exit() -> None:
    def guarded(log: list[str]) -> Any:
        try:
            yield 1
            yield 2
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("finally")

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[str] = []
        gen = guarded(log)
        first = next(gen)
        gen.close()
        gen.close()
        return first, log, next(gen, None), x + 1

    check(fn, t(), graphs=1)


def test_delegated_throw_and_close() -> None:
    def inner(log: list[str]) -> Any:
        try:
            yield 1
        except ValueError:
            log.append("inner caught")
            yield 2
        finally:
            log.append("inner finally")

    def outer(log: list[str]) -> Any:
        try:
            yield from inner(log)
        finally:
            log.append("outer finally")

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[str] = []
        gen = outer(log)
        out = [next(gen), gen.throw(ValueError())]
        gen.close()
        return out, log, x + 1

    check(fn, t(), graphs=1)


def test_infinite_generator_and_pipelines() -> None:
    def count() -> Iterator[int]:
        n = 0
        while True:
            yield n
            n += 1

    def squares(it: Any) -> Iterator[int]:
        for v in it:
            yield v * v

    def take(n: int, it: Any) -> Iterator[int]:
        for _, v in zip(range(n), it, strict=False):
            yield v

    check(lambda x: [x + v for v in take(4, squares(count()))], t(), graphs=1)


def test_recursive_generator() -> None:
    def walk(tree: Any) -> Iterator[Any]:
        if isinstance(tree, list):
            for child in tree:
                yield from walk(child)
        else:
            yield tree

    check(lambda x, tree: [x * v for v in walk(tree)], t(), [1, [2, [3, 4]], 5], graphs=1)


def test_generator_method_and_iter_protocol() -> None:
    class Tree:
        def __init__(self, value: Any, *children: Any) -> None:
            self.value, self.children = value, children

        def __iter__(self) -> Iterator[Any]:
            yield self.value
            for child in self.children:
                yield from child

    check(lambda x: [x + v for v in Tree(1, Tree(2), Tree(3, Tree(4)))], t(), graphs=1)


def test_generator_returned_and_consumed_outside() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        return (y + i for i in range(3))

    check(fn, t())
    check(lambda x: numbers(x + 1, 2), t())


def test_compiled_generator_function() -> None:
    check(numbers, t(), 3, skips=None)


def test_partly_consumed_generator_returned() -> None:
    def fn(x: torch.Tensor) -> Any:
        gen = numbers(x, 4)
        return next(gen), gen, x + 1

    check(fn, t())


def test_exception_inside_generator() -> None:
    def bad(x: torch.Tensor) -> Iterator[Any]:
        yield x + 1
        raise ValueError("in generator")

    def fn(x: torch.Tensor) -> Any:
        out = []
        try:
            for v in bad(x):
                out.append(v)
        except ValueError as e:
            return out, str(e)

    check(fn, t(), graphs=1)


def test_stop_iteration_inside_generator_becomes_runtime_error() -> None:
    def bad() -> Iterator[int]:
        yield next(iter([]))

    def fn(x: torch.Tensor) -> Any:
        try:
            list(bad())
        except RuntimeError as e:
            return str(e), x + 1

    check(fn, t())


@pytest.mark.parametrize("how", ["break", "raise", "return", "del"])
def test_abandoned_generator_is_closed(how: str) -> None:
    def guarded(x: torch.Tensor, log: list[str]) -> Iterator[torch.Tensor]:
        try:
            yield x + 1
            yield x + 2
        finally:
            log.append("closed")

    def inner(x: torch.Tensor, log: list[str]) -> Any:
        if how == "del":
            gen = guarded(x, log)
            x = next(gen)
            del gen
        else:
            for v in guarded(x, log):
                if how == "break":
                    break
                if how == "raise":
                    raise ValueError("abandoned")
                return v
        log.append("after")
        return x

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[str] = []
        try:
            y = inner(x, log)
        except ValueError:
            y = x * 2
        log.append("end")
        return y, log

    check(fn, t())


def test_generator_handed_to_c_is_lazy() -> None:
    def stepwise(x: torch.Tensor, log: list[int]) -> Iterator[torch.Tensor]:
        for i in range(3):
            x.add_(1)
            log.append(i)
            yield x

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[int] = []
        total = sum(stepwise(x, log))
        flags = any(len(log) > 4 for _ in stepwise(x, log))
        pairs = [(len(log), v.sum()) for v, _ in zip(stepwise(x, log), "ab", strict=False)]
        mapped = [n for n in map(lambda v: len(log), stepwise(x, log))]
        return total, flags, pairs, mapped, log

    check(fn, t())


def test_class_iterator() -> None:
    class Countdown:
        def __init__(self, n: int) -> None:
            self.n = n

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            if self.n <= 0:
                raise StopIteration
            self.n -= 1
            return self.n

    def fn(x: torch.Tensor, old: Countdown) -> tuple[Any, ...]:
        return (
            [x + i for i in Countdown(3)],
            next(old),
            list(old),
            sum(Countdown(4)),
            list(zip(Countdown(2), "ab", strict=False)),
        )

    check(fn, t(), Countdown(4), calls=2)


def test_iter_with_sentinel() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        items = [3, 2, 1, 0, 5]
        return list(iter(lambda: items.pop(0), 0)), items, x + 1

    check(fn, t())


ITERTOOLS: dict[str, Any] = {
    "chain": lambda x: [x + i for i in itertools.chain([1], (2, 3), range(2))],
    "chain from_iterable": lambda x: [x * i for i in itertools.chain.from_iterable([[1, 2], [3]])],
    "product": lambda x: [(a, b, x + a) for a, b in itertools.product([1, 2], "ab")],
    "product repeat": lambda x: [sum(p) + x for p in itertools.product([0, 1], repeat=2)],
    "permutations": lambda x: [x * a - b for a, b in itertools.permutations([1, 2, 3], 2)],
    "combinations": lambda x: [x * a - b for a, b in itertools.combinations([1, 2, 3], 2)],
    "combinations_with_replacement": lambda x: [
        x + a * b for a, b in itertools.combinations_with_replacement([1, 2], 2)
    ],
    "islice": lambda x: [x + i for i in itertools.islice(itertools.count(5, 2), 1, 6, 2)],
    "islice of list": lambda x: list(itertools.islice([x, x + 1, x + 2], 2)),
    "count": lambda x: [x + i for i, _ in zip(itertools.count(3), "ab", strict=False)],
    "cycle": lambda x: [x * i for i, _ in zip(itertools.cycle([1, 2]), range(5), strict=False)],
    "repeat": lambda x: list(itertools.repeat(x + 1, 2)),
    "accumulate": lambda x: list(itertools.accumulate([x, x, x])),
    "accumulate func": lambda x: list(itertools.accumulate([1, 2, 3], lambda a, b: a * b, initial=10)) + [x + 1],
    "zip_longest": lambda x: [(a, b, x + a) for a, b in itertools.zip_longest([1, 2], [3], fillvalue=0)],
    "takewhile": lambda x: [x + i for i in itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])],
    "dropwhile": lambda x: [x + i for i in itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1])],
    "filterfalse": lambda x: [x + i for i in itertools.filterfalse(lambda v: v % 2, range(4))],
    "starmap": lambda x: list(itertools.starmap(lambda a, b: x * a + b, [(1, 2), (3, 4)])),
    "groupby": lambda x: [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3], key=lambda v: v % 2)] + [x + 1],
    "pairwise": lambda x: [x + a - b for a, b in itertools.pairwise([1, 4, 9])],
    "compress": lambda x: list(itertools.compress([x, x + 1, x + 2], [1, 0, True])),
    "tee": lambda x: [(list(a), next(b)) for a, b in [itertools.tee([x, x + 1])]],
}


@pytest.mark.parametrize("name", ITERTOOLS)
def test_itertools(name: str) -> None:
    check(ITERTOOLS[name], t())


def test_iterator_state_is_shared() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        it = iter(items)
        pairs = list(zip(it, it, strict=False))
        other = iter(items)
        head = next(other)
        return pairs, head, [x + v for v in other], list(other), next(it, None)

    check(fn, t(), [1, 2, 3, 4, 5], graphs=1)


def test_reversed_sorted_zip_enumerate_objects() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        z = zip(items, reversed(items), strict=True)
        e = enumerate(items, start=10)
        return next(z), next(e), list(z), list(e), [*map(lambda a, b: x + a * b, items, items)], *reversed((x, x + 1))

    check(fn, t(), [1, 2, 3], graphs=1)


def test_zip_strict_raises() -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            return list(zip([1, 2], [1], strict=True))
        except ValueError as e:
            return str(e), x + 1

    check(fn, t())


def failing(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x
    raise ValueError("no more")


class Failing:
    def __iter__(self) -> Iterator[int]:
        yield 1
        raise ValueError("no more")


def listed(*values: Any) -> list[Any]:
    return [*values]


def test_what_iterables_raise_is_caught_where_calls_and_searches_go_through_them() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        texts = []
        for ask in (lambda: listed(*failing(x)), lambda: 5 in Failing(), lambda: 5 in (v.dim() for v in failing(x))):
            try:
                texts.append(ask())
            except ValueError as error:
                texts.append(str(error))
        return x * 2, texts

    check(fn, t(3), graphs=1)


def test_a_starred_argument_that_is_not_iterable_is_named_as_python_names_it() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        texts = []
        nothing: Any = None
        for ask in (lambda: listed(*nothing), lambda: listed(1, *nothing)):
            try:
                ask()
            except TypeError as error:
                texts.append(str(error))
        return x * 2, texts

    check(fn, t(3))
