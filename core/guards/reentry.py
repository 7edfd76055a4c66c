"""Which Python code of the program's C code has entered while a frame was captured.

Capture interprets what the program calls, and so knows all that it reads. What C code calls by itself (``__hash__`` of
a dictionary's key, ``__index__`` of a slice's bound, ``__class_getitem__``) runs as it is: its closures, globals and
defaults leave no trail, and what was captured is of no use to another process.

From Python 3.12 on, the interpreter reports each code object once while a capture runs, at no cost. Before, only a
profile function sees calls, which would make a capture half as slow again; so it is on only where the program's own
objects are in the hands of C code.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import inspect
import logging
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import torch

from jitney._util.caller_frame import QUALNAME, call_here
from jitney._util.garbage import without_collector
from jitney._util.ownership import trusted, trusted_file, trusted_function

MONITORED = sys.version_info >= (3, 12)
TOOLS = (4, 3, 1, 5)  # ids of sys.monitoring that debuggers, profilers and optimisers do not ask for, first
# What torch and jitney are built on: installed with them, and never about a program.
BENEATH = ("bytecode", "numpy", "sympy", "mpmath", "networkx", "jinja2", "pluggy", "rich", "llvmlite", "triton")
# Functions of the standard library at work aside of the program: the second reads the text of a signature in C, and
# evaluates its defaults ("sys.maxsize") as a module of their own.
_ASIDE = {logging.Logger.handle.__code__, inspect._signature_fromstr.__code__}  # type: ignore[attr-defined]
_OWN = os.path.dirname(os.path.dirname(__file__))
GENERATED = ("<jitney ", "<eval_with_key>")  # what jitney and FX write themselves
# Attributes of a class that no C code calls while it handles an instance, other than by a plain call.
HARMLESS = frozenset(
    "__module__ __qualname__ __doc__ __dict__ __weakref__ __slots__ __annotations__ __annotate__ __annotate_func__ "
    "__annotations_cache__ __parameters__ __orig_bases__ __abstractmethods__ __match_args__ __dataclass_fields__ "
    "__dataclass_params__ __firstlineno__ __static_attributes__ __init__ __new__ __call__ __init_subclass__ "
    "__type_params__ __classcell__ __replace__ __post_init__ __enter__ __exit__ __setstate__ __getstate__".split()
)
# What torch and capture call of classes of tensors that wrap others: their own account of themselves.
SUBCLASS = frozenset("__tensor_flatten__ __tensor_unflatten__ __torch_dispatch__ __torch_function__".split())
_PLAIN: set[type] = {
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, torch.dtype,
    torch.device, torch.layout, torch.memory_format, torch.Size, torch.Tensor, torch.nn.Parameter, torch.SymInt,
    torch.SymFloat, torch.SymBool, np.ndarray,
}  # fmt: skip
_C_CODE = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)  # fmt: skip
_WITH_SELF = (types.BuiltinFunctionType, types.MethodWrapperType)

SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Code that goes on where it was: an exception would end it there, and its object is of no more use."""


class Entered(Exception):
    """Ends the program's code before it begins, where capture will start over because C code has entered it."""


MOST, DEEPEST = 64, 3  # items of a container that are looked at, and containers in containers


# ------------------------------------------------------------------ whose code, whose objects


def is_programs(code: types.CodeType, space: dict[str, Any]) -> bool:
    """Is this code, run with these globals, the program's, or that of a library that it uses?"""
    name = code.co_filename
    if trusted_file(name) or _is_beneath(name):
        return False
    if str(space.get("__name__")).startswith("jitney_"):  # a backend's, such as what it does when its code is dropped
        return False
    if name[:1] != "<":
        return True
    if str(space.get("__name__")).partition(".")[0] in BENEATH:
        return False
    if name.startswith(GENERATED) or ("_tuple_new" in space and "namedtuple_" in str(space.get("__name__"))):
        return False
    return not trusted(space)


def _is_beneath(name: str) -> bool:
    return os.path.normcase(name).startswith(_folders_beneath())


def _folders_beneath() -> tuple[str, ...]:
    for package in BENEATH:
        file = getattr(sys.modules.get(package), "__file__", None)
        if package not in _beneath and file is not None:
            _beneath[package] = os.path.normcase(os.path.dirname(file)) + os.sep
    return tuple(_beneath.values())


_beneath: dict[str, str] = {}


