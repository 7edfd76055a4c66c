"""Locks that the frame takes and gives back: the emitted code holds them while it writes.

The graph runs first, without them. Then the locks are taken, everything that the guards had read is read again, and
only if it is what it was are the pending writes done: to other threads the frame happened there, all at once. Nobody
waits for a lock here. One that is taken, or a value that is another by now, sends the call to eager, where waiting
(and deadlocks) take their course. A region is captured as a whole or not at all: a break within it becomes one before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.codegen.graph_runner import StateKeeper
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import ATOMS
from jitney.capture.python.methods import BOUND
from jitney.guards.checks import same

if TYPE_CHECKING:
    from jitney.capture.interpreter.loop import Interpreter
    from jitney.capture.torch.tensors import Tracer

TAKING, GIVING = ("acquire", "__enter__"), ("release", "__exit__")
RLOCK = type(threading.RLock())
LOCK_TYPES = (type(threading.Lock()), RLOCK)
HINT = "take the lock outside the compiled function"


# ------------------------------------------------------------------ while capturing


class LockRegions:
    """The locks that the captured frame has taken so far, and where."""

    def __init__(self) -> None:
        self.held: list[tuple[Any, int, int]] = []  # the lock, the step that took it, how long the graph was then
        self.first: dict[int, tuple[Any, int]] = {}  # every lock ever taken, by identity

    def take(self, vm: Interpreter, lock: Any) -> None:
        """The frame takes a lock from outside."""
        record = vm.world.record_of(lock)
        nested = any(lock is other for other, *_ in self.held)
        if record is None or (nested and type(lock) is not RLOCK) or not (nested or is_free(lock)):
            raise Break("a lock is taken that is not free", HINT)
        if not record.source.is_const:
            vm.world.guard(record.source, "is", lock)
        step = vm.break_step()
        self.held.append((lock, step, len(vm.tracer.graph.nodes)))
        self.first.setdefault(id(lock), (lock, step))

    def give(self, vm: Interpreter, lock: Any) -> None:
        """The frame gives back a lock that it has taken."""
        for i in range(len(self.held) - 1, -1, -1):
            if self.held[i][0] is lock:
                _, step, nodes = self.held.pop(i)
                if len(vm.tracer.graph.nodes) != nodes:
                    raise Restart(step, "tensors are computed while a lock is held", HINT)
                return
        raise Break("a lock is given back that this frame has not taken", HINT)

    def refuse(self, reason: str) -> None:
        """Start over with a break before the lock is taken, if one is held."""
        if self.held:
            raise Restart(self.held[0][1], f"{reason}, while a lock is held", HINT)

    def finished(self, tracer: Tracer) -> Locks | None:
        """What the emitted code must hold; None for nothing. A restart where that cannot be done."""
        self.refuse("the frame returns")
        if not self.first:
            return None
        if tracer.mutates_inputs() or tracer.open_scopes:
            step = min(step for _, step in self.first.values())
            raise Restart(step, "a lock is taken in a frame that writes to tensors from outside", HINT)
        return Locks(lock for lock, _ in self.first.values())


def is_free(lock: Any) -> bool:
    """Could the calling thread take the lock now?"""
    if type(lock) is not RLOCK:
        return not lock.locked()
    if not lock.acquire(False):
        return False
    lock.release()
    return True


def _lock_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if name in TAKING and not args and not kwargs:
        vm.locks.take(vm, owner)
        return True
    if name in GIVING:
        vm.locks.give(vm, owner)
        return None
    raise Break(f"call of the C method {type(owner).__qualname__}.{name}", HINT)


BOUND.update(dict.fromkeys(LOCK_TYPES, _lock_method))


# ------------------------------------------------------------------ in emitted code


class LockTaken(Exception):
    """A lock is held by somebody, or what it protects has changed: the frame runs eagerly."""


class Locks:
    """The locks that one emitted function takes for its writes."""

    def __init__(self, locks: Iterable[Any]) -> None:
        self.locks = tuple(locks)

    def begin(self) -> Holding:
        """For one call, before its graph runs."""
        return Holding(self.locks)


class Holding:
    """The locks of one call, and the state to go back to if the call must run eagerly after all."""

    def __init__(self, locks: tuple[Any, ...]) -> None:
        self.locks = locks
        self.taken: list[Any] = []
        self.keeper = StateKeeper()
        self.random = torch.get_rng_state()

    def take(self) -> bool:
        """Take all without waiting; False, and none is held, if somebody holds one."""
        for lock in self.locks:
            if not lock.acquire(False):
                self.give()
                return False
            self.taken.append(lock)
        return True

    def give(self) -> None:
        """Give back what ``take`` took."""
        while self.taken:
            self.taken.pop().release()

    def failed(self) -> LockTaken:
        """The graph's run does not count."""
        self.keeper.restore()
        torch.set_rng_state(self.random)
        return LockTaken()


def unchanged(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Were the same values read twice?"""
    return len(before) == len(after) and all(map(_unchanged, before, after))


def _unchanged(a: Any, b: Any) -> bool:
    if type(a) is tuple and type(b) is tuple:
        return unchanged(a, b)
    return a is b or (type(a) in ATOMS and same(a, b))


def holding(prologue: list[str], graph: list[str], writes: list[str], values: Iterable[str], args: str) -> list[str]:
    """The body of an emitted function with locks; ``args`` is the text of the frame's own arguments."""
    eager = f"return _retry(_holding.failed(), {args})"
    read = f"({''.join(f'{name}, ' for name in values)})"
    again = [line for line in prologue if not line.startswith("if not _state()")]
    again = [line.removesuffix("return MISS") + eager if line.endswith("return MISS") else line for line in again]
    return [
        "_holding = _locks.begin()",
        *("try:", *_indented(prologue), "except _guard_errors:", "    return MISS"),
        *(*graph, f"_before = {read}", f"if not _holding.take(): {eager}"),
        *("try:", "    try:", *_indented(_indented(again)), "        pass", f"    except _guard_errors: {eager}"),
        *(f"    if not _unchanged(_before, {read}): {eager}", *_indented(writes), "finally:", "    _holding.give()"),
    ]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
