"""Is logging nothing but text that goes to streams? What capture takes for granted where a logger's call waits."""

from __future__ import annotations

import io
import logging
import types
from typing import Any

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50, "log": -1}
# What a call of a level's method goes through.
INNER = ("_log", "handle", "callHandlers", "makeRecord", "findCaller", "isEnabledFor", "filter", *LEVELS)
LOGGERS = (logging.Logger, logging.RootLogger)
HANDLERS = (logging.StreamHandler, logging.FileHandler, logging.NullHandler, type(logging.lastResort))
STREAMS = (io.TextIOWrapper, io.StringIO)


class WritesText:
    """Does logging here write text to streams and nothing else? A guard asks again."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.__qualname__ = f"the handlers of the logger {logger.name} write text only"

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        return ["call", f"{__name__}:WritesText", [writer.ref(self.logger)]]

    def __call__(self) -> bool:
        """No code of the user's runs when the logger is called."""
        logger = self.logger
        if type(logger) not in LOGGERS or logging.getLogRecordFactory() is not logging.LogRecord:
            return False
        if logger.filters or any(name in vars(logger) or not _stdlib(logger, name) for name in INNER):
            return False
        return all(map(_writes_text, handlers_of(logger)))


def _stdlib(logger: logging.Logger, name: str) -> bool:
    return getattr(getattr(type(logger), name), "__globals__", None) is vars(logging)


def handlers_of(logger: logging.Logger) -> list[logging.Handler]:
    """The handlers that a record of this logger reaches."""
    found: list[logging.Handler] = []
    at: logging.Logger | None = logger
    while at is not None:
        found += at.handlers
        at = at.parent if at.propagate else None
    return found or ([logging.lastResort] if logging.lastResort is not None else [])


def _writes_text(handler: logging.Handler) -> bool:
    if type(handler) not in HANDLERS or handler.filters:
        return False
    if any(callable(v) and type(v) is not types.BuiltinMethodType for v in vars(handler).values()):
        return False
    if handler.formatter is not None and (type(handler.formatter) is not logging.Formatter):
        return False
    stream = getattr(handler, "stream", None)
    return stream is None or any(
        isinstance(stream, kind) and all(getattr(type(stream), n) is getattr(kind, n) for n in ("write", "flush"))
        for kind in STREAMS
    )
