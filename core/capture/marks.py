"""What users and libraries say about functions: do not compile, record whole, break here."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import itertools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from jitney._util.garbage import without_freeze
from jitney.torch_compat import torch_private

SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
DISABLED = "remove the disable mark to compile it"
DISALLOWED = "jitney.allow_in_graph takes the mark away"


class Marked:
    """Callables, by identity; one that nothing can refer to weakly (a method of C code) is kept alive.

    A bound method, which each access makes anew, is known by its object and its function.
    """

    def __init__(self) -> None:
        self._held: dict[Any, Callable[[], Any]] = {}

    def add(self, fn: Any) -> None:
        """Mark it."""
        key = _identity(fn)
        reference: Any = weakref.WeakMethod if type(fn) is types.MethodType else weakref.ref
        try:
            self._held[key] = reference(fn, lambda _: self._held.pop(key, None))
        except TypeError:
            self._held[key] = lambda: fn

    def discard(self, fn: Any) -> None:
        """Mark it no more."""
        if fn in self:
            del self._held[_identity(fn)]

    def __contains__(self, fn: object) -> bool:
        key = _identity(fn)
        held = self._held.get(key)
        return held is not None and _identity(held()) == key

    def __iter__(self) -> Iterator[Any]:
        found = [held() for held in list(self._held.values())]
        return iter([fn for fn in found if fn is not None])

    def __len__(self) -> int:
        return len(self._held)


def _identity(fn: Any) -> Any:
    return (id(fn.__self__), id(fn.__func__)) if type(fn) is types.MethodType else id(fn)


_disabled = Marked()
_frame_only = Marked()
_disallowed = Marked()
_allowed = Marked()
compile_functions: list[Any] = []  # what compiled code may call to compile: ``jitney.compile``


def mark_disabled(fn: Any) -> None:
    """Calls of this function break the graph and run in Python."""
    _disabled.add(fn)


def mark_disallowed(fn: Any) -> None:
    """Calls of this function, method or operator break the graph."""
    _disallowed.add(fn)
    _allowed.discard(fn)


def mark_allowed(fn: Any) -> None:
    """Calls of this function are recorded as one node, unseen inside."""
    _allowed.add(fn)
    _disallowed.discard(fn)


def _forms(fn: Any) -> list[Any]:
    """An operator as it may have been marked: itself, its packet, as declared; of a packet, which picks, all."""
    overload: Any
    packet: Any
    overload, packet = torch_private.OPERATOR_CLASSES
    if isinstance(fn, torch_private.CustomOpDef):
        return _forms(fn._opoverload)
    if isinstance(fn, overload):
        return [fn, fn.overloadpacket, torch_private.declared_operator(fn)]
    if isinstance(fn, packet):
        overloads = [getattr(fn, name) for name in fn.overloads()]
        return [fn, *overloads, *map(torch_private.declared_operator, overloads)]
    return [fn]


def is_disabled(fn: Any) -> bool:
    """Marked by ``jitney.disable``, ``torch.compiler.disable`` or ``torch._dynamo.disable``."""
    if isinstance(fn, types.MethodType):
        fn = fn.__func__
    if fn in _disabled:
        return True
    try:
        storage: Any = object.__getattribute__(fn, "__dict__")
    except AttributeError:  # a class with slots, which may have a ``__getattr__`` of the program's
        return False
    return bool(storage.get("_torchdynamo_disable") or storage.get("_jitney_disable"))


def mark_frame_only(fn: Any) -> None:
    """``fn`` is disabled, and what its ``__wrapped__`` calls is compiled all the same."""
    _disabled.add(fn)
    _frame_only.add(fn)


def everything_said(with_torchs: bool = True) -> list[str]:
    """All that was marked so far, as text that is equal in two processes that marked the same functions.

    Args:
        with_torchs: also what torch.compile was told, which libraries do when they are imported.
    """
    kinds = {"disabled": _disabled, "frame only": _frame_only, "disallowed": _disallowed, "allowed": _allowed}
    found = {f"{kind} {_name(fn)}" for kind, marked in kinds.items() for fn in marked}
    if with_torchs:
        told = [frozenset(torch_private.told_of_graphs(kind)) for kind in TOLD]
        for kind, names in zip(TOLD, _names(*told), strict=True):
            found.update(f"{kind} {name}" for name in names)
    return sorted(found)


def _name(fn: Any) -> str:
    if isinstance(fn, torch_private.OPERATOR_CLASSES):
        return str(fn)
    return f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


TOLD = ("disallowed", "allowed")  # what torch.compile may have been told of a function


@functools.lru_cache(maxsize=4)
def _names(*told: frozenset[int]) -> list[list[str]]:
    """For each set the names of the objects with these identities, of which torch.compile keeps nothing else.

    Its own are left out. Every object of the process is looked at, so in C and once for all sets.
    """
    wanted = frozenset().union(*told)
    with without_freeze() if wanted else contextlib.nullcontext():
        objects = gc.get_objects() if wanted else []
    found = [*itertools.compress(objects, map(wanted.__contains__, map(id, objects)))]
    named = [[_name(thing) for thing in found if id(thing) in ids] for ids in told]
    return [[name for name in names if not name.startswith("torch._dynamo.")] for names in named]


def frame_only(fn: Any) -> Any:
    """The original of a function disabled with ``recursive=False`` (jitney's or torch's); None for any other."""
    if type(fn) is not types.FunctionType or not fn.__dict__:  # others may run the program's code when they are asked
        return None
    storage = fn.__dict__
    if fn in _frame_only:
        return storage.get("__wrapped__")
    if storage.get("_torchdynamo_disable_recursive") is False:
        return storage.get("_torchdynamo_orig_callable")
    return None


def is_disallowed(fn: Any) -> bool:
    """Marked by ``disallow_in_graph`` of jitney or torch: itself, or the operator that it is a form of."""
    told = torch_private.told_of_graphs("disallowed")
    return bool(_disallowed or told) and any(form in _disallowed or id(form) in told for form in _forms(fn))


def is_allowed(fn: Any) -> bool:
    """Marked by ``allow_in_graph`` of jitney or torch."""
    return fn in _allowed or id(fn) in torch_private.told_of_graphs("allowed")


def is_constant_result(fn: types.FunctionType) -> bool:
    """Marked by ``assume_constant_result`` of jitney or torch."""
    storage = fn.__dict__
    return bool(storage.get("_jitney_constant_result") or storage.get("_dynamo_marked_constant"))


def stays_python(fn: types.FunctionType) -> bool:
    """Does this function run in Python even when it is compiled: disabled, or a generator or coroutine function?"""
    return bool(fn.__code__.co_flags & SUSPENDS) or is_disabled(fn)


def is_of_torch_compile(fn: Any) -> bool:
    """Is it the wrapper of a function that torch.compile has compiled? It goes by the user's name and module."""
    if type(fn) is not types.FunctionType:
        return False
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
