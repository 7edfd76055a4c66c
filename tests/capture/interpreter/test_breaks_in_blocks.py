"""Graph breaks inside ``with``, ``try``, handlers and generators, and exceptions raised by the broken operation."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import check, disable, graph_break, t


class Track:
    """A context manager that remembers what happened to it."""

    def __init__(self, log: list[Any], swallow: tuple[type[BaseException], ...] = ()) -> None:
        self.log = log
        self.swallow = swallow

    def __enter__(self) -> Track:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__, str(value)))
        return kind is not None and issubclass(kind, self.swallow)


class Boom:
    """Its operations print (a break), then raise."""

    def __call__(self, message: str = "boom") -> Any:
        print("about to raise")
        raise ValueError(message)


@pytest.mark.parametrize("manager", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_break_under_grad_modes(manager: Any) -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x * 2
        with manager():
            a = x + 1
            print("inside", torch.is_grad_enabled())
            b = x * 3
            flag = torch.is_grad_enabled()
        return y, a, b, flag, x * 4, torch.is_grad_enabled()

    check(
        fn,
        t(3, requires_grad=True),
        graphs=3 if manager is torch.inference_mode else 2,
        breaks=2 if manager is torch.inference_mode else 1,
    )


def test_break_under_set_grad_enabled_and_autocast() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
        with torch.set_grad_enabled(False):
            print("a")
            a = x @ w
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = x @ w
            print("b")
            c = x @ w
        return a, b, c, x @ w

    check(fn, t(2, 2, requires_grad=True), t(2, 2), breaks=2)


def test_break_in_decorated_no_grad_function() -> None:
    @torch.no_grad()
    def inner(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print("quiet", torch.is_grad_enabled())
        return y * 2

    check(lambda x: (inner(x), x * 2), t(3, requires_grad=True), graphs=3, breaks=1)


def test_break_in_user_manager_block() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []
        with Track(log) as outer, Track(log) as inner:
            y = x + 1
            print("inside", len(log))
            z = y * 2
        return y, z, log, outer is not inner

    check(fn, t(), graphs=2, breaks=1)


def test_break_in_enter_and_in_exit() -> None:
    class Noisy:
        def __enter__(self) -> int:
            print("enter")
            return 3

        def __exit__(self, *exc: Any) -> None:
            print("exit", exc[0])

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        with Noisy() as n:
            y = y * n
        return y - 1

    check(fn, t(), graphs=3, breaks=2)


def test_return_break_and_continue_out_of_with_across_breaks() -> None:
    def fn(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
        for i in range(4):
            with Track(log):
                x = x + i
                print("i", i)
                if i == 1:
                    continue
                if i == 2:
                    with Track(log):
                        return x * 2
        return x

    check(fn, t(), [], calls=1)


def test_exception_after_break_in_with_is_swallowed() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []
        with Track(log, (ValueError,)):
            x = x + 1
            print("before")
            x = x * 2
            raise ValueError("swallowed")
        return x, log

    check(fn, t())


def test_broken_operation_raises_inside_with() -> None:
    def fn(x: torch.Tensor, boom: Boom) -> tuple[Any, ...]:
        log: list[Any] = []
        with Track(log, (ValueError,)), torch.no_grad():
            x = x + 1
            boom()
        return x * 2, log, torch.is_grad_enabled()

    check(fn, t(), Boom())


@pytest.mark.parametrize("place", ["try", "except", "else", "finally"])
def test_break_in_part_of_try(place: str) -> None:
    def fn(x: torch.Tensor, fail: bool) -> tuple[Any, ...]:
        log: list[Any] = []
        try:
            x = x + 1
            if place == "try":
                print("try")
            if fail:
                raise KeyError("k")
            x = x * 2
        except KeyError as e:
            x = x - 1
            if place == "except":
                print("except", e)
            log.append(("caught", str(e), type(e).__name__))
            x = x * 3
        else:
            if place == "else":
                print("else")
            x = x * 5
        finally:
            x = x + 7
            if place == "finally":
                print("finally")
            log.append("finally")
        return x, log

    check(fn, t(), False)
    check(fn, t(), True)


def test_broken_operation_raises_and_the_frame_catches_it() -> None:
    def fn(x: torch.Tensor, items: list[float]) -> tuple[Any, ...]:
        y = x + 1
        try:
            v = items[int(x.sum().item()) + 100]
        except IndexError as e:
            v = -1.0
            message = str(e)
        return y * v, message

    check(fn, t(), [1.0], graphs=2)


def test_broken_call_raises_and_the_frame_catches_it() -> None:
    def fn(x: torch.Tensor, boom: Boom) -> tuple[Any, ...]:
        y = x + 1
        try:
            boom("first")
        except TypeError:
            return "wrong"
        except (ValueError, KeyError) as e:
            y = y * 2
            error = e
        return y, str(error), error.args, error.__context__

    check(fn, t(), Boom())


def test_broken_call_raises_and_a_caller_catches_it() -> None:
    def inner(x: torch.Tensor, boom: Boom, log: list[str]) -> torch.Tensor:
        try:
            y = x + 1
            boom("deep")
            return y
        finally:
            log.append("inner finally")

    def middle(x: torch.Tensor, boom: Boom, log: list[str]) -> torch.Tensor:
        y = inner(x * 2, boom, log)
        log.append("never")
        return y

    def fn(x: torch.Tensor, boom: Boom) -> tuple[Any, ...]:
        log: list[str] = []
        z = x * 10
        try:
            z = middle(x, boom, log)
        except ValueError as e:
            log.append(str(e))
        return z + 1, log

    check(fn, t(), Boom())


def test_broken_call_raises_and_nobody_catches_it() -> None:
    def fn(x: torch.Tensor, boom: Boom, log: list[Any]) -> torch.Tensor:
        try:
            x.add_(1)
            log.append("before")
            boom("escapes")
        finally:
            log.append("finally")
            x.mul_(2)
        return x

    check(fn, t(), Boom(), [], raises=ValueError)


def test_reraise_and_raise_from_across_a_break() -> None:
    def fn(x: torch.Tensor, boom: Boom) -> torch.Tensor:
        try:
            boom("cause")
        except ValueError as e:
            y = x + 1
            print("handling", e)
            raise RuntimeError(f"wrapped {y.shape}") from e
        return x

    def again(x: torch.Tensor, boom: Boom) -> torch.Tensor:
        try:
            boom("again")
        except ValueError:
            print("handling")
            raise
        return x

    check(fn, t(), Boom(), raises=RuntimeError)
    check(again, t(), Boom(), raises=ValueError)


def test_return_in_finally_overrides_exception_of_broken_call() -> None:
    def fn(x: torch.Tensor, boom: Boom) -> torch.Tensor:
        try:
            boom()
        finally:
            return x + 1  # noqa: B012

    check(fn, t(), Boom())


def test_nested_try_with_breaks_in_each_handler() -> None:
    def fn(x: torch.Tensor, boom: Boom) -> tuple[Any, ...]:
        log: list[Any] = []
        try:
            try:
                boom("one")
            except ValueError as e:
                log.append(str(e))
                print("inner")
                x = x + 1
                boom("two")
        except ValueError as e:
            log.append((str(e), str(e.__context__)))
            print("outer")
            x = x * 2
        return x, log

    check(fn, t(), Boom())


def test_loop_with_try_and_breaks_in_every_round() -> None:
    def fn(x: torch.Tensor, boom: Boom) -> tuple[Any, ...]:
        log: list[Any] = []
        for i in range(3):
            try:
                x = x + i
                if i == 1:
                    boom(f"round {i}")
                print("ok", i)
            except ValueError as e:
                log.append(str(e))
                continue
            finally:
                log.append(i)
        return x, log

    check(fn, t(), Boom())


def test_generator_suspended_across_a_break() -> None:
    def numbers(x: torch.Tensor, log: list[str]) -> Iterator[torch.Tensor]:
        try:
            for i in range(3):
                log.append(f"yield {i}")
                yield x + i
        finally:
            log.append("closed")

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[str] = []
        gen = numbers(x, log)
        a = next(gen)
        graph_break()
        b = next(gen)
        print("between")
        rest = list(gen)
        return a, b, rest, log

    check(fn, t(), skips=1)  # its cleanup may be due before the rest of the frame has run


def test_for_loop_over_generator_with_breaks_in_the_loop() -> None:
    def pairs(x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        total = x
        for i in range(3):
            total = total + i
            yield i, total

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        out = []
        for i, v in pairs(x):
            out.append(v * 2)
            print("got", i)
        return out, x + 1

    check(fn, t())


def test_break_in_generator_body() -> None:
    def noisy(x: torch.Tensor) -> Iterator[torch.Tensor]:
        for i in range(2):
            y = x + i
            print("in generator", i)
            yield y * 2

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        first = x - 1
        return [v + 1 for v in noisy(x)], sum(noisy(x)), first

    check(fn, t())


def test_break_in_delegated_generator() -> None:
    def leaf(x: torch.Tensor) -> Any:
        got = yield x + 1
        print("leaf got", got)
        yield x * got
        return "done"

    def branch(x: torch.Tensor) -> Any:
        result = yield from leaf(x)
        print("branch got", result)
        yield x - 1

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        gen = branch(x)
        return next(gen), gen.send(3), next(gen), next(gen, "end"), x + 1

    check(fn, t())


def test_generator_closed_after_a_break() -> None:
    def numbers(x: torch.Tensor, log: list[str]) -> Iterator[torch.Tensor]:
        try:
            yield x + 1
            yield x + 2
        finally:
            log.append("closed")

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[str] = []
        gen = numbers(x, log)
        a = next(gen)
        graph_break()
        gen.close()
        b = a * 2
        graph_break()
        return b, log, next(gen, None)

    check(fn, t(), skips=1)  # its cleanup may be due before the rest of the frame has run


def test_generator_exception_thrown_after_a_break() -> None:
    def catching(x: torch.Tensor) -> Iterator[Any]:
        try:
            yield x + 1
        except KeyError as e:
            yield str(e), x * 2

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        gen = catching(x)
        a = next(gen)
        graph_break()
        return a, gen.throw(KeyError("thrown")), x + 1

    check(fn, t(), skips=1)  # its cleanup may be due before the rest of the frame has run


def test_contextmanager_suspended_across_a_break() -> None:
    @contextlib.contextmanager
    def scope(log: list[Any], x: torch.Tensor) -> Iterator[torch.Tensor]:
        log.append("enter")
        y = x * 3
        try:
            yield y
        except ValueError as e:
            log.append(f"swallowed {e}")
        finally:
            log.append(("exit", y.shape))

    def fn(x: torch.Tensor, fail: bool) -> tuple[Any, ...]:
        log: list[Any] = []
        with scope(log, x) as y:
            z = y + 1
            print("inside")
            if fail:
                raise ValueError("no")
            z = z * 2
        return z, log

    check(fn, t(), False)
    check(fn, t(), True)


def test_break_in_contextmanager_body() -> None:
    @contextlib.contextmanager
    def scope(x: torch.Tensor) -> Iterator[torch.Tensor]:
        print("enter")
        yield x + 1
        print("exit")

    def fn(x: torch.Tensor) -> torch.Tensor:
        with scope(x * 2) as y:
            z = y * 3
        return z + 1

    check(fn, t())


def test_exit_stack_across_breaks() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []
        with contextlib.ExitStack() as stack:
            for i in range(2):
                stack.enter_context(Track(log))
                x = x + i
                print("entered", i)
            stack.callback(log.append, "callback")
            graph_break()
            x = x * 2
        return x, log

    check(fn, t())


def test_suppress_of_broken_call() -> None:
    def fn(x: torch.Tensor, boom: Boom) -> torch.Tensor:
        with contextlib.suppress(ValueError):
            x = x + 1
            boom()
        return x * 2

    check(fn, t(), Boom())


def test_redirect_stdout_spans_a_break() -> None:
    import io

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        buffer = io.StringIO()
        with contextlib.redirect_stdout(buffer):
            y = x + 1
            print("captured")
            z = y * 2
        print("visible")
        return z, buffer.getvalue()

    check(fn, t())


def test_break_in_a_callback_that_is_disabled() -> None:
    """C code has already taken an item when the callback refuses: the whole C call runs in Python."""
    shell = disable(lambda v: v + 1)

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        return list(map(shell, [x, x * 2])), sorted([3, 1, 2], key=disable(lambda i: -i)), x * 3

    check(fn, t(), skips=None)


def test_a_handler_that_loops_back_many_times() -> None:
    def fn(x: torch.Tensor) -> Any:
        tries = 0
        while True:
            try:
                os.stat(f"/missing/{tries}" if tries < 40 else "/")
            except OSError:
                tries += 1
            else:
                return x + tries

    check(fn, t())
