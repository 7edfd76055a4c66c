"""Ctrl-C while tensors without data are at work waits, and is not lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import jitney
from jitney._util.interrupts import Postponement
from jitney.torch_compat import torch_private


@pytest.fixture(autouse=True)
def python_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    """Ctrl-C; Python handles it before the next line."""
    os.kill(os.getpid(), signal.SIGINT)


def test_it_waits_for_the_end_of_the_outermost() -> None:
    postponement, done = Postponement(), []
    with pytest.raises(KeyboardInterrupt), postponement:
        with postponement:
            press()
            done.append("inside")
        done.append("outside")
    assert done == ["inside", "outside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with postponement:
        done.append("nothing waits any more")


def test_pressed_at_the_begin_it_leaves_the_handler_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    postponement, exchange = Postponement(), signal.signal

    def pressed(number: int, handler: Any) -> Any:
        found = exchange(number, handler)
        if handler == postponement._wait:
            press()
        return found

    monkeypatch.setattr(signal, "signal", pressed)
    with pytest.raises(KeyboardInterrupt):
        postponement.__enter__()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_comes_where_somebody_asks() -> None:
    postponement = Postponement()
    with pytest.raises(KeyboardInterrupt) as raised, postponement:
        press()
        postponement.deliver()
        raise AssertionError
    assert raised.value.__context__ is None


def test_pressed_again_it_does_not_wait() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Postponement():
        press()
        done.append("once")
        press()
        done.append("twice")
    assert done == ["once"]


def test_a_handler_of_the_programs_is_called_and_stays() -> None:
    called: list[int] = []
    signal.signal(signal.SIGINT, handler := lambda number, frame: called.append(number))
    with Postponement():
        press()
        assert called == []
    assert called == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is handler
    with Postponement():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    with Postponement():
        press()


def test_a_handler_that_was_saved_within_loses_nothing() -> None:
    postponement = Postponement()
    with postponement:
        saved = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, saved)
    with pytest.raises(KeyboardInterrupt):
        press()
    with pytest.raises(KeyboardInterrupt), postponement:
        press()


def test_in_another_thread_nothing_changes() -> None:
    postponement, seen = Postponement(), []

    def enter() -> None:
        with postponement:
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_first_call_ends_and_the_next_one_is_right(backend: str, times: int) -> None:
    """Pressed while the shape of a result is asked for: in capture, or when the graph is traced again."""
    countdown, finished = [times], []

    @torch.library.custom_op("jitney_tests::interrupted", mutates_args=())
    def interrupted(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @interrupted.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        countdown[0] -= 1
        if countdown[0] == 0:
            press()
            finished.append("the shape is known")
        return torch.empty_like(x)

    def fn(x: torch.Tensor) -> Any:
        y = x.sin()
        for _ in range(3):
            y = interrupted(y)
        x.add_(1)
        return y.cos()

    x = torch.randn(4)
    want = x.clone()
    compiled = jitney.compile(fn, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        compiled(x.clone())
    assert finished == ["the shape is known"] and torch_private.function_modes() == []
    torch.testing.assert_close(compiled(x), fn(want))
    torch.testing.assert_close(x, want)
