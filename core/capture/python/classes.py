"""Classes defined while capturing: the body is interpreted, the class object is real."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.binding import closure_cells
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.frame import Frame
from jitney.capture.interpreter.signals import Break

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

PLAIN_METACLASSES: tuple[type, ...] = (type,)


def build_class(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """``__build_class__(body, name, *bases)``."""
    body, name, *bases = args
    if kwargs or any(not isinstance(b, type) for b in bases):
        raise Break(f"the class {name} is made with keywords or unusual bases", "define it at the top of the file")
    meta = type(bases[0]) if bases else type
    if any(type(b) not in PLAIN_METACLASSES for b in bases):
        raise Break(f"the class {name} has the metaclass {meta.__name__}", "define it at the top of the file")
    for base in bases:
        if "__init_subclass__" in vars(base):
            raise Break(f"the class {name} runs __init_subclass__", "define it at the top of the file")
    namespace: dict[str, Any] = {}
    frame = Frame(decode(body.__code__), body.__globals__, {}, {}, body)
    frame.namespace = namespace
    frame.cells.update(zip(body.__code__.co_freevars, closure_cells(vm, body), strict=True))
    vm.finish(frame)
    cell = namespace.get("__classcell__")
    # A __class__ cell must be filled by type.__new__ with the class itself.
    hooks = {k: v for k, v in namespace.items() if hasattr(type(v), "__set_name__")}
    if any(isinstance(getattr(type(v), "__set_name__", None), types.FunctionType) for v in hooks.values()):
        if not all(type(v).__module__ in ("functools",) for v in hooks.values()):
            raise Break(f"the class {name} runs __set_name__", "define it at the top of the file")
    made = vm.world.mark_fresh(vm.native(type, name, tuple(bases), dict(namespace)))
    vm.world.class_steps[id(made)] = vm.break_step()
    if isinstance(cell, types.CellType):
        vm.world.mark_fresh(cell)
    return made
