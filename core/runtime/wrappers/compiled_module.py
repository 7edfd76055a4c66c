"""Compiled modules: a proxy, or the module itself."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from jitney.capture.directives import is_compiling
from jitney.runtime.dispatch import Root
from jitney.runtime.entry import Session
from jitney.runtime.wrappers import inner_calls
from jitney.runtime.wrappers.compiled_function import compiled_callable, new_root, recipe
from jitney.runtime.wrappers.object_proxy import ObjectProxy, original_of_proxy, own, proxy_class
from jitney.torch_compat import torch_private

# torch's own methods of modules, which do not call the module.
TORCHS = frozenset(value for value in vars(torch.nn.Module).values() if type(value) is types.FunctionType)
PLAIN_CALL = torch.nn.Module.__call__


def _call_module(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _call_inside(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """What ``nn.Module.__call__`` comes to where nothing is in the module's slot for compiled calls."""
    return module._call_impl(*args, **kwargs)


def _module_root(module: torch.nn.Module, session: Session, call: Any) -> Root:
    """What runs calls of a module, under the name of its class, for messages."""
    cls = type(module)
    code = call.__code__.replace(co_name=cls.__name__, co_qualname=cls.__qualname__)
    shown = inspect.getattr_static(cls, "forward", None)  # TorchScript's cannot be asked of the class
    return new_root(session, types.FunctionType(code, globals(), cls.__name__), shown)


