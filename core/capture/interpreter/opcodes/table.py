"""A table of opcodes: name -> handler(vm, frame, instr)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any, Any], None]


class OpcodeTable:
    """The handlers that one module has."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}

    def __call__(self, *names: str) -> Callable[[Handler], Handler]:
        """Register the handler of these opcodes."""

        def register(handler: Handler) -> Handler:
            self.handlers.update(dict.fromkeys(names, handler))
            return handler

        return register
