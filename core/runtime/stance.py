"""What compiled functions do instead of compiling: the counterpart of ``torch.compiler.set_stance``.

While every thread's stance is "default", calls ask nothing: ``forced`` and ``active`` only matter where no entry of a
function holds, and functions offer no entries to the fast path while "force_eager" is on anywhere. torch.compile's own
stance, which tells nobody when it changes, is looked at by each call: nothing but a look into ``sys.modules`` as long
as the program does not use torch.compile.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast, get_args

from jitney._util import callers
from jitney._util.forks import reentrant_lock
from jitney.torch_compat import torch_private

Stance = Literal[
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile"
]
STANCES: tuple[str, ...] = get_args(Stance)
THEN_COMPILE = ("eager_then_compile", "aot_eager_then_compile")
F = TypeVar("F", bound=Callable[..., Any])


def _in_python(fn: F) -> F:
    """Calls of it break graphs: it is about how code is compiled."""
    fn.__dict__["_jitney_disable"] = True
    return fn


class _OfThread(threading.local):
    """The stance of a block that this thread is in; empty outside of any."""

    name = ""


_of_thread = _OfThread()
lock = reentrant_lock()
process = "default"
counts = {name: int(name == "default") for name in STANCES}  # blocks of all threads, and the process itself
active = 0  # of these, how many are not "default"
on_forced: list[Callable[[], None]] = []  # called when "force_eager" begins or ends to be on anywhere


@_in_python
def current() -> str:
    """The stance of this thread: jitney's, or where that is "default", the one that ``torch.compiler`` has set."""
    own = _of_thread.name or process
    return of_torch_compile() if own == "default" else own


@_in_python
def of_torch_compile() -> str:
    """The stance of ``torch.compiler.set_stance``, as far as it is one of ours; one warning where it is not."""
    found = torch_private.stance_of_torch_compile()
    if found is None or (found.stance == "default" and found.backend is None):
        return "default"
    known: str = found.stance
    if known in STANCES and found.backend is None:
        return known
    asked = f"stance={known!r}" if found.backend is None else f"force_backend={found.backend!r}"
    _ignored(f"torch.compiler.set_stance({asked}) is torch.compile's alone: what jitney compiles does not follow it")
    return "default"


@functools.cache
def _ignored(text: str) -> None:
    """Warn, once."""
    callers.warn(text)


@_in_python
def forced() -> bool:
    """Is "force_eager" on in any thread?"""
    return counts["force_eager"] > 0


def _count(name: str, by: int) -> None:
    global active
    before = forced()
    counts[name] += by
    active += by * (name != "default")
    if forced() is not before:
        for told in on_forced:
            told()


@_in_python
def _set_process(name: str) -> str:
    """Set the stance of all threads that are in no block; returns what it was."""
    global process
    with lock:
        before, process = process, name
        _count(name, 1)
        _count(before, -1)
        return before


@_in_python
def _set_thread(name: str) -> str:
    with lock:
        before, _of_thread.name = _of_thread.name, name
        if name:
            _count(name, 1)
        if before:
            _count(before, -1)
        return before


class set_stance:
    """Set what compiled functions do: as a function for the process, as a ``with`` block or decorator for the thread.

    Args:
        stance: "default": they compile. "force_eager": they run as their user wrote them, as if nothing had been
            compiled. "eager_on_recompile": what is compiled already (in this process, or on disk) runs where it fits,
            anything else runs eagerly. "fail_on_recompile": the same, but anything else is ``RecompileError``.
            "eager_then_compile": what nothing is compiled for yet runs eagerly once, and numbers and sizes that are
            others in the next call are symbolic then. "aot_eager_then_compile": the same, by the backend "aot_eager".

    As in torch, a function's first compile counts as one, too. A stance does not reach into calls of a function that
    have begun. Inside compiled code it is a graph break.

    Raises:
        ValueError: there is no such stance.
    """

    @_in_python
    def __init__(self, stance: Stance) -> None:
        if stance not in STANCES:
            raise ValueError(f"there is no stance {stance!r}; there are {', '.join(map(repr, STANCES))}")
        self.stance = stance
        self.before: list[str] = []
        self.process: str | None = _set_process(stance)

    def _only_here(self) -> None:
        """It turns out to be a block or a decorator: the process's stance is what it was."""
        if self.process is not None:
            _set_process(self.process)
            self.process = None

    @_in_python
    def __enter__(self) -> None:
        self._only_here()
        self.before.append(_set_thread(self.stance))

    @_in_python
    def __exit__(self, *error: object) -> None:
        _set_thread(self.before.pop())

    @_in_python
    def __call__(self, fn: F) -> F:
        """``fn`` with this stance while it runs."""
        self._only_here()

        @_in_python
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            before = _set_thread(self.stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _set_thread(before)

        return cast(F, run)
