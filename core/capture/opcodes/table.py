"""The dispatch table: opcode name -> handler(vm, frame, instr)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any, Any], None]
HANDLERS: dict[str, Handler] = {}
PY312 = sys.version_info >= (3, 12)
PY313 = sys.version_info >= (3, 13)


def op(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of these opcodes."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register
