"""Call-through: frames that run in Python, with what they call compiled."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import functools
import gc
import inspect
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest
import torch
from helpers import FRONTEND, check, check_made, compile_fn, disable, observe, t

pytestmark = pytest.mark.skipif(FRONTEND != "jitney", reason="counts jitney's own graphs")


def double(x: torch.Tensor, *rest: torch.Tensor, k: int = 2, **named: Any) -> torch.Tensor:
    """One graph when compiled."""
    return sum(rest, x * k) + sum(named.values())


def fail(x: torch.Tensor, why: str) -> torch.Tensor:
    if x.shape[0]:
        raise KeyError(why)
    return x


class Scale(torch.nn.Module):
    """A small model with a method beside ``forward``."""

    def __init__(self, factor: float = 3.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight

    def shift(self, x: torch.Tensor, *, by: float) -> torch.Tensor:
        return x * self.weight + by


class Manager:
    """A context manager that keeps a log."""

    def __init__(self, log: list[str], swallow: bool = False) -> None:
        self.log = log
        self.swallow = swallow

    def __enter__(self) -> list[str]:
        self.log.append("enter")
        return self.log

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.log.append(f"exit {kind and kind.__name__}")
        return self.swallow


SCALE = Scale()


def through(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` disabled for its own frame, called from a function that is compiled."""
    shell = disable(fn, recursive=False)
    return lambda *args, **kwargs: shell(*args, **kwargs)


def graphs_of(fn: Callable[..., Any], *args: Any) -> int:
    """How many graphs the first call through the compiler captures."""
    with observe() as seen:
        compile_fn(through(fn))(*args)
    return len(seen.graphs)


# ------------------------------------------------------------------ disable(recursive=False)


