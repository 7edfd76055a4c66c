"""Compiled functions and other callables: their calls run a ``Root``."""

from __future__ import annotations

import copy
import dis
import functools
import itertools
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from torch.compiler import is_dynamo_compiling

from jitney._util import callers
from jitney._util.code_cache import drop_gone, drop_when_gone
from jitney.backends import resolve
from jitney.capture.marks import is_of_torch_compile
from jitney.runtime import stance
from jitney.runtime.dispatch import Root
from jitney.runtime.entry import Session
from jitney.runtime.wrappers.object_proxy import ObjectProxy, own, proxy_class
from jitney.torch_compat import torch_private

roots: weakref.WeakSet[Root] = weakref.WeakSet()  # of the whole process


def _publish() -> None:
    for root in list(roots):
        root.publish()


stance.on_forced.append(_publish)


def new_root(session: Session, function: types.FunctionType, shown: Any = None) -> Root:
    """What runs calls of ``function``; messages are about ``shown``, where the function is only a call of ours."""
    if type(shown) is types.FunctionType:
        session.shown = shown.__code__
    drop_gone()
    root = Root(session, function)
    roots.add(root)
    drop_when_gone(root)
    return root


class CompiledCallable(ObjectProxy):
    """A compiled object that is called, such as a ``functools.partial``."""

    def __init__(self, original: Any, session: Session, root: Root) -> None:
        object.__setattr__(self, "_jitney_original", original)
        object.__setattr__(self, "_jitney_session", session)
        object.__setattr__(self, "_jitney_root", root)
        object.__setattr__(self, "_jitney_recompile_reasons", root.recompile_reasons)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled code; where torch.compile traces this call, the original."""
        if is_dynamo_compiling():
            return self._jitney_original(*args, **kwargs)  # which it can read, as ``own`` cannot be
        return own(self, "_jitney_root")(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        value = ObjectProxy.__getattribute__(self, name)
        if type(value) is types.MethodType and value.__self__ is own(self, "_jitney_original"):
            _warn_of_calls(value)
        return value

    def __repr__(self) -> str:
        session = own(self, "_jitney_session")
        return f"<compiled {own(self, '_jitney_original')!r} backend={session.backend.name!r}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        original = own(self, "_jitney_original")
        if _is_global(self, original):
            return original.__qualname__
        return recipe(original, own(self, "_jitney_session"), compiled_callable)

    def __copy__(self) -> Any:
        return _copy_of(self, copy.copy(own(self, "_jitney_original")))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copy_of(self, copy.deepcopy(own(self, "_jitney_original"), memo))


def _copy_of(compiled: CompiledCallable, original: Any) -> Any:
    """What is compiled as ``compiled`` is: that itself, where a copy is no other object, as a function's."""
    if original is own(compiled, "_jitney_original"):
        return compiled
    session = own(compiled, "_jitney_session")
    return compiled_callable(original, Session(session.backend, session.fullgraph, session.dynamic))


class CompiledFunction(CompiledCallable):
    """A compiled function; in a class, a method."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__wrapped__":  # as decorators call it
            return own(self, "_jitney_original")
        return ObjectProxy.__getattribute__(self, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


_OF_FUNCTIONS = proxy_class(CompiledFunction, types.FunctionType)  # held: it is made once


def compiled_callable(target: Any, session: Session) -> Any:
    """The compiled form of a function, a bound method of a function, or another callable."""
    if type(target) is types.MethodType and type(target.__func__) is types.FunctionType:
        return types.MethodType(compiled_callable(target.__func__, session), target.__self__)
    if type(target) is types.FunctionType and not is_of_torch_compile(target) and not _is_jacobian(target):
        root = new_root(session, target)
    else:
        shown = target.func if isinstance(target, functools.partial) else getattr(type(target), "__call__", None)  # noqa: B004
        root = new_root(session, _caller(target), shown)
    made = _OF_FUNCTIONS if type(target) is types.FunctionType else proxy_class(CompiledCallable, type(target))
    return made(target, session, root)


def _is_jacobian(function: types.FunctionType) -> bool:
    """Has torch.func.jacrev or jacfwd made it? Capture knows calls of such, and does not look into them."""
    return function.__code__.co_name == "wrapper_fn" and function.__code__ in torch_private.jacobians().values()


def _caller(target: Callable[..., Any]) -> Any:
    """A Python function that calls a C function, a partial or an object."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    call.__name__ = call.__qualname__ = getattr(target, "__name__", type(target).__name__)
    return call


# ------------------------------------------------------------------ in another process


def recipe(original: Any, session: Session, compiled: Callable[[Any, Session], Any]) -> tuple[Any, tuple[Any, ...]]:
    """For pickle: the original, which ``compiled`` makes the same of as here."""
    asked = session.backend.asked
    spec = (session.backend.name, None, None) if asked is None else (asked.spec, asked.options, asked.mode)
    return _again, (compiled, original, spec, session.fullgraph, session.dynamic)


def _again(
    compiled: Callable[[Any, Session], Any],
    original: Any,
    spec: tuple[Any, Any, Any],
    fullgraph: bool,
    dynamic: bool | None,
) -> Any:
    return compiled(original, Session(resolve(*spec), fullgraph, dynamic))


def _is_global(value: Any, original: Any) -> bool:
    """Does the original's name lead to its compiled form, as that of a decorated function does?"""
    module = sys.modules.get(str(getattr(original, "__module__", None)))
    try:
        return operator.attrgetter(original.__qualname__)(module) is value
    except AttributeError:
        return False


# ------------------------------------------------------------------ methods of callable objects


_warned: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


def _warn_of_calls(method: types.MethodType) -> None:
    """Warn once of a method that calls its object, which is not the compiled one."""
    function: Any = method.__func__
    if type(function) is not types.FunctionType or function.__code__ in _warned:
        return
    code = function.__code__
    if code.co_argcount and _calls(code, code.co_varnames[0]):
        _warned.add(code)
        callers.warn(
            f"{function.__qualname__} runs uncompiled, and so do its calls of the object: those of the compiled object "
            "are what is compiled. To compile the method: jitney.compile(object.method)"
        )


def _calls(code: types.CodeType, name: str) -> bool:
    """Does code call what has this name (``self(x)``)?"""
    ops = [(i.opname, i.argval) for i in dis.get_instructions(code)]
    for (op, value), (following, next_value) in itertools.pairwise(ops):
        pair = {op, following} - {"PUSH_NULL"}
        if "PUSH_NULL" in (op, following) and pair <= {"LOAD_FAST", "LOAD_DEREF"} and name in (value, next_value):
            return True
    return any(_calls(c, name) for c in code.co_consts if isinstance(c, types.CodeType) and name in c.co_freevars)