def is_hooked(kind: type) -> bool:
    """Does the program say how C code handles instances of this class: has it special methods written in Python?"""
    bases = inspect.getmro(type(kind))
    for cls in (*kind.__mro__, *bases):
        if trusted(cls):
            continue
        for name, value in vars(cls).items():
            if name[:2] == "__" and name[-2:] == "__" and name not in HARMLESS and _is_python(value):
                return True
    return False


def _is_python(value: Any) -> bool:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return not trusted_function(value)
    return value is not None and not isinstance(value, (*_C_CODE, str, bool, int, tuple))


def is_plain(value: Any, depth: int = DEEPEST) -> bool:
    """Can C code that is given this value enter no code of the program's?"""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind in (list, tuple, set, frozenset, collections.deque):
        return depth > 0 and len(value) <= MOST and all(is_plain(item, depth - 1) for item in value)
    if kind in (dict, collections.OrderedDict):
        parts = [*value, *value.values()] if len(value) <= MOST else None
        return depth > 0 and parts is not None and all(is_plain(item, depth - 1) for item in parts)
    if kind is slice:
        return is_plain((value.start, value.stop, value.step))
    if kind in _WITH_SELF:
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType) or is_plain(value.__self__, depth)
    if isinstance(value, type):
        return trusted(value) and trusted(kind)
    if issubclass(kind, torch.Tensor):  # stand-ins
        return trusted(kind)
    return kind in _C_CODE or (kind in (types.FunctionType, types.ModuleType) and trusted(value))


# ------------------------------------------------------------------ watching


def _asks_for_class(frame: types.FrameType | None) -> bool:
    """Is this ``isinstance`` at work, which reads ``__class__`` by a ``__getattribute__`` that knows nothing of it?"""
    while frame is not None and is_programs(frame.f_code, frame.f_globals):
        code = frame.f_code
        if code.co_name == "__getattribute__" and code.co_argcount == 2 and "__class__" not in code.co_consts:
            if frame.f_locals.get(code.co_varnames[1]) == "__class__":
                return True
        frame = frame.f_back
    return False


