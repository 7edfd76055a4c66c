"""Functions: closures, cells, global, nonlocal, arguments of every kind, lambdas, decorators."""

# ruff: noqa: PIE800, PIE804

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_made, t

OFFSET = 3


def uses_global(x: torch.Tensor) -> torch.Tensor:
    return x + OFFSET


def test_global_read() -> None:
    check(uses_global, t(), graphs=1)


def test_closure_read() -> None:
    n, w = 2, t()
    check(lambda x: x * n + w, t(), graphs=1)


def test_nested_closures_three_deep() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        a = x + 1

        def one() -> torch.Tensor:
            b = a * 2

            def two() -> torch.Tensor:
                c = b - a

                def three() -> torch.Tensor:
                    return a + b + c

                return three()

            return two()

        return one()

    check(fn, t(), graphs=1)


def test_nonlocal_counter() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        count = 0

        def bump(by: int = 1) -> int:
            nonlocal count
            count += by
            return count

        def nested() -> None:
            def inner() -> None:
                nonlocal count
                count *= 10

            inner()

        bump()
        bump(2)
        nested()
        return count, x + bump()

    check(fn, t(), graphs=1)


def test_cell_captured_before_assignment() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        def later() -> torch.Tensor:
            return y * 2

        try:
            later()
        except NameError as e:
            message = str(e)
        y = x + 1
        return later(), message

    check(fn, t(), graphs=1)


def test_cell_deleted() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x

        def read() -> torch.Tensor:
            return y  # noqa: F821

        first = read() + 1
        del y
        try:
            read()
            return first, "no"
        except NameError:
            return first, "deleted"

    check(fn, t(), graphs=1)


def test_returned_closure_is_called_by_eager_code() -> None:
    def make() -> Any:
        def fn(x: torch.Tensor) -> Any:
            n = 2
            y = x * n

            def scaled(v: torch.Tensor) -> torch.Tensor:
                nonlocal n
                n += 1
                return v * y * n

            return scaled

        return fn

    check_made(make, t())
    fn = make()
    from helpers import compile_fn

    eager, compiled = fn(t()), compile_fn(fn)(t())
    for _ in range(2):
        assert torch.equal(eager(t()), compiled(t()))
    assert compiled.__closure__[0].cell_contents == 4


def test_two_returned_closures_share_their_cell() -> None:
    from helpers import compile_fn

    def fn(x: torch.Tensor) -> Any:
        value = x + 1

        def put(v: torch.Tensor) -> None:
            nonlocal value
            value = v

        return put, lambda: value

    put, get = compile_fn(fn)(t())
    assert torch.equal(get(), t() + 1)
    put(t() * 5)
    assert torch.equal(get(), t() * 5)


ARGUMENT_CALLS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "positional": lambda f, x: f(x, 2, 3),
    "keywords": lambda f, x: f(x, b=2, c=3),
    "keyword only": lambda f, x: f(x, 2, d=5),
    "star": lambda f, x: f(*[x, 2, 3, 4, 5]),
    "double star": lambda f, x: f(x, **{"b": 2, "zzz": 3}),
    "mixed": lambda f, x: f(x, *(1,), c=2, **{"d": 4}, e=6),
    "many stars": lambda f, x: f(*(x,), 1, *[2, 3], **{"d": 1}, **{"q": 2}),
    "defaults": lambda f, x: f(x),
    "missing": lambda f, x: f(),
    "twice": lambda f, x: f(x, 1, b=2),
    "unhashable keys": lambda f, x: f(x, **{1: 2}),
    "duplicate keyword": lambda f, x: f(x, **{"q": 1}, **{"q": 2}),
}


@pytest.mark.parametrize("name", ARGUMENT_CALLS)
def test_binding_of_arguments(name: str) -> None:
    def f(a: torch.Tensor, b: int = 10, *rest: int, c: int = 20, d: int = 30, **kw: Any) -> tuple[Any, ...]:
        return a + b, rest, c, d, kw

    def fn(x: torch.Tensor) -> Any:
        try:
            return ARGUMENT_CALLS[name](f, x)
        except TypeError as e:
            return str(e), x + 1

    check(fn, t())


def test_positional_only_and_missing_keyword_only() -> None:
    def f(a: Any, /, b: Any, *, c: Any) -> Any:
        return a + b + c

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        errors = []
        for call in (lambda: f(a=x, b=1, c=2), lambda: f(x, 1), lambda: f(x, 1, 2), lambda: f(x, 1, c=2, d=3)):
            try:
                call()
            except TypeError as e:
                errors.append(str(e))
        return f(x, b=1, c=2), errors

    check(fn, t())


def test_positional_only_name_reused_in_kwargs() -> None:
    def f(a: Any, /, **kw: Any) -> Any:
        return a + kw["a"]

    check(lambda x: f(x, a=5), t(), graphs=1)


def test_top_level_call_with_keywords_defaults_and_varargs() -> None:
    def fn(x: torch.Tensor, n: int = 2, *rest: Any, scale: float = 0.5, **kw: Any) -> tuple[Any, ...]:
        return x * n * scale, rest, kw

    check(fn, t(), graphs=1)
    check(fn, t(), 3, "r", t(), graphs=1)
    check(fn, t(), scale=2.0, extra=t(), graphs=1)


def test_wrong_top_level_call_raises_type_error() -> None:
    def fn(x: torch.Tensor, *, k: int) -> torch.Tensor:
        return x + k

    check(fn, t(), raises=TypeError)


def test_mutable_default_is_shared_between_calls() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        def collect(v: int, into: list[int] = []) -> list[int]:  # noqa: B006
            into.append(v)
            return into

        a = collect(1)
        b = collect(2)
        return a, a is b, x + len(a)

    check(fn, t(), graphs=1)