def test_only_the_own_frame_is_disabled() -> None:
    def shell(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        y = x + 1  # in Python: no graph
        return double(y), torch.compiler.is_compiling()

    check(through(shell), t(), graphs=1, breaks=1)


def test_outside_compiled_code_it_is_a_plain_call() -> None:
    with observe() as seen:
        assert torch.equal(disable(lambda x: double(x), recursive=False)(t()), t() * 2)
    assert not seen.graphs


def test_torch_disable_of_one_frame() -> None:
    @torch.compiler.disable(recursive=False)
    def shell(x: torch.Tensor) -> torch.Tensor:
        return double(x) - 1

    check(lambda x: shell(x + 1) * 2, t(), graphs=3, breaks=1)


def test_recursive_disable_compiles_nothing() -> None:
    shell = disable(lambda x: double(x))
    check(lambda x: shell(x), t(), graphs=0, breaks=1)


def test_disabled_method_and_forward() -> None:
    class Model(Scale):
        @functools.partial(disable, recursive=False)
        def shift(self, x: torch.Tensor, *, by: float) -> torch.Tensor:
            return double(x) + by

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.shift(x, by=1.5)

    check(Model(), t(), graphs=1, breaks=1)

    def make() -> Any:
        model = disable(Scale(), recursive=False)
        model.forward = disable(lambda x: double(x) * model.weight, recursive=False)
        return lambda x: model(x)

    check_made(make, t(), graphs=1)


def test_compiling_a_disabled_function() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        return double(x) + 1

    for recursive, graphs in ((True, 0), (False, 1)):
        with observe() as seen:
            assert torch.equal(compile_fn(disable(body, recursive=recursive))(t()), body(t()))
        assert len(seen.graphs) == graphs and not seen.breaks


def test_callees_are_cached_for_the_session() -> None:
    compiled = compile_fn(through(lambda x: double(x) + double(x + 1)))
    with observe() as seen:
        for _ in range(3):
            compiled(t())
    assert len(seen.graphs) == 1 and not seen.recompiles


# ------------------------------------------------------------------ call sites


def test_arguments_of_every_kind() -> None:
    def shell(x: torch.Tensor, rest: list[Any], named: dict[str, Any]) -> list[torch.Tensor]:
        return [
            double(x),
            double(x, x, k=3),
            double(x, *rest),
            double(*rest, k=4),
            double(x, **named),
            double(*iter(rest), x, extra=1, **named),
            double(x, x if x is rest else x + 1, k=(lambda n: n + 1)(4)),
        ]

    check(through(shell), t(), [t(), t()], {"k": 5, "more": 2})


@pytest.mark.parametrize("rest", [5, [1, 2], None])
def test_errors_of_the_call_itself(rest: Any) -> None:
    def none(x: torch.Tensor) -> torch.Tensor:
        return x

    def shell(x: torch.Tensor) -> torch.Tensor:
        return none(*rest) if rest is not None else none(x, y=x)

    check(through(shell), t(), raises=TypeError)


def test_methods_modules_partials_and_objects() -> None:
    class Adder:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x + 10

    adder, partial = Adder(), functools.partial(double, k=7)

    def shell(x: torch.Tensor) -> list[torch.Tensor]:
        bound = SCALE.shift
        return [SCALE(x), SCALE.shift(x, by=1.0), bound(x, by=2.0), Scale.shift(SCALE, x, by=3.0), adder(x), partial(x)]

    assert graphs_of(shell, t()) >= 5
    check(through(shell), t())


@contextlib.contextmanager
def logged(log: list[str]) -> Iterator[None]:
    """A manager that is used as a decorator below."""
    log.append("enter")
    yield
    log.append("exit")


LOG: list[str] = []


@torch.no_grad()
def without_gradients(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


@torch.no_grad()
@torch.inference_mode(False)
@logged(LOG)
def wrapped_thrice(x: torch.Tensor) -> torch.Tensor:
    return x.cos() + 1


@functools.singledispatch
def dispatched(x: Any) -> Any:
    return x


@dispatched.register
def _(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@pytest.mark.parametrize("fn", [without_gradients, wrapped_thrice, dispatched])
def test_wrappers_of_libraries_lead_to_compiled_code(fn: Callable[..., torch.Tensor]) -> None:
    x = t().requires_grad_()
    assert graphs_of(fn, x) == 1
    before = len(LOG)
    compiled = compile_fn(through(fn))
    for _ in range(2):
        got, expected = compiled(x), fn(x)
        assert torch.equal(got, expected)
        assert got.requires_grad == expected.requires_grad
    assert LOG[before:] == ["enter", "exit"] * (4 if fn is wrapped_thrice else 0)


def test_wrappers_that_disable_or_compile_are_called_as_they_are() -> None:
    seen = []
    other = torch.compile(without_gradients, backend=lambda graph, inputs: seen.append(graph) or graph.forward)
    assert graphs_of(other, t()) == 0
    assert len(seen) == 1
    assert graphs_of(torch.no_grad()(torch.compiler.disable(double)), t()) == 0


def test_both_forms_of_super() -> None:
    class Model(Scale):
        @functools.partial(disable, recursive=False)
        def shift(self, x: torch.Tensor, *, by: float) -> torch.Tensor:
            y = super().shift(x, by=by) + super(Model, self).shift(x, by=2 * by)
            parent = super()
            return y + parent.shift(x, by=0.5) + (lambda: super(Model, self).forward(x))()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.shift(x, by=1.5)

    with observe() as seen:
        compile_fn(Model())(t())
    assert len(seen.graphs) >= 3
    check(Model(), t())


def test_nested_functions_and_closures() -> None:
    def shell(x: torch.Tensor) -> tuple[Any, ...]:
        total = 0

        def count(y: torch.Tensor, by: int = 1) -> torch.Tensor:
            nonlocal total
            total += by
            return y * total

        def outer() -> torch.Tensor:
            return count(x, by=2)

        return count(x), outer(), (lambda y: count(y) + x)(x), total

    assert graphs_of(shell, t()) >= 2
    check(through(shell), t())


def test_comprehensions_and_generator_expressions() -> None:
    def shell(x: torch.Tensor) -> tuple[Any, ...]:
        rows = [double(x, k=k) for k in (2, 3)]
        names = {name: SCALE(row) for name, row in zip("ab", rows, strict=True)}
        return rows, names, sum(double(row, k=9) for row in rows)

    assert graphs_of(shell, t()) == 3
    check(through(shell), t())


def test_decorators_asserts_and_classes_in_the_frame() -> None:
    def decorate(fn: Any) -> Any:
        return functools.wraps(fn)(lambda x: fn(x) + 1)

    def shell(x: torch.Tensor, ok: bool) -> torch.Tensor:
        @decorate
        @functools.lru_cache
        def inner(y: torch.Tensor) -> torch.Tensor:
            return y * 2

        class Local(Scale):
            extra = double(x)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) + self.extra

        assert ok, f"no {double(x).sum().item()}"
        return inner(x) + Local()(x)

    check(through(shell), t(), True)
    check(through(shell), t(), False, raises=AssertionError)


def test_try_except_finally_and_with_around_calls() -> None:
    def shell(x: torch.Tensor, log: list[Any]) -> list[Any]:
        for swallow in (False, True):
            try:
                with Manager(log, swallow), contextlib.suppress(ZeroDivisionError):
                    log.append(double(x))
                    fail(x, "first")
                log.append("after")
            except KeyError as error:
                log.append(double(x, k=len(error.args)))
                try:
                    fail(x, "second")
                except KeyError as again:
                    log.append((repr(again.__context__), str(again)))
            else:
                log.append("else")
            finally:
                log.append(double(x, k=5))
        return [*log, sys.exc_info()]

    check(through(shell), t(), [])


def test_loops_with_calls() -> None:
    def shell(x: torch.Tensor) -> torch.Tensor:
        n = 0
        while (y := double(x, k=n)).sum() < 20 and n < 9:
            n += 1
            if n % 2:
                continue
            for _ in range(n):
                x = double(x) if n < 4 else SCALE(x)
        return x + y

    check(through(shell), t())


# ------------------------------------------------------------------ what the frame sees of itself


def test_frame_functions_see_the_own_frame() -> None:
    def shell(x: torch.Tensor) -> tuple[Any, ...]:
        b, a = double(x), 2
        names = list(locals())
        builtin = builtins.locals
        frame, current = sys._getframe(), inspect.currentframe()
        assert current is not None
        seen = list(vars()), dir(), eval("a + 1"), list(builtin()), [inspect.stack()[0].function]
        exec("a = 7")
        return names, seen, frame.f_code.co_name, current.f_lineno - frame.f_lineno, list(frame.f_locals), a, b

    check(through(shell), t(), graphs=1)


def test_order_of_locals_is_kept() -> None:
    def shell(z: int, *more: int, key: int = 1, **named: int) -> list[str]:
        if key == 2:
            unused = 1
        b = double(t())
        [a for a in range(2)]
        c = lambda: (b, z)  # noqa: E731
        return list(locals()) if c() else [str(unused)]

    check(through(shell), 1, 2, x=3)


def lines_of(error: BaseException) -> list[tuple[str, int | None, Any]]:
    found = traceback.extract_tb(error.__traceback__)
    return [(f.name, f.lineno, f.colno) for f in found if f.filename == __file__]


def test_tracebacks_show_the_users_lines() -> None:
    def shell(x: torch.Tensor) -> torch.Tensor:
        y = double(x)
        return y + fail(
            y,
            why="here",
        )

    def caught(fn: Any) -> KeyError:
        with pytest.raises(KeyError) as error:
            fn(t())
        return error.value

    calling = through(shell)
    eager, compiled = caught(calling), caught(compile_fn(calling))
    assert [r for r in lines_of(compiled) if r[0] != "<lambda>"] == [r for r in lines_of(eager) if r[0] != "<lambda>"]
    assert eager.args == compiled.args and compiled.__context__ is None


def test_callee_at_the_bottom_of_a_long_call() -> None:
    arguments = ", ".join(f"a{i}" for i in range(300))
    namespace: dict[str, Any] = {"double": double, "__name__": __name__}
    exec(f"def many({arguments}): return a0 * 2\ndef shell(x): return many({'x, ' * 300})", namespace)
    check(through(namespace["shell"]), t(), graphs=1)


# ------------------------------------------------------------------ frames in which capture gave up


def long_loop(x: torch.Tensor, n: int) -> torch.Tensor:
    total = 0
    for i in range(n):
        total += i % 3
    y = double(x, k=total)
    return SCALE(y) + 1


def test_frame_left_eager_compiles_what_it_calls() -> None:
    import jitney

    with jitney.config.patch(max_trace_steps=400):
        check(long_loop, t(), 500, graphs=2, skips=1)
        check(lambda x: long_loop(x, 500), t(), graphs=2, skips=2)


def test_module_left_eager_compiles_its_parts() -> None:
    import jitney

    class Slow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Scale()
            self.register_forward_hook(lambda module, args, out: out + 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(500):
                pass
            return self.inner(x)

    with jitney.config.patch(max_trace_steps=400):
        with observe() as seen:
            compile_fn(Slow())(t())
        assert len(seen.graphs) == 2
        check(Slow(), t(), skips=None)


def test_rest_of_a_frame_left_eager() -> None:
    import jitney

    def fn(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
        y = double(x)
        print("break")
        for _ in range(500):
            log.append(1)
        with Manager(log):
            y = double(y, k=3)
        return SCALE(y)

    with jitney.config.patch(max_trace_steps=400):
        check(fn, t(), [], skips=1, graphs=3)


def test_recursion_ends() -> None:
    import jitney

    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        for _ in range(200):
            pass
        return double(x) if n == 0 else down(x + 1, n - 1) * 2

    with jitney.config.patch(max_trace_steps=300):
        check(down, t(), 5, skips=None)


def test_frozen_and_past_the_limit_nothing_is_compiled() -> None:
    import jitney

    with jitney.config.patch(max_trace_steps=400):
        compiled = compile_fn(long_loop)
        with observe() as seen:
            jitney.run(compiled)(t(), 500)
        assert not seen.graphs
        with observe() as seen:
            compiled(t(), 500)
        assert len(seen.graphs) == 2 and len(seen.skips) == 1
        with observe() as seen:
            jitney.run(compiled)(t(4), 500)
        assert not seen.graphs

    limited = compile_fn(lambda x, n: double(x, k=n), dynamic=False)
    with jitney.config.patch(cache_size_limit=1), pytest.warns(UserWarning, match="cache_size_limit"):
        limited(t(), 2)
        with observe() as seen:
            limited(t(), 3)
            limited(t(), 4)
        assert not seen.graphs


def test_callees_in_a_mode_run_as_they_are() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return double(x) + torch.ones(3)

    compiled = compile_fn(fn)
    with observe() as seen, torch.overrides.BaseTorchFunctionMode():
        assert torch.equal(compiled(t()), fn(t()))
    assert len(seen.skips) == 1 and not seen.graphs


# ------------------------------------------------------------------ generators and coroutines


def produce(x: torch.Tensor, n: int) -> Iterator[torch.Tensor]:
    """A generator that sends, catches and cleans up."""
    got = None
    try:
        for i in range(n):
            try:
                got = yield double(x, k=i) if got is None else SCALE(got)
            except ValueError as error:
                yield double(x, k=len(error.args))
        yield from (double(x, k=k) for k in (8, 9))
        return double(x, k=11)
    finally:
        double(x, k=10)


def test_compiled_generator_function() -> None:
    def drive(x: torch.Tensor, make: Any) -> list[Any]:
        generator = make(x, 4)
        assert inspect.isgenerator(generator) and generator.__name__ == "produce"
        out = [next(generator), generator.send(x), generator.throw(ValueError("a", "b"))]
        try:
            while True:
                out.append(next(generator))
        except StopIteration as stop:
            return [*out, stop.value]

    with observe() as seen:
        got = drive(t(), compile_fn(produce))
    assert all(map(torch.equal, got, drive(t(), produce)))
    assert len(seen.graphs) >= 3 and not seen.breaks and not seen.skips


def test_generator_closed_early_cleans_up() -> None:
    def make() -> Any:
        log: list[Any] = []

        def items(x: torch.Tensor) -> Iterator[torch.Tensor]:
            try:
                yield double(x)
            finally:
                log.append(double(x, k=3))

        return items, log

    eager, log = make()
    compiled, compiled_log = make()
    for fn in (eager, compile_fn(compiled)):
        generator = fn(t())
        next(generator)
        generator.close()
    assert torch.equal(log[0], compiled_log[0])


def test_generator_function_called_from_a_frame_left_eager() -> None:
    def shell(x: torch.Tensor) -> list[torch.Tensor]:
        return list(produce(x, 2))

    assert graphs_of(shell, t()) >= 2
    check(through(shell), t())


def test_compiled_coroutine_functions() -> None:
    async def part(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return double(x)

    async def stream(x: torch.Tensor) -> Any:
        for k in range(3):
            yield double(x, k=k)
            await asyncio.sleep(0)

    async def whole(x: torch.Tensor, log: list[str]) -> list[torch.Tensor]:
        out = [await part(x), *[SCALE(y) async for y in stream(x)]]
        lock = asyncio.Lock()
        async with lock:
            out += await asyncio.gather(part(x), part(x + 1))
        try:
            await asyncio.wait_for(asyncio.sleep(10), 0.001)
        except (asyncio.TimeoutError, TimeoutError) as error:
            log.append(type(error).__name__)
        return out

    log: list[str] = []
    with observe() as seen:
        got = asyncio.run(compile_fn(whole)(t(), log))
    assert all(map(torch.equal, got, asyncio.run(whole(t(), log)))) and log[0] == log[1]
    assert len(seen.graphs) >= 2 and not seen.skips


# ------------------------------------------------------------------ the cache and the code


def test_no_model_is_kept_alive() -> None:
    def shell(model: Any, x: torch.Tensor) -> torch.Tensor:
        return model(x) + model.shift(x, by=1.0)

    compiled = compile_fn(disable(shell, recursive=False))
    model: Any = Scale()
    seen = weakref.ref(model)
    with observe() as observed:
        compiled(model, t())
    assert len(observed.graphs) == 2
    del model
    gc.collect()
    assert seen() is None


def test_reset_forgets_callees() -> None:
    import jitney

    compiled = compile_fn(disable(long_loop, recursive=False))
    for _ in range(2):
        with observe() as seen:
            compiled(t(), 3)
        assert len(seen.graphs) == 2
        jitney.reset()


def codes(module: Any) -> Iterator[CodeType]:
    """All code objects of a module's functions and methods."""
    found = [v for v in vars(module).values() if isinstance(v, FunctionType)]
    for cls in vars(module).values():
        if isinstance(cls, type) and cls.__module__ == module.__name__:
            found += [v for v in vars(cls).values() if isinstance(v, FunctionType)]
    for fn in found:
        yield fn.__code__


@pytest.mark.parametrize("module", [contextlib, inspect, traceback, functools, asyncio.tasks, torch.nn.modules.module])
def test_rewritten_code_of_real_modules_is_well_formed(module: Any) -> None:
    from jitney.capture.codegen import call_through
    from jitney.capture.interpreter.code import decode

    for code in codes(module):
        made = call_through.through_code(code)
        plain, rewritten = decode(code), decode(made)
        calls = [i for i in plain.instrs if i.op in ("CALL", "CALL_KW", "CALL_FUNCTION_EX")]
        inserted = [i for i in rewritten.instrs if i.argval is call_through.MARK]
        assert len(inserted) >= len(calls) * 3 // 4 and (made is not code or not calls)
        for state, instr in zip(call_through._flow(rewritten), rewritten.instrs, strict=True):
            if state is not None:
                assert 0 <= state[0] <= made.co_stacksize
                assert instr.op != "RETURN_VALUE" or state[0] == 1
        assert list(made.co_lines())[-1][2] == list(code.co_lines())[-1][2]


def test_what_has_called_through_is_collected() -> None:
    def run() -> tuple[weakref.ref[Any], Iterator[torch.Tensor]]:
        class Model(Scale):
            @functools.partial(disable, recursive=False)
            def shift(self, x: torch.Tensor, *, by: float) -> torch.Tensor:
                return super().shift(x, by=by) * 2

            @functools.partial(disable, recursive=False)
            def shifts(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
                return (Scale.shift(self, x, by=by) for by in (1.0, 2.0))

            def forward(self, x: torch.Tensor) -> Any:
                return self.shift(x, by=1.5), self.shifts(x)

        return weakref.ref(Model), compile_fn(Model())(t())[1]

    kind, later = run()
    first, second = later
    torch.testing.assert_close(second, first + 1)
    del later, first, second
    gc.collect()
    assert kind() is None