class _ForwardOfClass:
    """``forward`` of a class of proxies, of which FX and TorchScript ask the class: its originals' function."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        kind = owner._jitney_kind()
        return torch.nn.Module.forward if kind is None else kind.forward


class CompiledModule(ObjectProxy, torch.nn.Module):
    """A compiled module: the original's parameters, attributes, state and mode; calls go through compiled code."""

    forward = _ForwardOfClass()

    def __init__(self, module: torch.nn.Module, session: Session, call: Callable[..., Any] | None = None) -> None:
        reasons = root = inner = None
        if call is None:
            inner = _module_root(module, session, _call_inside)
            outer = _module_root(module, session, _call_module)  # for a class, or torch, with another __call__
            root = inner if type(module).__call__ is PLAIN_CALL else outer
            call = functools.partial(outer.__call__, module)
            reasons = lambda args, kwargs: root.recompile_reasons((module, *args), kwargs)  # noqa: E731
        fields = {"original": module, "session": session, "root": root, "call": call, "recompile_reasons": reasons}
        for name, value in {**fields, "inner": inner, "forward": None, "watched": {}}.items():
            object.__setattr__(self, f"_jitney_{name}", value)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the original's compiled ``__call__``, hooks and all; where torch traces this, the original's."""
        if is_dynamo_compiling() or torch_private.traces_symbolically():  # which is to see the module, not its call
            return own(self, "_jitney_original")(*args, **kwargs)
        original, inner = own(self, "_jitney_original"), own(self, "_jitney_inner")
        if inner is not None and type(original).__call__ is PLAIN_CALL:  # torch's may be replaced at any time
            return inner(original, *args, **kwargs)
        return own(self, "_jitney_call")(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name == "_orig_mod":  # as torch.compile's modules call it
            return object.__getattribute__(self, "_jitney_original")
        value = ObjectProxy.__getattribute__(self, name)
        original = object.__getattribute__(self, "_jitney_original")
        if type(value) is not types.MethodType or value.__self__ is not original:
            return value
        if is_compiling() or is_dynamo_compiling():
            return functools.partial(_returning_proxy, self, value)
        if name == "forward" and object.__getattribute__(self, "_jitney_root") is not None:
            return _compiled_forward(self, value)
        function = original_of_proxy(value.__func__)
        if type(function) is not types.FunctionType or function is not value.__func__:
            return value  # it is compiled by itself
        return types.MethodType(_METHODS(function, self), original)

    def _jitney_invoke(self, bound: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a method of the original's, whose calls of the module run compiled code."""
        original = own(self, "_jitney_original")
        if is_compiling() or is_dynamo_compiling() or getattr(bound, "__func__", None) in TORCHS:
            result = bound(*args, **kwargs)
        else:
            call = functools.partial(_inner_call, self)
            run = inner_calls.MethodRun(original, bound.__name__, call, own(self, "_jitney_watched"))
            with run.running():
                result = bound(*args, **kwargs)
            result = inner_calls.run_all(result, run)
        return self if result is original else result

    # Libraries keep what they know of a module by the module (FSDP's state, sets of modules seen): it is one key.
    def __eq__(self, other: object) -> bool:
        return own(self, "_jitney_original") is original_of_proxy(other)

    def __hash__(self) -> int:
        return hash(own(self, "_jitney_original"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return recipe(own(self, "_jitney_original"), own(self, "_jitney_session"), compiled_module)

    def __copy__(self) -> Any:
        return own(self, "_jitney_copy")(copy.copy(own(self, "_jitney_original")))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return own(self, "_jitney_copy")(copy.deepcopy(own(self, "_jitney_original"), memo))

    def _jitney_copy(self, original: torch.nn.Module) -> Any:
        """Another module, compiled as this one."""
        session = own(self, "_jitney_session")
        return compiled_module(original, Session(session.backend, session.fullgraph, session.dynamic))


def _returning_proxy(proxy: CompiledModule, method: types.MethodType, /, *args: Any, **kwargs: Any) -> Any:
    result = method(*args, **kwargs)
    return proxy if result is method.__self__ else result


def _inner_call(proxy: CompiledModule, /, *args: Any, **kwargs: Any) -> Any:
    """What ``nn.Module.__call__`` runs in a method of the module."""
    module, root = own(proxy, "_jitney_original"), own(proxy, "_jitney_inner")
    if root is not None:
        return root(module, *args, **kwargs)
    with inner_calls.calling(module, None):  # an extension's call calls the module
        return own(proxy, "_jitney_call")(*args, **kwargs)


def _compiled_forward(proxy: CompiledModule, forward: types.MethodType) -> Any:
    """The module's ``forward`` by itself, without its hooks, compiled too."""
    made: Any = own(proxy, "_jitney_forward")
    if made is None or original_of_proxy(made.__func__) is not forward.__func__:
        if type(forward.__func__) is not types.FunctionType:  # it is compiled by itself
            return forward
        made = compiled_callable(forward, dataclasses.replace(own(proxy, "_jitney_session"), shown=None, points={}))
        object.__setattr__(proxy, "_jitney_forward", made)
    return made


class MethodProxy(ObjectProxy):
    """The function of a module's method that is called through the compiled module."""

    def __init__(self, function: types.FunctionType, owner: CompiledModule) -> None:
        object.__setattr__(self, "_jitney_original", function)
        object.__setattr__(self, "_jitney_owner", owner)

    def __call__(self, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method of the original module, or of another one."""
        function, owner = own(self, "_jitney_original"), own(self, "_jitney_owner")
        if instance is not own(owner, "_jitney_original"):
            return function(instance, *args, **kwargs)
        return own(owner, "_jitney_invoke")(types.MethodType(function, instance), args, kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name == "__wrapped__":
            return own(self, "_jitney_original")
        return ObjectProxy.__getattribute__(self, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        same = type(other) is type(self) and own(other, "_jitney_owner") is own(self, "_jitney_owner")
        return same and own(other, "_jitney_original") is own(self, "_jitney_original")

    def __hash__(self) -> int:
        return hash(own(self, "_jitney_original"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return getattr, (own(self, "_jitney_original"), "__wrapped__")


_METHODS = proxy_class(MethodProxy, types.FunctionType)  # held: it is made once


def compiled_module(module: torch.nn.Module, session: Session) -> Any:
    """A proxy for a module."""
    call = session.backend.module_call(module, functools.partial(_part, session))
    return proxy_class(CompiledModule, type(module))(module, session, call)


def _part(session: Session, module: torch.nn.Module) -> Any:
    """A module compiled with what the user gave for another one, which an extension takes apart."""
    if issubclass(type(module), CompiledModule):
        return module
    return proxy_class(CompiledModule, type(module))(module, dataclasses.replace(session, shown=None, points={}))


# ------------------------------------------------------------------ in place


class ModuleCall:
    """What is in the slot of a module that is compiled in place: its calls."""

    _jitney_is_compiled = True

    def __init__(self, module: torch.nn.Module, session: Session) -> None:
        self._jitney_original = module._call_impl
        self._jitney_session = session
        self._jitney_root: Root | None = None
        self._call: Callable[..., Any] | None = session.backend.module_call(module, functools.partial(_part, session))
        if self._call is None:
            self._jitney_root = _module_root(module, session, _call_inside)
        self._module = module

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the module's compiled ``_call_impl``; where torch traces this, the module's own."""
        if is_dynamo_compiling() or torch_private.traces_symbolically():
            return self._jitney_original(*args, **kwargs)
        if self._jitney_root is not None:
            return self._jitney_root(self._module, *args, **kwargs)
        if self._call is None or inner_calls.is_called_plainly(self._module):
            return self._jitney_original(*args, **kwargs)
        with inner_calls.calling(self._module, None):
            return self._call(*args, **kwargs)

    def __reduce__(self) -> Any:
        return type(None), ()  # as torch has it: a copy of the module is not compiled


def compile_in_place(module: Any, session: Session) -> Any:
    """Compile the calls of a module that stays what it is; the module.

    Raises:
        TypeError: it is no module, or has calls that its slot does not matter to.
    """
    kind = type(module)
    if not isinstance(module, torch.nn.Module) or issubclass(kind, CompiledModule):
        what = "compiled module" if isinstance(module, torch.nn.Module) else kind.__qualname__
        raise TypeError(f"jitney.compile(..., inplace=True) takes a module; this is a {what}")
    if kind.__call__ is not PLAIN_CALL:
        raise TypeError(f"{kind.__qualname__} has a __call__ of its own: leave inplace=True out")
    module.__dict__[inner_calls.SLOT] = ModuleCall(module, session)
    return module