def test_defaults_are_evaluated_when_defined() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        n = 1

        def f(a: int = n, *, b: Any = x) -> Any:
            return a, b

        n = 2
        return f(), f.__defaults__, n

    check(fn, t())


def test_functions_as_values() -> None:
    def fn(x: torch.Tensor, name: str) -> tuple[Any, ...]:
        table: dict[str, Any] = {"relu": torch.relu, "neg": lambda v: -v, "abs": abs, "sum": torch.Tensor.sum}
        composed = functools.reduce(lambda f, g: lambda v: g(f(v)), [torch.sin, torch.cos, lambda v: v * 2])
        return table[name](x), composed(x), [f(x) for f in table.values()]

    for name in ("relu", "neg", "sum"):
        check(fn, t(), name, graphs=1)


def test_decorator_with_wraps() -> None:
    def scaled(by: float) -> Any:
        def decorate(f: Any) -> Any:
            @functools.wraps(f)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return f(*args, **kwargs) * by

            return wrapper

        return decorate

    @scaled(2.0)
    @scaled(0.5)
    def outside(x: torch.Tensor, n: int = 1) -> torch.Tensor:
        """Adds."""
        return x + n

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        @scaled(3.0)
        def inside(x: torch.Tensor) -> torch.Tensor:
            """Inside."""
            return x - 1

        return outside(x, n=2), inside(x), outside.__name__, inside.__doc__, outside.__wrapped__ is not None

    check(fn, t(), graphs=1)
    check(outside, t(), graphs=1)


def test_decorator_class_with_state() -> None:
    class counted:
        def __init__(self, f: Any) -> None:
            functools.update_wrapper(self, f)
            self.f = f
            self.calls = 0

        def __call__(self, *args: Any) -> Any:
            self.calls += 1
            return self.f(*args) + self.calls

    def make() -> Any:
        @counted
        def add(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        return (lambda x: add(x) + add(x)), lambda: add.calls

    check_made(make, t(), calls=3)


def test_function_attributes_and_introspection() -> None:
    def helper(a: int, b: str = "x", *c: Any, d: float = 1.0) -> None:
        """Doc."""

    helper.tag = "t"  # type: ignore[attr-defined]

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        code = helper.__code__
        return (
            helper.__name__,
            helper.__doc__,
            helper.__defaults__,
            helper.__kwdefaults__,
            helper.tag,  # type: ignore[attr-defined]
            code.co_argcount,
            code.co_varnames[:2],
            hasattr(helper, "nope"),
            callable(helper),
            x + code.co_argcount,
        )

    check(fn, t())


def test_bound_methods_as_values() -> None:
    class Model:
        def __init__(self, n: int) -> None:
            self.n = n

        def f(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.n

    def fn(x: torch.Tensor, m: Model) -> tuple[Any, ...]:
        f = m.f
        m.n = 5
        unbound = Model.f
        items: list[Any] = []
        push = items.append
        push(1)
        push(x)
        return f(x), unbound(m, x), items, f.__self__ is m, f == m.f, x.add(1), "a-b".split("-"), m.f.__name__

    check(fn, t(), Model(3), calls=1, graphs=1)


def test_lambda_default_capture_and_immediate_call() -> None:
    check(lambda x: [(lambda v, k=k: v * k)(x) for k in range(3)], t(), graphs=1)


def test_variadic_forwarding_through_layers() -> None:
    def outer(*args: Any, **kw: Any) -> Any:
        return middle(*args, **kw, extra=1)

    def middle(x: Any, *args: Any, extra: int, **kw: Any) -> Any:
        return inner(x, *reversed(args), extra, **kw)

    def inner(x: Any, *args: int, scale: float = 1.0) -> Any:
        for i, a in enumerate(args):
            x = x + a * i
        return x * scale

    check(lambda x: outer(x, 1, 2, 3, scale=0.5), t(), graphs=1)


def test_locals_and_globals_builtins() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a, b = 1, 2
        names = sorted(locals())
        return names, "OFFSET" in globals(), globals()["OFFSET"], x + a + b

    check(fn, t())


def locals_twice(x: torch.Tensor) -> tuple[Any, ...]:
    first = locals()
    first["more"] = 5
    second = locals()
    return x + 1, sorted(second), first is second


def locals_in_a_loop(x: torch.Tensor) -> tuple[Any, ...]:
    found = []
    for i in range(3):
        found.append(vars())
    return x + i, len({id(names) for names in found}), [names["i"] for names in found]


def locals_without_one(x: torch.Tensor) -> tuple[Any, ...]:
    one = 1
    names = locals()
    there = "one" in names
    names["one"] = names["two"] = 2
    dir()
    again = names["one"]
    del one
    locals()
    return x + again, there, again, sorted(names)


@pytest.mark.parametrize("fn", [locals_twice, locals_in_a_loop, locals_without_one])
def test_locals_is_one_dictionary_before_python_3_13(fn: Callable[..., Any]) -> None:
    check(fn, t(), graphs=1)


def test_exec_and_eval_break_and_work() -> None:
    check(lambda x: (eval("1 + 2"), x + eval("3 * 4")), t(), skips=None)


@pytest.mark.parametrize("depth", [1, 40])
def test_deep_call_chain(depth: int) -> None:
    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + 1 if n == 0 else down(x * 1, n - 1) + 0

    check(down, t(), depth)


def test_async_functions_are_not_lost() -> None:
    import asyncio

    async def add(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return x + 1

    check(lambda x: asyncio.run(add(x * 2)), t(), skips=None)
