"""Locks in a child that was forked while a thread held them."""

from __future__ import annotations

import os
import threading

import pytest

from jitney._util.forks import reentrant_lock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")


def is_free(lock: threading.RLock) -> bool:
    """May another thread of this process take it?"""
    found = []

    def take() -> None:
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found[0]


def in_child(lock: threading.RLock, held_here: bool) -> int:
    """How a child ends that gives back what it holds, after which the lock has to be free; 0 if it is."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if held_here:
                assert not is_free(lock)
                lock.release()
            # By this thread: a new one may have the identity of one that is in the parent alone.
            code = 0 if lock.acquire(blocking=False) else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_what_another_thread_holds_is_free_in_a_child() -> None:
    lock, taken, done = reentrant_lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(60)
    try:
        assert in_child(lock, held_here=False) == 0
        assert not is_free(lock)
    finally:
        done.set()
        thread.join()


def test_what_the_forking_thread_holds_it_gives_back_in_the_child_too() -> None:
    lock = reentrant_lock()
    with lock:
        assert in_child(lock, held_here=True) == 0
