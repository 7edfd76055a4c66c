"""Stories about control flow: breaks, generators, contexts and exceptions, with the world changed between calls."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

import torch
from helpers import disable, graph_break, outcome, storybook, t

Compile = Callable[[Any], Any]
counter = {"calls": 0}
SCALE = 2
story, test_story = storybook()


@story
def nonlocal_counters_over_breaks(compile: Compile) -> Any:
    total = 10

    def fn(x: torch.Tensor, k: int) -> Any:
        local = 0

        def bump(by: int) -> int:
            nonlocal local, total
            local += by
            graph_break()
            total += local
            return local

        return x * bump(k) + bump(1), local, total, [bump(i) for i in range(2)]

    called = compile(fn)
    out = [called(t(), k) for k in (1, 2, 5)]
    total = 0
    return out + [called(t(), 1)], total


@story
def exit_stack_with_breaks_and_errors(compile: Compile) -> Any:
    log: list[Any] = []

    @contextlib.contextmanager
    def scope(name: str, swallow: bool = False) -> Iterator[str]:
        log.append(f"enter {name}")
        try:
            yield name
        except KeyError as error:
            log.append(f"{name} saw {error.args}")
            if not swallow:
                raise
        finally:
            log.append(f"leave {name}")

    def fn(x: torch.Tensor, names: list[str], fail: bool) -> Any:
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(scope(name, swallow=name == "s"))
                x = x + len(name)
            stack.callback(log.append, x.shape)
            kept = stack.pop_all() if "p" in names else None
            graph_break()
            if fail:
                raise KeyError("failed", len(names))
        log.append("after")
        if kept is not None:
            kept.close()
        return x * 2

    called = compile(fn)
    calls = [
        (["a"], False),
        (["a", "s", "b"], True),
        (["a"], True),
        (["p", "b"], False),
        ([], False),
    ]
    return [outcome(called, t(), *c) for c in calls], log


@story
def nested_generators_with_cleanup(compile: Compile) -> Any:
    log: list[str] = []

    def inner(n: int) -> Iterator[Any]:
        try:
            for i in range(n):
                got = yield i
                if got:
                    log.append(f"got {got}")
        finally:
            log.append(f"inner {n} done")

    def outer(x: torch.Tensor, n: int) -> Iterator[Any]:
        try:
            for i in inner(n):
                yield x * i
                result = yield from inner(i)
                log.append(f"result {result}")
        except ValueError as error:
            yield x - 1
            log.append(str(error))
        finally:
            graph_break()
            log.append("outer done")

    def fn(x: torch.Tensor, n: int, stop: int) -> Any:
        out: list[Any] = []
        gen = outer(x, n)
        for i, value in enumerate(gen):
            out.append(value)
            if i == stop:
                out.append(gen.throw(ValueError(f"stop at {i}")))
                break
        log.append("loop over")
        gen.close()
        return out, next(gen, "closed")

    called = compile(fn)
    return [called(t(), *args) for args in ((3, 1), (3, 9), (2, 0), (3, 2))], log


@story
def exceptions_with_arguments_over_breaks(compile: Compile) -> Any:
    class Failed(Exception):
        def __init__(self, message: str, *, code: int, data: Any = None) -> None:
            super().__init__(message)
            self.code, self.data = code, data

        def __str__(self) -> str:
            return f"[{self.code}] {self.args[0]}"

    def check(x: torch.Tensor, k: int) -> torch.Tensor:
        if k > 2:
            raise Failed(f"k is {k}", code=k, data=x * k)
        graph_break()
        if k == 2:
            raise Failed("two", code=2) from LookupError("why")
        return x / k

    def fn(x: torch.Tensor, k: int) -> Any:
        notes = []
        try:
            y = check(x, k)
        except Failed as error:
            error.add_note(f"note {k}")
            notes += [str(error), error.code, error.data, repr(error.__cause__), error.__notes__]
            graph_break()
            y = x - error.code
            try:
                raise error
            except Exception as again:
                notes.append(again is error)
        except ZeroDivisionError:
            y = x * 0
        else:
            notes.append("fine")
        finally:
            notes.append("finally")
        return y, notes

    called = compile(fn)
    return [called(t(), k) for k in (1, 2, 3, 4, 0)], [outcome(compile(check), t(), 1)]


@story
def recursion_with_memo_and_breaks(compile: Compile) -> Any:
    memo: dict[int, Any] = {}

    def fib(x: torch.Tensor, n: int) -> torch.Tensor:
        if n in memo:
            return memo[n]
        if n < 2:
            if n:
                graph_break()
            return x * n + 1
        memo[n] = fib(x, n - 1) + fib(x, n - 2)
        return memo[n]

    def walk(tree: Any, x: torch.Tensor, path: tuple[int, ...] = ()) -> Iterator[Any]:
        if isinstance(tree, list):
            for i, child in enumerate(tree):
                yield from walk(child, x, (*path, i))
        else:
            yield path, x * tree

    called = compile(lambda x, n, tree: (fib(x, n), len(memo), list(walk(tree, x))))
    out = [called(t(), 4, [1, [2, [3]]]), called(t(), 5, [[1], 2])]
    memo.clear()
    return out + [called(t() + 1, 3, 7)]


@story
def global_counter_and_rebinding(compile: Compile) -> Any:
    global SCALE
    SCALE = 2
    counter["calls"] = 0

    def fn(x: torch.Tensor) -> Any:
        global SCALE
        counter["calls"] += 1
        y = x * SCALE
        if counter["calls"] % 2:
            SCALE += 1
            graph_break()
        counter[f"seen{SCALE}"] = y.sum()
        return y + SCALE, len(counter)

    called = compile(fn)
    out = [called(t()), called(t())]
    SCALE = 0.5
    out += [called(t()), called(t())]
    for key in [k for k in counter if k != "calls"]:
        del counter[key]
    return out, SCALE, counter["calls"]


@story
def star_arguments_and_keywords_forwarded(compile: Compile) -> Any:
    def target(a: Any, /, b: Any = 2, *rest: Any, key: Any = None, **more: Any) -> Any:
        return a * b, len(rest), key, sorted(more)

    def wrap(fn: Any) -> Any:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            kwargs.setdefault("key", len(args))
            return fn(*args, **kwargs)

        return inner

    wrapped = wrap(wrap(target))

    def fn(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        *middle, last = (x, *args, *kwargs.values())
        graph_break()
        a, *b = wrapped(x, *args[::-1], **{k + "_": v for k, v in kwargs.items()})
        return a, b, len(middle), last is x, outcome(wrapped), outcome(wrapped, b=1)

    called = compile(fn)
    return [called(t()), called(t(), 3), called(t(), 3, 4, z=1), called(t(), z=1, y=2), called(t(), y=2, z=1)]


@story
def random_numbers_across_breaks_and_generators(compile: Compile) -> Any:
    def fn(x: torch.Tensor, p: float) -> Any:
        y = torch.nn.functional.dropout(x, p)
        a = random.random()
        z = y + torch.rand_like(x)
        graph_break()
        state = torch.get_rng_state()
        w = torch.randn(2)
        torch.set_rng_state(state)
        return z, a, w, torch.randn(2), torch.randperm(4), random.choice("abc")

    called = compile(fn)
    out = [called(t(8), 0.5), called(t(8), 0.25), called(t(4), 0.5)]
    torch.manual_seed(7)
    random.seed(7)
    return out + [called(t(8), 0.5), torch.rand(1), random.random()]


@story
def loops_with_else_and_finally_over_breaks(compile: Compile) -> Any:
    log: list[Any] = []

    def fn(x: torch.Tensor, limits: list[int]) -> Any:
        for i, limit in enumerate(limits):
            try:
                while x.shape[0] < limit:
                    x = torch.cat([x, x])
                    if x.shape[0] > 6:
                        break
                    if i == 1:
                        graph_break()
                else:
                    log.append(f"reached {limit}")
                    continue
                log.append("broke")
            finally:
                log.append(i)
                if limit == 99:
                    return x.sum(), "out"
        else:
            log.append("all")
        return x * len(limits)

    called = compile(fn)
    return [called(t(2), limits) for limits in ([3, 4], [4, 99, 5], [], [2, 3, 1])], log


@story
def sorting_with_keys_and_ties(compile: Compile) -> Any:
    def fn(x: torch.Tensor, words: list[str], weights: dict[str, int]) -> Any:
        words.sort(key=lambda w: (-weights.get(w, 0), len(w), w))
        ranked = sorted(weights.items(), key=lambda kv: kv[1], reverse=True)
        groups = {k: [*g] for k, g in itertools.groupby(words, key=len)}
        best = max(words, key=len, default=None)
        used = {w[0] for w in words} & set(string.ascii_lowercase)
        return x * len(groups), ranked, groups, best, sorted(used), min(map(len, words), default=0)

    called = compile(fn)
    words = ["pear", "fig", "kiwi", "apple"]
    out = [called(t(), words, {"fig": 1, "kiwi": 1}), called(t(), words, {"apple": 3}), called(t(), [], {})]
    return out + [called(t(), ["b", "a", "b"], {"b": 1})], words


@story
def copies_of_structures_with_tensors(compile: Compile) -> Any:
    def fn(state: dict[str, Any], x: torch.Tensor) -> Any:
        shallow, deep = copy.copy(state), copy.deepcopy({"n": state["n"], "list": state["list"]})
        state["list"].append(x * state["n"])
        deep["list"].append(1)
        graph_break()
        shallow["n"] += 1
        same = shallow["list"] is state["list"]
        state.update(shallow, extra=len(shallow["list"]))
        return same, len(deep["list"]), state["n"], x + state["n"]

    called = compile(fn)
    state: dict[str, Any] = {"n": 1, "list": [0]}
    return [called(state, t()) for _ in range(3)], state


@story
def disabled_helper_mutates_what_it_gets(compile: Compile) -> Any:
    @disable
    def mutate(items: list[Any], obj: Any, x: torch.Tensor) -> Any:
        items.insert(0, len(items))
        obj["seen"] = obj.get("seen", 0) + 1
        x.add_(1)
        return items

    def fn(items: list[Any], x: torch.Tensor) -> Any:
        obj = {"a": x}
        view = x[1:]
        before = x * 1
        back = mutate(items, obj, x)
        y = view + before[1:]
        back.append("end")
        mutate(back, obj, y)
        return y, view, obj, back is items

    called = compile(fn)
    items: list[Any] = []
    return [called(items, t()) for _ in range(3)], items


@story
def unpacking_and_walrus_in_conditions(compile: Compile) -> Any:
    def fn(x: torch.Tensor, pairs: Any) -> Any:
        out = []
        it = iter(pairs)
        while (pair := next(it, None)) is not None:
            (a, b), *rest = pair
            if (total := a + b) > 3 and not (extra := rest):
                graph_break()
                out.append(x * total)
            elif total == 3:
                break
            else:
                out.append((total, rest))
        else:
            out.append("end")
        left = [*it]
        del a, b
        try:
            return out, left, extra, a  # noqa: F821
        except UnboundLocalError as error:
            return out, left, str(error)

    called = compile(fn)
    return [called(t(), p) for p in ([((1, 1),), ((2, 2),)], [((2, 2), 5), ((1, 2),), 7], [((4, 4),)])]


@story
def context_variables_and_suppressed_errors(compile: Compile) -> Any:
    def fn(x: torch.Tensor, k: Any) -> Any:
        log = []
        with contextlib.suppress(KeyError, IndexError):
            log.append(k[0])
            graph_break()
            log.append(k[5])
            log.append("never")
        with contextlib.nullcontext(x * 2) as y, torch.no_grad():
            z = y * 3
            try:
                log.append(1 / len(k))
            except ZeroDivisionError:
                log.append(torch.is_grad_enabled())
        return y, z.requires_grad, log, torch.is_grad_enabled()

    called = compile(fn)
    x = t(requires_grad=True)
    return [called(x, k) for k in ([1, 2], {}, [], {0: "a", 5: "b"})]


@story
def a_function_that_replaces_itself_and_its_callees(compile: Compile) -> Any:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def other(x: torch.Tensor) -> torch.Tensor:
        return x * 10

    table: dict[str, Any] = {"f": helper}

    def fn(x: torch.Tensor) -> Any:
        nonlocal helper
        y = helper(x) + table["f"](x)
        helper, table["f"] = table["f"], helper
        fn.calls = getattr(fn, "calls", 0) + 1  # type: ignore[attr-defined]
        return y, helper(x), fn.calls  # type: ignore[attr-defined]

    called = compile(fn)
    out = [called(t())]
    table["f"] = other
    out += [called(t()), called(t()), called(t())]
    helper = functools.partial(torch.mul, other=3)
    return out + [called(t()), called(t())]


@story
def sets_and_strings_drive_branches(compile: Compile) -> Any:
    def fn(x: torch.Tensor, flags: set[str], spec: str) -> Any:
        for part in spec.split(","):
            name, _, value = part.strip().partition("=")
            if name in flags and value.isdigit():
                x = x * int(value)
            elif name.startswith(("no_", "skip")) or not name:
                flags.discard(name.removeprefix("no_"))
            else:
                flags |= {name}
        return x, sorted(flags), flags >= {"a"}, frozenset(flags) == {"a", "b"}, spec.count(",")

    called = compile(fn)
    flags = {"a"}
    return [called(t(), flags, s) for s in ("a=2,b", "a=2,b=3", "no_a,b=3", "", "skip,a=5,a=5", "b=x")], sorted(flags)
