"""What users and libraries say about functions: do not compile, record whole, break here."""

from __future__ import annotations

import inspect
import types
import weakref
from typing import Any

SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
DISABLED = "remove the disable mark to compile it"

_disabled: weakref.WeakSet[Any] = weakref.WeakSet()
_frame_only: weakref.WeakSet[Any] = weakref.WeakSet()
_disallowed: weakref.WeakSet[Any] = weakref.WeakSet()
_allowed: weakref.WeakSet[Any] = weakref.WeakSet()
compile_functions: list[Any] = []  # what compiled code may call to compile: ``jitney.compile``


def mark_disabled(fn: Any) -> None:
    """Calls of this function break the graph and run in Python."""
    _disabled.add(fn)


def mark_disallowed(fn: Any) -> None:
    """Calls of this torch function break the graph."""
    _disallowed.add(fn)
    _allowed.discard(fn)


def mark_allowed(fn: Any) -> None:
    """Calls of this function are recorded as one node, unseen inside."""
    _allowed.add(fn)
    _disallowed.discard(fn)


def _in(collection: weakref.WeakSet[Any], fn: Any) -> bool:
    if isinstance(type(fn).__hash__, types.FunctionType):  # the program's: not to be called here
        return any(fn is marked for marked in collection)
    try:
        return fn in collection
    except TypeError:
        return False


def is_disabled(fn: Any) -> bool:
    """Marked by ``jitney.disable``, ``torch.compiler.disable`` or ``torch._dynamo.disable``."""
    if isinstance(fn, types.MethodType):
        fn = fn.__func__
    if _in(_disabled, fn):
        return True
    storage: Any = getattr(fn, "__dict__", None) or {}
    return bool(storage.get("_torchdynamo_disable") or storage.get("_jitney_disable"))


def mark_frame_only(fn: Any) -> None:
    """``fn`` is disabled, and what its ``__wrapped__`` calls is compiled all the same."""
    _disabled.add(fn)
    _frame_only.add(fn)


def everything_said() -> list[str]:
    """All that was marked so far, as text that is equal in two processes that marked the same functions."""
    kinds = {"disabled": _disabled, "frame only": _frame_only, "disallowed": _disallowed, "allowed": _allowed}
    found = {
        f"{kind} {getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
        for kind, marked in kinds.items()
        for fn in marked
    }
    return sorted(found)


def frame_only(fn: Any) -> Any:
    """The original of a function disabled with ``recursive=False`` (jitney's or torch's); None for any other."""
    storage = getattr(fn, "__dict__", None)
    if type(fn) is not types.FunctionType or not storage:
        return None
    if fn in _frame_only:
        return storage.get("__wrapped__")
    if storage.get("_torchdynamo_disable_recursive") is False:
        return storage.get("_torchdynamo_orig_callable")
    return None


def is_disallowed(fn: Any) -> bool:
    """Marked by ``disallow_in_graph``."""
    return _in(_disallowed, fn)


def is_allowed(fn: Any) -> bool:
    """Marked by ``allow_in_graph`` of jitney or torch."""
    if _in(_allowed, fn):
        return True
    return bool(getattr(fn, "__dict__", {}).get("_jitney_allow_in_graph"))


def is_constant_result(fn: types.FunctionType) -> bool:
    """Marked by ``assume_constant_result`` of jitney or torch."""
    storage = fn.__dict__
    return bool(storage.get("_jitney_constant_result") or storage.get("_dynamo_marked_constant"))


def stays_python(fn: types.FunctionType) -> bool:
    """Does this function run in Python even when it is compiled: disabled, or a generator or coroutine function?"""
    return bool(fn.__code__.co_flags & SUSPENDS) or is_disabled(fn)


def is_of_torch_compile(fn: types.FunctionType) -> bool:
    """Is it the wrapper of a function that torch.compile has compiled? It goes by the user's name and module."""
    return str(fn.__globals__.get("__name__", "")).startswith("torch._dynamo")


# The reasons with which torch.compile disables parts of torch's optimizers in the whole process when it is first used.
_OPTIMIZERS_REASONS = ("_init_group not supported", " step not supported", "don't trace into fused optimizer")


def without_patches(fn: types.FunctionType) -> types.FunctionType:
    """What torch.compile has put itself around, in the whole process, for its own use; any other function as it is.

    It disables parts of torch's optimizers, and ``nn.Module.__init__`` notes which modules its code makes.
    """
    if not is_of_torch_compile(fn):
        return fn
    scope, _, name = fn.__code__.co_qualname.rpartition(".<locals>.patched_")
    if scope == "install_generation_tagging_init":  # init, setstate
        cell = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)).get(name)
        found = cell.cell_contents if cell is not None else None
    else:
        said, found = fn.__dict__.get("_torchdynamo_disable_msg"), fn.__dict__.get("_torchdynamo_orig_callable")
        if not (isinstance(said, str) and said.endswith(_OPTIMIZERS_REASONS)):
            return fn
    whose = found.__globals__.get("__name__", "") if type(found) is types.FunctionType else ""
    return found if whose.startswith(("torch.optim.", "torch.nn.modules.module")) else fn  # type: ignore[return-value]
