"""Closure cells: what they hold, and what is written to them."""

from __future__ import annotations

import contextlib
import types
from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.code import PY313
from jitney.capture.interpreter.frame import NULL, Frame
from jitney.capture.interpreter.signals import UserRaised

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter


def cell_get(vm: Interpreter, cell: types.CellType, name: str) -> Any:
    """A closure cell's content; raises ``NameError`` in the user's program when it is empty."""
    record = vm.world.record_of(cell)
    if record is not None and record.cell is not None:
        value = record.cell[0]
        if value is not NULL:
            return value
    elif record is not None:
        try:
            content = cell.cell_contents
        except ValueError:
            vm.world.guard(record.source, "lacks_attr", "cell_contents")
        else:
            return vm.world.wrap(content, record.source.attr("cell_contents"))
    else:
        try:
            return cell.cell_contents
        except ValueError:
            pass
    text = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
    return vm.raise_user(NameError(text, name=name))


def cell_set(vm: Interpreter, cell: types.CellType, value: Any) -> None:
    """Fill or (with ``NULL``) empty a cell: at once if it is fresh, pending otherwise."""
    record = vm.world.record_of(cell)
    if record is not None:
        record.cell = (value,)
        record.dirty = True
    elif value is NULL:
        del cell.cell_contents
    else:
        cell.cell_contents = value


def variables(vm: Interpreter, frame: Frame) -> Any:
    """What ``locals()`` gives in a function: its variables that have values, shared ones too.

    Before Python 3.13 it is one dictionary for the frame, brought up to date at each call; then a new one each time.
    """
    made = dict(frame.locals)
    for name, cell in frame.cells.items():
        with contextlib.suppress(UserRaised):
            made[name] = cell_get(vm, cell, name)
    order = [*frame.info.code.co_varnames, *frame.info.code.co_cellvars, *frame.info.code.co_freevars]
    if PY313 or frame.variables is None:
        frame.variables = vm.world.mark_fresh({n: made[n] for n in dict.fromkeys(order) if n in made})
        return frame.variables
    for name in dict.fromkeys(order):
        if name in made:
            vm.call(dict.__setitem__, frame.variables, name, made[name])
        else:
            vm.call(dict.pop, frame.variables, name, None)
    return frame.variables
