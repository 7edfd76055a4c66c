"""``ContextVar.get()``: what a variable of the context holds is read at each call, like an attribute.

``set`` and ``reset`` are graph breaks, after which the rest of the frame reads anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.signals import Break
from jitney.capture.tables import Args, Kwargs

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

UNSET = object()


def method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of a ``ContextVar``."""
    record = vm.world.record_of(owner)
    if name != "get" or record is None:
        raise Break(f"call of the C method ContextVar.{name}", "call it outside the compiled function")
    held = owner.get(UNSET)
    if held is UNSET:
        raise Break("a ContextVar without a value is read", "set it, or give it a default where it is made")
    return vm.world.wrap(held, record.source.attr("get").step("call"))
