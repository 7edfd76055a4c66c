"""``ContextVar``, and the number of the thread: what they hold is read at each call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe, t

import jitney
from jitney.errors import Unsupported

SCALE: ContextVar[float] = ContextVar("SCALE", default=2.0)
NAMES: ContextVar[dict[str, Any]] = ContextVar("NAMES")


@contextmanager
def _scaled(value: float) -> Iterator[None]:
    token = SCALE.set(value)
    try:
        yield
    finally:
        SCALE.reset(token)


def test_reads_are_part_of_the_graph_and_followed() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        names = NAMES.get({"shift": 0.0})
        return x * SCALE.get() + names["shift"]

    def calls() -> None:
        compiled = jitney.compile(fn, backend="eager", fullgraph=True)
        x = torch.ones(2)
        for scale, shift in ((2.0, 1.0), (3.0, 1.0), (0.5, -4.0), (2.0, 1.0)):
            NAMES.set({"shift": shift})
            with _scaled(scale):
                assert torch.equal(compiled(x), fn(x))
        assert torch.equal(compiled(x), fn(x))

    copy_context().run(calls)


def test_writes_are_breaks_after_which_reads_see_them() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * SCALE.get()
        with _scaled(7.0):
            y = y + x * SCALE.get()
        return y + SCALE.get()

    compiled = jitney.compile(fn, backend="eager")
    for outside in (2.0, 5.0):
        with _scaled(outside):
            assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))


def test_one_without_a_value_is_a_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * NAMES.get()["shift"]
        except LookupError:
            return x - 1

    x = torch.ones(2)
    assert torch.equal(jitney.compile(fn, backend="eager")(x), fn(x))
    with pytest.raises(Unsupported, match="a ContextVar without a value is read"):
        jitney.compile(fn, backend="eager", fullgraph=True)(x)


def test_the_default_of_a_variable_that_is_not_set_is_read() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE.get()

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert torch.equal(Context().run(compiled, x), fn(x))
    with _scaled(5.0):
        assert torch.equal(compiled(x), fn(x))


def test_a_default_that_is_given_stands_before_that_of_the_variable() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE.get(7.0)

    compiled = jitney.compile(fn, backend="eager")
    x = torch.ones(2)
    with _scaled(2.0):  # as much as the variable's own
        assert torch.equal(compiled(x), fn(x))
    assert torch.equal(Context().run(compiled, x), x * 7)


def test_the_number_of_the_thread_is_read_at_each_call() -> None:
    sharing: dict[int, bool] = {}

    def fn(x: torch.Tensor) -> Any:
        return x * 2 if threading.get_ident() in sharing else x * 3

    compiled, numbered = compile_fn(fn), compile_fn(lambda x: (x + 1, threading.get_ident()))
    told: list[bool] = []

    def call() -> None:
        told.append(torch.equal(compiled(t(3)), fn(t(3))) and numbered(t(3))[1] == threading.get_ident())

    with observe() as seen:
        call()
        for _ in range(4):
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        assert len(seen.graphs) <= 4 and not seen.breaks
        sharing[threading.get_ident()] = True
        call()
    assert all(told) and len(told) == 6
