"""The one place where the tables of handlers become those of the interpreter."""

from __future__ import annotations

from collections import Counter

from jitney.capture.handlers import HANDLERS, NUMPY, TABLES
from jitney.capture.interpreter import opcodes


def test_no_two_modules_handle_the_same() -> None:
    handled = Counter(key for table in TABLES for key in (*table.functions, *table.codes))
    methods = Counter(name for table in NUMPY for name in table.methods)
    parts = (opcodes.calling, opcodes.containers, opcodes.control, opcodes.exceptions, opcodes.matching)
    names = Counter(name for part in (*parts, opcodes.variables) for name in part.op.handlers)
    for counts in (handled, methods, names):
        assert [key for key, count in counts.items() if count > 1] == []
    assert len(handled) == len(HANDLERS.functions) + len(HANDLERS.codes)
    assert (len(methods), len(names)) == (len(HANDLERS.arrays.methods), len(opcodes.HANDLERS))
