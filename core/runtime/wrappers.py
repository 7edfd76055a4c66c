"""What ``jitney.compile`` returns: a callable that behaves like the original, only compiled."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from jitney.capture.marks import is_of_torch_compile
from jitney.runtime import stance
from jitney.runtime.dispatch import Root
from jitney.runtime.entry import FrameState, Session
from jitney.torch_compat import torch_private


def _of_original(name: str) -> Any:
    """A property that is the original's attribute."""

    def read(self: Any) -> Any:
        return getattr(self._jitney_original, name)

    def write(self: Any, value: Any) -> None:
        setattr(self._jitney_original, name, value)

    return property(read, write, lambda self: delattr(self._jitney_original, name))


class CompiledFunction:
    """A compiled function. Its original is ``_jitney_original``.

    Args:
        function: what is compiled.
        session: what the call of ``jitney.compile`` shares among its frames.
        shown: what messages are about, where ``function`` is only a call of ours.
    """

    _jitney_is_compiled = True
    __code__, __defaults__, __kwdefaults__ = map(_of_original, ("__code__", "__defaults__", "__kwdefaults__"))

    def __init__(self, function: Any, session: Session, shown: Any = None) -> None:
        functools.update_wrapper(self, function)
        self._jitney_original = function
        self._jitney_session = session
        if isinstance(shown, types.FunctionType):
            session.shown = shown.__code__
        self._jitney_root = Root(session, function)
        self._jitney_recompile_reasons = self._jitney_root.recompile_reasons
        _roots.add(self._jitney_root)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled code; where torch.compile traces this call, the original."""
        if is_dynamo_compiling():
            return self._jitney_original(*args, **kwargs)
        return self._jitney_root(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {self._jitney_original!r} backend={self._jitney_session.backend.name!r}>"

    def __reduce__(self) -> Any:
        return copy.copy, (self._jitney_original,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


_roots: weakref.WeakSet[Root] = weakref.WeakSet()


def _publish() -> None:
    for root in list(_roots):
        root.publish()


stance.on_forced.append(_publish)


def forget_everything() -> None:
    """Drop all compiled code of the process."""
    for root in list(_roots):
        root.forget()
        root.session.forget()


@contextlib.contextmanager
def running_originals() -> Iterator[None]:
    """What is compiled runs as its user wrote it in the block, and nothing is compiled: to compare with eager."""
    before = [(root, root.state, root.session.frozen.on) for root in list(_roots)]
    for root, *_ in before:
        root.state, root.session.frozen.on = FrameState.ORIGINAL, True
        root.publish()
    try:
        yield
    finally:
        for root, state, frozen in before:
            root.state, root.session.frozen.on = state, frozen
            root.publish()


def _call_module(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _caller_of(cls: type) -> types.FunctionType:
    """``_call_module`` under the name of the module's class, for messages."""
    code = _call_module.__code__.replace(co_name=cls.__name__, co_qualname=cls.__qualname__)
    return types.FunctionType(code, globals(), cls.__name__)


