"""Forks at every step of a first call, by its own thread and by another: the child compiles, and equals eager.

    python tests/faults/forks.py --backend llvm_cpu

A step is the moment of an event, such as a captured graph. Children that do not end are killed, and are faults.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable

import torch

import jitney
from jitney import events

PATIENCE_S = 60.0


def program(x: torch.Tensor, factor: int) -> torch.Tensor:
    """What is compiled where the fork comes."""
    return torch.sin(x) * factor + x.cos().sum()


def other(x: torch.Tensor) -> torch.Tensor:
    """What nobody has compiled."""
    return torch.tanh(x) + x.square().mean()


def calls(compiled: Callable[..., torch.Tensor], backend: str) -> None:
    """What a child has to be able to do; raises where it is not."""
    x = torch.randn(6)
    for ours, theirs, arguments in (
        (compiled, program, (x, 2)),
        (jitney.compile(program, backend=backend), program, (x, 3)),
        (jitney.compile(other, backend=backend), other, (x,)),
    ):
        torch.testing.assert_close(ours(*arguments), theirs(*arguments))
    assert gc.isenabled(), "the collector is off"
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        return
    raise AssertionError("Ctrl-C is lost")


def forked(work: Callable[[], None]) -> int:
    """The process of a child that does some work, and ends as 0 if that went well."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(PATIENCE_S))  # what hangs is ended
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return child


def ending(child: int) -> str:
    """What is wrong with how a child ended; empty if nothing is."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if code == 0 else "the child hangs" if code == -signal.SIGALRM else f"the child ended with {code}"


def within(step: int, backend: str) -> str | None:
    """The thread that compiles forks, and both go on; None if there are no so many steps."""
    jitney.reset()
    compiled, reached, child = jitney.compile(program, backend=backend), 0, -1
    x = torch.randn(6)

    def listener(_: events.Event) -> None:
        nonlocal reached, child
        reached += 1
        if reached == step + 1 and child < 0:
            child = os.fork()
            if not child:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(int(PATIENCE_S))

    owner, code = os.getpid(), 1
    try:
        with events.listen(listener):
            result = compiled(x, 2)
        torch.testing.assert_close(result, program(x, 2))
        if os.getpid() != owner:
            calls(compiled, backend)
            code = 0
    finally:
        if os.getpid() != owner:
            os._exit(code)
    return None if child < 0 else ending(child)


def beside(step: int, backend: str, main_compiles: bool) -> str | None:
    """A thread forks while another waits at a step of a first call; None if there are no so many steps."""
    jitney.reset()
    compiled, reached, child = jitney.compile(program, backend=backend), 0, -1
    there, go_on = threading.Event(), threading.Event()
    compiling: list[int] = []

    def listener(_: events.Event) -> None:
        nonlocal reached
        if threading.get_ident() in compiling:
            reached += 1
            if reached == step + 1:
                there.set()
                go_on.wait(PATIENCE_S)

    def compile_it() -> None:
        compiling.append(threading.get_ident())
        with events.listen(listener):
            compiled(torch.randn(6), 2)
        there.set()

    def fork() -> None:
        nonlocal child
        there.wait(PATIENCE_S)
        time.sleep(0.01)
        child = forked(lambda: calls(compiled, backend))
        go_on.set()

    work = (compile_it, fork) if main_compiles else (fork, compile_it)
    thread = threading.Thread(target=work[1])
    thread.start()
    work[0]()
    thread.join()
    found = ending(child)
    return None if reached <= step else found


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="llvm_cpu")
    parser.add_argument("--every", type=int, default=1, help="only every so many steps (%(default)s)")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ways: dict[str, Callable[[int], str | None]] = {
        "its own thread": lambda step: within(step, options.backend),
        "another thread": lambda step: beside(step, options.backend, False),
        "another thread than the main one": lambda step: beside(step, options.backend, True),
    }
    forks, faults = 0, list[str]()
    with jitney.config.patch(cache=False):
        jitney.compile(other, backend=options.backend)(torch.randn(6))  # the first of all imports
        for way, fork in ways.items():
            step = 0
            while (found := fork(step)) is not None:
                faults += [f"{way} forks at step {step}: {found}"] * bool(found)
                forks, step = forks + 1, step + options.every
    print(f"{forks} forks, {options.backend}: {len(faults)} faults", *faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
