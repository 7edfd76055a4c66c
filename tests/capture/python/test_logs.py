"""Logger calls that wait for the graph: helpers that write once. Everything that could tell the difference breaks."""

from __future__ import annotations

import functools
import io
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import Compiled, check, check_made, graph_break, t

SEEN: list[str] = []


@functools.lru_cache(None)
def warning_once(self: Any, *args: Any, **kwargs: Any) -> None:
    """As libraries write it."""
    self.warning(*args, **kwargs)


@functools.lru_cache(None)
def counted_once(self: Any, text: str) -> None:
    """Does more than to log."""
    SEEN.append(text)
    self.warning(text)


@functools.lru_cache(None)
def logger_of(self: Any, text: str) -> Any:
    """Gives something back."""
    self.warning(text)
    return self


class Collect(logging.Handler):
    """A handler that changes what the program can see."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def make_logger(**options: Any) -> tuple[logging.Logger, io.StringIO]:
    """A logger of its own that writes into a text stream."""
    logger = logging.Logger("jitney-test", **options)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(funcName)s %(lineno)d %(message)s"))
    logger.addHandler(handler)
    return logger, stream


def check_logged(body: Callable[[logging.Logger, Any, torch.Tensor], Any], *args: Any, **options: Any) -> None:
    """``body(logger, once, x)`` writes the same text compiled; ``once`` has a cache of its own on each side."""
    __tracebackhide__ = True

    def make() -> Any:
        logger, stream = make_logger()
        once = functools.lru_cache(None)(warning_once.__wrapped__)

        def fn(x: torch.Tensor) -> Any:
            return body(logger, once, x)

        return fn, stream.getvalue

    check_made(make, *(args or (t(),)), **options)


def test_written_once_after_the_graph() -> None:
    def body(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        once(logger, "first")
        once(logger, f"second {x.shape[0]} %s %d", "third", 4)
        once(logger, "first")
        return y * 2

    check_logged(body, calls=3, graphs=1, breaks=0)


def test_written_in_a_loop_and_in_a_callee() -> None:
    def note(logger: logging.Logger, once: Any, i: int) -> None:
        once(logger, f"step {i % 2}")

    def body(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        for i in range(4):
            note(logger, once, i)
            x = x + i
        return x

    check_logged(body, graphs=1, breaks=0)


def test_a_method_added_to_the_logger_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        logger, stream = make_logger()
        once = functools.lru_cache(None)(warning_once.__wrapped__)
        monkeypatch.setattr(logging.Logger, "warning_once", once, raising=False)

        def fn(x: torch.Tensor) -> torch.Tensor:
            logger.warning_once("careful")  # type: ignore[attr-defined]
            return x + 1

        return fn, stream.getvalue

    check_made(make, t(), graphs=1, breaks=0)


def test_replaced_on_the_class_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    logger, stream = make_logger()
    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        logger.warning_once("replaced")  # type: ignore[attr-defined]
        return x + 1

    compiled = Compiled(fn)
    compiled(t())
    monkeypatch.setattr(logging.Logger, "warning_once", lambda self, text: SEEN.append(text), raising=False)
    before = len(SEEN)
    compiled(t())
    assert SEEN[before:] == ["replaced", "replaced"]
    assert stream.getvalue().count("replaced") == 1


def test_order_among_prints_and_breaks() -> None:
    def body(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "before")
        x = x + 1
        print("between")
        once(logger, "after")
        x = x * 2
        graph_break()
        once(logger, "last")
        return x

    def make() -> Any:
        logger, _ = make_logger()
        once = functools.lru_cache(None)(warning_once.__wrapped__)

        def fn(x: torch.Tensor) -> Any:
            logger.handlers[0].stream = sys.stdout  # type: ignore[attr-defined] # captured for each call
            graph_break()
            return body(logger, once, x)

        return fn

    check_logged(body, calls=2, breaks=2)
    check_made(make, t(), calls=2)


def test_written_before_an_exception() -> None:
    def uncaught(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "before")
        if x.shape[0] == 3:
            raise ValueError("three")
        return x

    def caught(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            once(logger, "before")
            raise ValueError("three")
        except ValueError:
            once(logger, "handled")
        finally:
            once(logger, "finally")
        return x + 1

    check_logged(uncaught, raises=ValueError)
    check_logged(caught, graphs=1, breaks=0)


def test_graph_that_fails() -> None:
    def body(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "before")
        y = x[torch.tensor([0, 100])]
        once(logger, "after")
        return y

    check_logged(body, raises=IndexError)


def test_recompiled_for_other_sizes_and_numbers() -> None:
    logger, stream = make_logger()
    once = functools.lru_cache(None)(warning_once.__wrapped__)

    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        once(logger, "size %d %s", x.shape[0], n)
        return x * n

    compiled = Compiled(fn)
    for size, n in ((3, 2), (4, 3), (5, 4), (5, 4)):
        compiled(t(size), n)
    assert stream.getvalue().count("size") == 3


def test_level_off_is_remembered_by_the_cache() -> None:
    logger, stream = make_logger(level=logging.ERROR)
    once = functools.lru_cache(None)(warning_once.__wrapped__)

    def fn(x: torch.Tensor) -> torch.Tensor:
        once(logger, "quiet")
        return x + 1

    compiled = Compiled(fn)
    compiled(t())
    logger.setLevel(logging.INFO)
    compiled(t())
    assert stream.getvalue() == ""


def test_level_changed_in_the_frame() -> None:
    def body(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "shown")
        logger.level = logging.ERROR
        logger._cache.clear()  # type: ignore[attr-defined]
        once(logger, "not shown")
        logger.level = logging.INFO
        logger._cache.clear()  # type: ignore[attr-defined]
        once(logger, "shown again")
        return x + 1

    check_logged(body)


def test_handlers_changed_in_the_frame() -> None:
    def make() -> Any:
        logger, stream = make_logger()
        other = io.StringIO()
        handler = logging.StreamHandler(other)
        once = functools.lru_cache(None)(warning_once.__wrapped__)

        def fn(x: torch.Tensor) -> torch.Tensor:
            once(logger, f"one {x.shape[0]}")
            logger.handlers.append(handler)
            once(logger, f"two {x.shape[0]}")
            logger.handlers.pop()
            once(logger, f"three {x.shape[0]}")
            return x + 1

        return fn, lambda: (stream.getvalue(), other.getvalue())

    check_made(make, t())


def test_handler_that_the_frame_can_see() -> None:
    def make() -> Any:
        logger, _ = make_logger()
        handler = Collect()
        logger.addHandler(handler)
        once = functools.lru_cache(None)(warning_once.__wrapped__)

        def fn(x: torch.Tensor) -> Any:
            once(logger, f"one {x.shape[0]}")
            return x + len(handler.lines)

        return fn, lambda: list(handler.lines)

    check_made(make, t())


def test_handler_added_between_calls() -> None:
    logger, _ = make_logger()
    handler = Collect()
    once = functools.lru_cache(None)(warning_once.__wrapped__)

    def fn(x: torch.Tensor) -> Any:
        once(logger, f"size {x.shape[0]}")
        return x + len(handler.lines)

    compiled = Compiled(fn)
    compiled(t())
    logger.addHandler(handler)
    once.cache_clear()
    assert torch.equal(compiled.compiled(t()), t() + 1)


@pytest.mark.parametrize("what", ["filter", "formatter", "stream", "method", "factory"])
def test_user_code_in_the_way_of_a_record(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        logger, stream = make_logger()
        state = [0]
        handler = logger.handlers[0]
        once = functools.lru_cache(None)(warning_once.__wrapped__)

        def count(*args: Any, **kwargs: Any) -> Any:
            state[0] += 1
            return True

        class Counting(io.StringIO):
            def write(self, text: str) -> int:
                count()
                return super().write(text)

        class Format(logging.Formatter):
            def format(self, record: logging.LogRecord) -> str:
                count()
                return super().format(record)

        def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
            count()
            return logging.LogRecord(*args, **kwargs)

        if what == "filter":
            logger.addFilter(count)
        elif what == "formatter":
            handler.setFormatter(Format())
        elif what == "stream":
            handler.stream = Counting()  # type: ignore[attr-defined]
        elif what == "method":
            monkeypatch.setattr(logger, "handle", count)
        else:
            logging.setLogRecordFactory(factory)

        def fn(x: torch.Tensor) -> Any:
            once(logger, f"size {x.shape[0]}")
            return x + state[0]

        return fn, lambda: (stream.getvalue(), list(state))

    try:
        check_made(make, t(), skips=None)
    finally:
        logging.setLogRecordFactory(logging.LogRecord)


def test_arguments_that_are_more_than_plain_values() -> None:
    def tensor(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "tensor %s", x + 1)
        return x + 1

    def unhashable(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "list %s", [1])
        return x + 1

    def badly_formatted(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "%d", "text")
        return x + 1

    def no_logger(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once("logger", "text")
        return x + 1

    def stack(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "deeper", stacklevel=1)
        return x + 1

    check_logged(tensor, calls=1)
    check_logged(unhashable, raises=TypeError)
    check_logged(no_logger, raises=AttributeError)
    check_logged(stack)
    raised, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        check_logged(badly_formatted)
    finally:
        logging.raiseExceptions = raised


def test_helpers_that_do_more() -> None:
    logger, _ = make_logger()

    def fn(x: torch.Tensor, text: str) -> Any:
        counted_once(logger, text)
        return x + len(SEEN)

    def given(x: torch.Tensor) -> Any:
        return x + 1, logger_of(logger, "itself") is logger

    compiled = Compiled(fn)
    SEEN.clear()
    assert torch.equal(compiled.compiled(t(), "a"), t() + 1)
    assert torch.equal(compiled.compiled(t(), "a"), t() + 1)
    assert torch.equal(compiled.compiled(t(), "b"), t() + 2)
    check(given, t())


def test_cache_cleared_in_the_frame() -> None:
    def body(logger: logging.Logger, once: Any, x: torch.Tensor) -> torch.Tensor:
        once(logger, "again")
        once.cache_clear()
        once(logger, "again")
        return x + 1

    check_logged(body)