class CompiledModule(torch.nn.Module):
    """A compiled module: the original's parameters, attributes, state and mode; calls go through compiled code."""

    _jitney_is_compiled = True

    def __init__(self, module: torch.nn.Module, session: Session, call: Callable[..., Any] | None = None) -> None:
        object.__setattr__(self, "_jitney_original", module)
        object.__setattr__(self, "_jitney_session", session)
        reasons = root = None
        if call is None:
            shown = inspect.getattr_static(type(module), "forward", None)  # TorchScript's cannot be asked of the class
            root = CompiledFunction(_caller_of(type(module)), session, shown)._jitney_root
            call = functools.partial(root.__call__, module)
            reasons = lambda args, kwargs: root.recompile_reasons((module, *args), kwargs)  # noqa: E731
        object.__setattr__(self, "_jitney_root", root)
        object.__setattr__(self, "_jitney_call", call)
        object.__setattr__(self, "_jitney_recompile_reasons", reasons)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the original's compiled ``__call__``, hooks and all; where torch.compile traces this, the original's."""
        if is_dynamo_compiling():
            return self._jitney_original(*args, **kwargs)
        return _own(self, "_jitney_call")(*args, **kwargs)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._jitney_original)

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN or name.startswith("_jitney_"):
            return object.__getattribute__(self, name)
        if name == "_orig_mod":  # as torch.compile's modules call it
            return object.__getattribute__(self, "_jitney_original")
        value = getattr(object.__getattribute__(self, "_jitney_original"), name)
        return _staying_compiled(self, value) if name in _RETURN_SELF else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._jitney_original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._jitney_original, name)

    def __repr__(self) -> str:
        return f"compiled {self._jitney_original!r}"

    def __len__(self) -> int:
        return len(self._jitney_original)

    def __getitem__(self, key: Any) -> Any:
        return self._jitney_original[key]

    def __iter__(self) -> Any:
        return iter(self._jitney_original)

    def __contains__(self, key: Any) -> bool:
        return key in self._jitney_original

    def __dir__(self) -> list[str]:
        return dir(self._jitney_original)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copy.copy, (self._jitney_original,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        session = self._jitney_session
        fresh = Session(session.backend, session.fullgraph, session.dynamic)
        return wrap(copy.deepcopy(self._jitney_original, memo), fresh)


_own = object.__getattribute__
_OWN = frozenset({"__call__", "__class__", "__repr__", "__reduce_ex__", "__deepcopy__", "__setattr__", "__dir__"})
# Methods of nn.Module that return the module: `compiled = jitney.compile(model).eval()` is compiled, too.
_RETURN_SELF = frozenset(
    (
        *("apply", "eval", "requires_grad_", "share_memory", "to", "to_empty", "train", "type"),
        *("bfloat16", "double", "float", "half"),
        *("cpu", "cuda", "ipu", "mtia", "xpu"),
    )
)


def _staying_compiled(module: CompiledModule, method: Any) -> Any:
    """A method of the original that returns the compiled module where it would return the original."""
    if not isinstance(method, types.MethodType):
        return method  # an attribute of the program's that has such a name

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        return module if result is module._jitney_original else result

    return call


def wrap(target: Any, session: Session) -> Any:
    """The compiled form of a function, method, module or callable object."""
    if isinstance(target, CompiledFunction):
        target = target._jitney_original
    if type(target) is CompiledModule:
        target = target._jitney_original
    if isinstance(target, torch.nn.Module):
        return CompiledModule(target, session, session.backend.module_call(target, functools.partial(_part, session)))
    if isinstance(target, types.MethodType) and isinstance(target.__func__, types.FunctionType):
        return types.MethodType(CompiledFunction(target.__func__, session), target.__self__)
    if isinstance(target, types.FunctionType) and not is_of_torch_compile(target) and not _is_jacobian(target):
        return CompiledFunction(target, session)
    shown = target.func if isinstance(target, functools.partial) else getattr(type(target), "__call__", None)  # noqa: B004
    return CompiledFunction(_caller(target), session, shown)


def _part(session: Session, module: torch.nn.Module) -> CompiledModule:
    """A module compiled with what the user gave for another one, which an extension takes apart."""
    if type(module) is CompiledModule:
        return module
    return CompiledModule(module, dataclasses.replace(session, shown=None, points={}))


def _is_jacobian(function: types.FunctionType) -> bool:
    """Has torch.func.jacrev or jacfwd made it? Capture knows calls of such, and does not look into them."""
    return function.__code__.co_name == "wrapper_fn" and function.__code__ in torch_private.jacobians().values()


def _caller(target: Callable[..., Any]) -> Any:
    """A Python function that calls a C function, a partial or an object."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    call.__name__ = call.__qualname__ = getattr(target, "__name__", type(target).__name__)
    return call