def _unasked() -> set[Any]:
    """The code of what Python calls between any two instructions: for the garbage collector and for signals."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return {getattr(function, "__code__", None) for function in (*gc.callbacks, *handlers)} - {None}


def _is_aside(frame: types.FrameType | None) -> bool:
    """Does this leave alone what capture is about?

    It is run by an import, which leaves what is guarded where it is read, or writes torch's log, or reads what a C
    function takes, or Python calls it between any two instructions.
    """
    unasked = _unasked()
    while frame is not None and not frame.f_code.co_filename.startswith(_OWN):
        if frame.f_code.co_name == "__del__" or frame.f_code in unasked:
            return True
        if frame.f_code in _ASIDE or frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _is_of_subclass(frame: types.FrameType | None) -> bool:
    """Is this, or what has called it, a method by which a class of tensors tells of itself?"""
    while frame is not None and not frame.f_code.co_filename.startswith(_OWN):
        if frame.f_code.co_name in SUBCLASS:
            return True
        frame = frame.f_back
    return False


class ReentryWatch:
    """What is seen while one frame is captured; ``entered`` is the first code of the program's, by name.

    ``modules`` are those in which packages have written handlers: it is capture that calls these.
    """

    def __init__(self, modules: Collection[str] = ()) -> None:
        self.modules = modules
        self.entered = ""
        self.latest = ""  # the same since capture has last taken note of it
        self.ends = False  # is code of the program's that C code enters to end before it begins?
        self.met = False  # has an object come by that C code may enter the program's code with?
        self.settled: dict[tuple[int, ...], tuple[Any, ...]] = {}  # keys, and pairs of keys, see ``_is_settled``
        self.settles = False
        self.harmless = set(_PLAIN)  # classes that were looked at, and are not hooked
        self._depths = [0]  # how often it is open, for each time that C code has called capture back

    def see(self, frame: types.FrameType) -> bool:
        """A frame begins, called by C code; is it the program's?"""
        if frame.f_code.co_qualname == QUALNAME:
            return False
        if not is_programs(frame.f_code, frame.f_globals) or str(frame.f_globals.get("__name__")) in self.modules:
            return False
        if self.settled and self._is_settled(frame):
            return True
        if not (self.entered and self.latest) and not _asks_for_class(frame) and not _is_aside(frame):
            text = f"{frame.f_code.co_qualname}, which C code has called"
            self.entered = self.entered or text
            if not _is_of_subclass(frame):
                self.latest = text
                if self.ends and not frame.f_code.co_flags & SUSPENDS:
                    raise Entered(text)  # what it does to the program's objects would be done once more
        return True

    def settle(self, *values: Any) -> None:
        """Capture has interpreted the hash of this object, or the equality of these two, and may let C code ask."""
        for order in (values, values[::-1]):
            self.settled[tuple(map(id, order))] = order

    @contextlib.contextmanager
    def settling(self) -> Iterator[None]:
        """Meanwhile, what capture compares is settled: the parts of keys, too."""
        before, self.settles = self.settles, True
        try:
            yield
        finally:
            self.settles = before

    def _is_settled(self, frame: types.FrameType) -> bool:
        code = frame.f_code
        values = [id(frame.f_locals.get(name)) for name in code.co_varnames[: code.co_argcount]]
        return code.co_name in ("__hash__", "__eq__") and tuple(values) in self.settled

    def over(self, values: Collection[Any]) -> bool:
        """Is one of these an object whose special methods the program has written?"""
        if self.harmless.issuperset(map(type, values)):
            return False
        kinds = {type(value) for value in values} - self.harmless
        self.harmless |= {kind for kind in kinds if not is_hooked(kind)}
        found = not self.harmless.issuperset(kinds)
        self.met = self.met or found
        return found

    def call(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: Callable[..., Any] = call_here,
    ) -> Any:
        """Call C code, by ``caller``, watched if it may enter the program's code."""
        if is_plain(fn) and is_plain(args) and is_plain(kwargs):
            return caller(fn, args, kwargs)
        before, self.ends = self.ends, True
        try:
            with self:
                return caller(fn, args, kwargs)
        finally:
            self.ends = before

    def allow(self) -> tuple[str, bool]:
        """From now on the program's code is part of an operation, such as its meta function; what to put back then."""
        before, self.ends = (self.latest, self.ends), False
        return before

    def __enter__(self) -> ReentryWatch:
        self._depths[-1] += 1
        if self._depths[-1] == 1:
            if sys.getprofile() is None:
                sys.setprofile(self._called)
            else:
                self.entered = self.entered or "what a profiler keeps others from seeing"
        return self

    def __exit__(self, *exc: object) -> None:
        self._depths[-1] -= 1
        if self._depths[-1] == 0:
            self._stop()

    def pause(self) -> bool:
        """Capture interprets again, from within C code: it opens the watch itself. Was it open?"""
        if not self._depths[-1]:
            return False
        self._stop()
        self._depths.append(0)
        return True

    def go_on(self) -> None:
        """The C code that was left by ``pause`` goes on."""
        self._depths.pop()
        if sys.getprofile() is None:
            sys.setprofile(self._called)

    def _stop(self) -> None:
        if sys.getprofile() == self._called:
            sys.setprofile(None)

    def _called(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.see(frame)


_active: list[ReentryWatch] = []  # of the capture that runs: there is one at a time


def current_watch() -> ReentryWatch | None:
    """What sees the program's code run in this capture."""
    return _active[-1] if _active else None


def needed_watch() -> ReentryWatch | None:
    """What capture has to open where the program's objects are in the hands of C code; None if it need not."""
    return _active[-1] if _active and not MONITORED else None


@contextlib.contextmanager
def watch_reentry(modules: Collection[str] = ()) -> Iterator[ReentryWatch]:
    """Watch what runs meanwhile, without the collector: it runs finalizers of the program's whenever it likes."""
    watch = ReentryWatch(modules)
    _active.append(watch)
    try:
        with without_collector(), _monitored(watch) if MONITORED else contextlib.nullcontext():
            yield watch
    finally:
        _active.pop()


@contextlib.contextmanager
def _monitored(watch: ReentryWatch) -> Iterator[None]:
    """From Python 3.12 on: each code object that begins is reported once."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined] # from Python 3.12 on
    tool = next((n for n in TOOLS if monitoring.get_tool(n) is None), None)
    if tool is None:
        watch.entered = "what other tools keep jitney from seeing"
        yield
        return
    thread = threading.get_ident()

    def begun(code: types.CodeType, offset: int) -> Any:
        if threading.get_ident() != thread or watch.see(sys._getframe(1)):
            return None
        return monitoring.DISABLE

    monitoring.use_tool_id(tool, "jitney")
    events = (monitoring.events.PY_START, monitoring.events.PY_RESUME)
    try:
        for event in events:
            monitoring.register_callback(tool, event, begun)
        monitoring.restart_events()
        monitoring.set_events(tool, events[0] | events[1])
        yield
    finally:
        monitoring.set_events(tool, 0)
        for event in events:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
