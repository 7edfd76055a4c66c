"""Context managers: torch's modes, user-written ones, contextlib."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import check, t


class Track:
    """A context manager that remembers what happened to it."""

    def __init__(self, log: list[Any], swallow: tuple[type[BaseException], ...] = ()) -> None:
        self.log = log
        self.swallow = swallow

    def __enter__(self) -> str:
        self.log.append("enter")
        return "target"

    def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__, str(value), tb is None))
        return kind is not None and issubclass(kind, self.swallow)


@pytest.mark.parametrize("manager", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("outer", [torch.no_grad, torch.enable_grad])
def test_grad_modes(manager: Any, outer: Any) -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x * 2
        with outer():
            a = x * 3
            with manager():
                b = x * 4
                flags = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            c = x * 5
        return y, a, b, c, flags, torch.is_grad_enabled(), b.is_inference()

    check(fn, t(3, requires_grad=True), graphs=1)


def test_set_grad_enabled_as_manager_and_as_call() -> None:
    def fn(x: torch.Tensor, flag: bool) -> tuple[Any, ...]:
        with torch.set_grad_enabled(flag):
            a = x * 2
        torch.set_grad_enabled(False)
        b = x * 3
        torch.set_grad_enabled(True)
        return a, b, x * 4, torch.is_grad_enabled()

    check(fn, t(3, requires_grad=True), False, graphs=1)
    check(fn, t(3, requires_grad=True), True, graphs=1)


def test_grad_mode_left_changed() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return x * 2

    check(fn, t(3, requires_grad=True))


def test_no_grad_as_decorator() -> None:
    @torch.no_grad()
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @torch.inference_mode()
    def infer(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    check(lambda x: (plain(x), infer(x), x * 4), t(3, requires_grad=True), graphs=1)
    check(plain, t(3, requires_grad=True), graphs=1)


def test_autocast() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ w
            with torch.autocast("cpu", enabled=False):
                b = x @ w
            flag = torch.is_autocast_enabled("cpu")
        return a, b, flag, x @ w

    check(fn, t(2, 2), t(2, 2), graphs=1)


def test_manager_made_outside() -> None:
    manager = torch.no_grad()

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        with manager:
            y = x * 2
        return y, x * 3

    check(fn, t(3, requires_grad=True))


def test_user_manager() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []
        with Track(log) as target, Track(log):
            y = x + 1
            log.append("body")
        return y, target, log

    check(fn, t(), graphs=1)


def test_user_manager_from_outside() -> None:
    def fn(x: torch.Tensor, manager: Track) -> torch.Tensor:
        with manager as target:
            return x + len(target)

    check(fn, t(), Track([]))


def test_user_manager_swallows() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []
        with Track(log, (ValueError,)):
            x = x + 1
            with Track(log):
                raise ValueError("inner")
            log.append("never")
        return x * 2, log

    check(fn, t(), graphs=1)


def test_user_manager_lets_through() -> None:
    def fn(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
        with Track(log, (KeyError,)):
            raise ValueError("through")
        return x

    check(fn, t(), [], raises=ValueError)


def test_return_break_continue_out_of_with() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[Any] = []

        def early() -> torch.Tensor:
            with Track(log), torch.no_grad():
                return x * 2

        for i in range(4):
            with Track(log):
                if i == 0:
                    continue
                if i == 2:
                    break
                x = x + i
        return early(), log, torch.is_grad_enabled()

    check(fn, t(), graphs=1)


def test_exception_in_enter_and_exit() -> None:
    class Bad:
        def __init__(self, where: str) -> None:
            self.where = where

        def __enter__(self) -> None:
            if self.where == "enter":
                raise ValueError("enter")

        def __exit__(self, *exc: Any) -> None:
            if self.where == "exit":
                raise KeyError("exit")

    def fn(x: torch.Tensor, where: str) -> tuple[Any, ...]:
        log: list[Any] = []
        try:
            with Track(log), Bad(where):
                log.append("body")
                raise TypeError("body")
        except Exception as e:
            log.append((type(e).__name__, type(e.__context__).__name__))
        return x + 1, log

    for where in ("enter", "exit", "no"):
        check(fn, t(), where)


def test_contextmanager_function() -> None:
    @contextlib.contextmanager
    def scaled(log: list[Any], by: float) -> Iterator[float]:
        log.append("in")
        try:
            yield by * 2
        except ValueError as e:
            log.append(str(e))
        finally:
            log.append("out")

    def fn(x: torch.Tensor, fail: bool) -> tuple[Any, ...]:
        log: list[Any] = []
        with scaled(log, 2.0) as by:
            x = x * by
            if fail:
                raise ValueError("swallowed")
            x = x + 1
        return x, log

    check(fn, t(), False, graphs=1)
    check(fn, t(), True, graphs=1)


def test_contextmanager_as_decorator() -> None:
    @contextlib.contextmanager
    def quiet() -> Iterator[None]:
        with torch.no_grad():
            yield

    @quiet()
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    check(lambda x: (inner(x), x * 3), t(3, requires_grad=True))


def test_exit_stack() -> None:
    def fn(x: torch.Tensor, flags: list[bool]) -> tuple[Any, ...]:
        log: list[Any] = []
        with contextlib.ExitStack() as stack:
            for flag in flags:
                if flag:
                    stack.enter_context(Track(log))
            stack.callback(log.append, "callback")
            stack.enter_context(torch.no_grad())
            y = x * 2
        return y, log, x * 3

    check(fn, t(3, requires_grad=True), [True, False, True])


def test_nullcontext_suppress_closing() -> None:
    class Closing:
        closed = False

        def close(self) -> None:
            self.closed = True

    def fn(x: torch.Tensor, grad: bool) -> tuple[Any, ...]:
        with contextlib.nullcontext(5) if grad else torch.no_grad() as value:
            y = x * 2
        with contextlib.suppress(KeyError, IndexError):
            y = y + 1
            [][3]
            y = y * 100
        with contextlib.closing(Closing()) as c:
            y = y - 1
        return y, value, c.closed

    check(fn, t(3, requires_grad=True), True)
    check(fn, t(3, requires_grad=True), False)


def test_context_decorator_and_reentrant_use() -> None:
    class Mode(contextlib.ContextDecorator):
        depth = 0

        def __enter__(self) -> Mode:
            self.depth += 1
            return self

        def __exit__(self, *exc: Any) -> None:
            self.depth -= 1

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        mode = Mode()

        @mode
        def inner(x: torch.Tensor) -> torch.Tensor:
            return x * mode.depth

        with mode, mode:
            y = inner(x)
            depth = mode.depth
        return y, depth, mode.depth

    check(fn, t())


def test_torch_device_and_dtype_contexts() -> None:
    def fn() -> tuple[Any, ...]:
        with torch.device("meta"):
            a = torch.ones(3)
        return a.device, torch.ones(3).device

    check(fn)


def test_profiler_and_other_torch_contexts() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("block"), torch.autograd.set_detect_anomaly(False):
            y = x * 2
        with torch.random.fork_rng(devices=[]):
            z = torch.rand(3)
        return y + z + torch.rand(3)

    check(fn, t(), skips=None)


def test_sdpa_kernel_context() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def fn(q: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    check(fn, t(1, 2, 3, 4), skips=None)
