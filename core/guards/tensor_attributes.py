"""Have tensors attributes of their own that hide methods, or hooks? Asked of all of them in one call."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from jitney.torch_compat import torch_private

HOOKLESS = "hookless"  # the kind of guard that a leaf has no place for hooks
_PLAIN = (bool, int, str, type(None))


class Untouched:
    """What ``disjoint`` and ``hookless`` guards say of many tensors.

    A tensor's attributes and hooks are what the garbage collector finds at it, beside its class. As long as that is
    what it was when all guards held, they hold.

    Args:
        names: for each tensor what it must not have as an attribute of its own.
        hookless: for each tensor: must it have no place for hooks?
    """

    def __init__(self, names: Sequence[Iterable[str]], hookless: Sequence[bool]) -> None:
        self.names = tuple([tuple(sorted(each)) for each in names])
        self.hookless = tuple(hookless)
        self.hidden = {name for each in self.names for name in each}
        self.found: list[Any] | None = None

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        """How a later process makes it again (``cache/recipes.py``)."""
        return ["call", f"{__name__}:Untouched", writer.refs((self.names, self.hookless))]

    def __call__(self, *tensors: torch.Tensor) -> bool:
        """Do all the guards hold?"""
        if self.found is not None and gc.get_referents(*tensors) == self.found:
            return True
        with torch_private.DisableTorchFunctionSubclass():
            rows = zip(tensors, self.names, self.hookless, strict=True)
            holds = all(
                attributes(tensor).keys().isdisjoint(names) and not (hookless and has_hooks(tensor))
                for tensor, names, hookless in rows
            )
        if holds:
            self.found = self._copy(gc.get_referents(*tensors))
        return holds

    def _copy(self, referents: list[Any]) -> list[Any] | None:
        """What equals these as long as no attribute and no hook is added; None if such may be among them already."""
        if not all(_is_quiet(one) and not (type(one) is dict and self.hidden & one.keys()) for one in referents):
            return None
        return [dict(one) if type(one) is dict else one for one in referents]


def attributes(tensor: torch.Tensor) -> dict[str, Any]:
    """A tensor's own ``__dict__``, which is not made where there is none: it would be looked at in each call."""
    if _hooks_are_referents() and gc.get_referents(tensor) == [type(tensor)]:
        return {}
    found: dict[str, Any] = object.__getattribute__(tensor, "__dict__")
    return found


def has_hooks(tensor: torch.Tensor) -> bool:
    """Has the tensor a place for hooks?"""
    return tensor._backward_hooks is not None or tensor._post_accumulate_grad_hooks is not None


def is_quiet(tensor: torch.Tensor) -> bool:
    """Is nothing to be found at this tensor that may change without its being seen?"""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and _hooks_are_referents()
    return plain and all(map(_is_quiet, gc.get_referents(tensor)))


def _is_quiet(one: Any) -> bool:
    if type(one) is dict:
        return all(type(key) is str and type(value) in _PLAIN for key, value in one.items())
    return one is torch.Tensor or one is torch.nn.Parameter


@functools.cache
def _hooks_are_referents() -> bool:
    """Does this torch show the garbage collector all that is asked for?"""

    def seen(change: Any) -> bool:
        tensor = torch.nn.Parameter(torch.empty(0))
        before = gc.get_referents(tensor)
        change(tensor)
        return before == [torch.nn.Parameter] != gc.get_referents(tensor)

    with torch_private.without_modes(), torch.enable_grad():
        return (
            seen(lambda t: setattr(t, "_backward_hooks", {}))  # a handle would count, in the midst of a capture
            and seen(lambda t: setattr(t, "_post_accumulate_grad_hooks", {}))
            and seen(lambda t: setattr(t, "mul_", None))
        )
