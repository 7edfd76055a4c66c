"""Calls of a module from its own methods: ``self(x)`` in ``compiled.generate(...)`` reaches the compiled code.

The method runs as the original's, with the original as ``self``. While it does, the module has an instance attribute
``_compiled_call_impl``, torch's own slot for ``nn.Module.compile()``: ``nn.Module.__call__`` runs what is there. What
is there asks whose method this thread, or this task of asyncio, is in: all others call the module as it is.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch

from jitney._util import callers
from jitney._util.forks import reentrant_lock

SLOT = "_compiled_call_impl"
WATCHED = 3  # calls of a method that are watched, unless one of them shows what it calls
SHOWN = 3  # names in a message
# By the module's id: what its calls run; None: the module as it is.
_calls: ContextVar[dict[int, Callable[..., Any] | None]] = ContextVar("jitney_inner_calls")
_lock = reentrant_lock()


class Redirect:
    """What a module's slot holds while methods of it run that were called through a proxy."""

    _jitney_is_compiled = True

    def __init__(self, module: torch.nn.Module) -> None:
        self._jitney_original: Any = module._call_impl
        self.blocks = 0  # how many such methods run

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the module: compiled inside such a method, as it is for others."""
        call = _calls.get({}).get(id(self._jitney_original.__self__))
        return (call or self._jitney_original)(*args, **kwargs)

    def __reduce__(self) -> Any:
        return type(None), ()  # no method of a copy runs


@contextlib.contextmanager
def redirected(module: torch.nn.Module, call: Callable[..., Any]) -> Iterator[None]:
    """In the block, this thread's calls of the module run ``call``, unless the module is compiled in place."""
    storage = module.__dict__
    with _lock:
        redirect = storage.get(SLOT)
        if redirect is None:
            redirect = storage[SLOT] = Redirect(module)
        if type(redirect) is Redirect:
            redirect.blocks += 1
    try:
        with calling(module, call):
            yield
    finally:
        with _lock:
            if type(redirect) is Redirect:
                redirect.blocks -= 1
                if not redirect.blocks and storage.get(SLOT) is redirect:
                    del storage[SLOT]


@contextlib.contextmanager
def calling(module: torch.nn.Module, call: Callable[..., Any] | None) -> Iterator[None]:
    """What a redirect runs in the block; None: the module as it is."""
    before = _calls.set({**_calls.get({}), id(module): call})
    try:
        yield
    finally:
        _calls.reset(before)


def is_called_plainly(module: torch.nn.Module) -> bool:
    """Is this a block of ``calling(module, None)``?"""
    return _calls.get({}).get(id(module), ...) is None


# ------------------------------------------------------------------ methods that call parts of the module instead


