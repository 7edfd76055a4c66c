"""What depends on who calls: variables of the context, the number of the thread. Read at each call, like an attribute.

``ContextVar.set`` and ``reset`` are graph breaks, after which the rest of the frame reads anew.
"""

from __future__ import annotations

import threading
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.signals import Break
from jitney.capture.tables import Args, FunctionTable, Kwargs

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()


def _has_default(variable: ContextVar[Any]) -> bool:
    try:
        Context().run(variable.get)
    except LookupError:
        return False
    return True


@special(threading.get_ident)
def _get_ident(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """A number that changes; who only looks for it among keys has one graph for all threads."""
    vm.world.assumptions.keep_private("the number of a thread is read")
    return vm.world.wrap(
        vm.native(threading.get_ident, *args, **kwargs), vm.world.const(threading.get_ident).step("call")
    )


def method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of a ``ContextVar``."""
    record = vm.world.record_of(owner)
    if name != "get" or record is None:
        raise Break(f"call of the C method ContextVar.{name}", "call it outside the compiled function")
    try:
        held = owner.get()
    except LookupError:
        raise Break("a ContextVar without a value is read", "set it, or give it a default where it is made") from None
    if (args or kwargs) and _has_default(owner):  # which is what the guard would read where there is no value
        raise Break("a ContextVar with a default of its own is read with another", "give it one of them")
    return vm.world.wrap(held, record.source.attr("get").step("call"))
