"""From what the user gives to what is compiled, and what holds for all of it."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch

from jitney.runtime.dispatch import Root
from jitney.runtime.entry import FrameState, Session
from jitney.runtime.wrappers.compiled_function import CompiledCallable, compiled_callable, roots
from jitney.runtime.wrappers.compiled_module import CompiledModule, ModuleCall, compiled_module
from jitney.runtime.wrappers.inner_calls import SLOT
from jitney.runtime.wrappers.object_proxy import original_of_proxy


def wrap(target: Any, session: Session) -> Any:
    """The compiled form of a function, method, module or callable object."""
    target = original_of_proxy(target)
    if isinstance(target, torch.nn.Module):
        return compiled_module(target, session)
    if type(target) is types.MethodType:
        target = types.MethodType(original_of_proxy(target.__func__), target.__self__)
    return compiled_callable(target, session)


def root_of(compiled: Any) -> Root | None:
    """What runs the calls of something compiled; None where an extension does.

    Raises:
        TypeError: it is not compiled.
    """
    found: Any = compiled.__func__ if isinstance(compiled, types.MethodType) else compiled
    if isinstance(found, torch.nn.Module) and not issubclass(type(found), CompiledModule):
        found = found.__dict__.get(SLOT)
    if isinstance(found, ModuleCall) or issubclass(type(found), (CompiledCallable, CompiledModule)):
        root: Root | None = found._jitney_root
        return root
    raise TypeError("this takes a function or module returned by jitney.compile")


def module_of(compiled: Any) -> torch.nn.Module | None:
    """The module whose calls something compiled is; None if it is no module."""
    found = original_of_proxy(compiled)
    return found if isinstance(found, torch.nn.Module) else None


def forget_everything() -> None:
    """Drop all compiled code of the process."""
    for root in list(roots):
        root.forget()
        root.session.forget()


@contextlib.contextmanager
def running_originals() -> Iterator[None]:
    """What is compiled runs as its user wrote it in the block, and nothing is compiled: to compare with eager."""
    before = [(root, root.state, root.session.frozen.on) for root in list(roots)]
    for root, *_ in before:
        root.state, root.session.frozen.on = FrameState.ORIGINAL, True
        root.publish()
    try:
        yield
    finally:
        for root, state, frozen in before:
            root.state, root.session.frozen.on = state, frozen
            root.publish()