class Probe:
    """What the slot of a module's part holds while it is watched whether a method calls the part by itself."""

    _jitney_is_compiled = True

    def __init__(self, name: str, part: torch.nn.Module, called: list[str]) -> None:
        self._jitney_original = part._call_impl
        self.name = name
        self.called = called

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the part as it is."""
        if self.name not in self.called:
            self.called.append(self.name)
        return self._jitney_original(*args, **kwargs)

    def __reduce__(self) -> Any:
        return type(None), ()


class MethodRun:
    """One call of a module's method; entered for each piece of it, where it is a generator.

    Args:
        module: whose method it is.
        name: of the method.
        call: what runs where it calls the module.
        watched: by method, how often it was watched so far; counted up here.
    """

    def __init__(self, module: torch.nn.Module, name: str, call: Callable[..., Any], watched: dict[str, int]) -> None:
        self.module = module
        self.name = name
        self.call = call
        self.watched = watched
        self.called: list[str] = []  # the parts that it has called
        self.probes: list[tuple[torch.nn.Module, Probe]] = []
        count = watched.get(name, 0)
        if count < WATCHED:
            watched[name] = count + 1
            children = [] if type(module).__hash__ is None else module.named_modules()  # which goes by their hashes
            self.probes = [
                (part, Probe(part_name, part, self.called))
                for part_name, part in children
                if part is not module and not hasattr(type(part), "_jitney_is_compiled")
            ]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A block in which it runs."""
        for part, probe in self.probes:
            if part.__dict__.get(SLOT) is None:
                part.__dict__[SLOT] = probe
        try:
            with redirected(self.module, self._compiled):
                yield
        finally:
            self._remove_probes()

    def _compiled(self, /, *args: Any, **kwargs: Any) -> Any:
        self._remove_probes()
        self.probes.clear()
        self.called.clear()
        self.watched[self.name] = WATCHED
        return self.call(*args, **kwargs)

    def _remove_probes(self) -> None:
        for part, probe in self.probes:
            if part.__dict__.get(SLOT) is probe:
                del part.__dict__[SLOT]

    def finish(self) -> None:
        """It has come to its end: warn if it has run the module's parts uncompiled, and the module not at all."""
        if self.called and self.watched[self.name] <= WATCHED:
            self.watched[self.name] = WATCHED + 1
            parts = ", ".join(self.called[:SHOWN]) + (", ..." if len(self.called) > SHOWN else "")
            outermost = [n for n in self.called if not any(n.startswith(f"{other}.") for other in self.called)]
            only = ""
            if len(outermost) == 1:
                only = f", or what it calls: jitney.compile(model.{outermost[0]}, inplace=True)"
            kind = type(self.module).__qualname__
            callers.warn(
                f"{kind}.{self.name} runs uncompiled: it calls parts of the module ({parts}), not the module itself, "
                f"whose calls are what is compiled. To compile it, too: model.{self.name} = "
                f"jitney.compile(model.{self.name}){only}"
            )


# ------------------------------------------------------------------ generators and coroutines


def run_all(result: Any, run: MethodRun) -> Any:
    """What a method has returned; each piece of a generator or coroutine of its own runs inside ``run``."""
    kind = type(result)
    if kind in _DRIVERS and _is_own(result, run.module):
        return _DRIVERS[kind](result, run)
    run.finish()
    return result


def _is_own(result: Any, module: torch.nn.Module) -> bool:
    """Is it a call of a method of the module's that has not begun?"""
    for prefix in ("gi", "cr", "ag"):
        frame = getattr(result, f"{prefix}_frame", None)
        if frame is not None:
            code = frame.f_code
            begun = frame.f_lasti > 0 and getattr(result, f"{prefix}_running", False)
            return not begun and code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is module
    return False


def _drive(generator: Any, run: MethodRun) -> Any:
    def piece(resume: Callable[..., Any], *values: Any) -> Any:
        with run.running():
            return resume(*values)

    resume: Callable[..., Any] = generator.send
    values: tuple[Any, ...] = (None,)
    while True:
        try:
            item = piece(resume, *values)
        except StopIteration as end:
            run.finish()
            return end.value
        try:
            resume, values = generator.send, ((yield item),)
        except GeneratorExit:
            piece(generator.close)
            raise
        except BaseException as error:
            resume, values = generator.throw, (error,)


async def _await(coroutine: Any, run: MethodRun) -> Any:
    with run.running():
        result = await coroutine
    run.finish()
    return result


async def _drive_async(generator: Any, run: MethodRun) -> Any:
    resume: Callable[..., Any] = generator.asend
    values: tuple[Any, ...] = (None,)
    while True:
        try:
            with run.running():
                item = await resume(*values)
        except StopAsyncIteration:
            run.finish()
            return
        try:
            resume, values = generator.asend, ((yield item),)
        except GeneratorExit:
            with run.running():
                await generator.aclose()
            raise
        except BaseException as error:
            resume, values = generator.athrow, (error,)


_DRIVERS: dict[type, Callable[[Any, MethodRun], Any]] = {
    types.GeneratorType: _drive,
    types.CoroutineType: _await,
    types.AsyncGeneratorType: _drive_async,
}
