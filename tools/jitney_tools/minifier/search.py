"""Delta debugging: steps are tried until none of them makes a smaller graph that fails in the same way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jitney.config import config
from jitney_tools.compare.verdict import Fault, Terms
from jitney_tools.minifier.case import Case, NotMinified
from jitney_tools.minifier.steps import STEPS

STOPPED = "stopped by Ctrl-C before the graph was seen to fail: nothing is smaller, nothing was written"
Say = Callable[[str], None]
Look = Callable[[Case, Terms], Fault | None]


@dataclass
class Found:
    """The smallest case so far.

    Args:
        case: it.
        fault: how it fails.
        before: operations of the graph as it was.
        tries: how many smaller graphs were compiled.
        seconds: how long that took.
        stopped: why it ended before nothing more could be done; empty if it did not.
    """

    case: Case
    fault: Fault
    before: int
    tries: int = 0
    seconds: float = 0.0
    stopped: str = ""
    accepted: list[str] = field(default_factory=list)  # the steps, for the curious


def minify(
    case: Case,
    fault: Fault | None = None,
    *,
    terms: Terms | None = None,
    seconds: float = 60.0,
    say: Say | None = None,
    look: Look = Case.fault,
) -> Found:
    """Make the graph of a case smaller as long as it fails in the same way.

    Args:
        case: as found.
        fault: how it fails; None: to be found out.
        terms: what is looked at; by default all that the fault needs.
        seconds: a limit; what is found by then is returned. Ctrl-C does the same.
        say: is told about progress, in one line each time.
        look: finds the fault of a case; see ``jitney_tools/minifier/isolated.py``.

    Raises:
        NotMinified: it does not fail here.
    """
    begin = time.monotonic()
    looked = terms or Terms(seconds=config.minifier_try_seconds, leaks=fault is None or fault.kind == "leaks")
    try:
        first = look(case, looked)
    except KeyboardInterrupt:
        raise NotMinified(STOPPED) from None
    if first is None or not (fault is None or first.like(fault)):
        wanted = f"{fault}" if fault is not None else "a fault"
        raise NotMinified(f"the graph does not fail by itself as it did: {wanted}; now: {first or 'it works'}")
    found = Found(case, first, case.op_count)
    if terms is None:
        # Looking for less is faster; but some backends do something else where nobody asks for gradients.
        numbers, leaks = first.kind in ("numbers", "writes"), first.kind == "leaks"
        less = Terms(numbers, first.place == "gradients", leaks, looked.seconds)
        with _to_be_stopped(found):
            looked = less if first.like(look(case, less)) else looked
    if not found.stopped:
        with _to_be_stopped(found):
            _search(found, _Trying(look, looked, begin + seconds, say))
    found.seconds = time.monotonic() - begin
    return found


@contextlib.contextmanager
def _to_be_stopped(found: Found) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        found.stopped = "Ctrl-C"


@dataclass(frozen=True)
class _Trying:
    """How cases are tried."""

    look: Look
    terms: Terms
    until: float
    say: Say | None


def _search(found: Found, trying: _Trying) -> None:
    """One round after the other, until one changes nothing."""
    while True:
        changed = False
        for name, step in STEPS.items():
            changed |= _exhaust(found, name, step, trying)
            if found.stopped:
                return
        if not changed:
            return


def _exhaust(found: Found, name: str, step: Callable[[Case], Iterator[Case]], trying: _Trying) -> bool:
    """One kind of step, as often as it helps."""
    changed = True
    ever = False
    while changed:
        changed = False
        for smaller in step(found.case):
            if time.monotonic() > trying.until:
                found.stopped = "the time limit"
                return ever
            found.tries += 1
            if trying.say is not None:
                trying.say(
                    f"{found.case.op_count} operations, {len(found.case.inputs)} inputs, try {found.tries}: {name}"
                )
            fault = trying.look(smaller, trying.terms)
            if found.fault.like(fault):
                assert fault is not None
                found.case, found.fault = smaller, fault
                found.accepted.append(name)
                changed = ever = True
                break
    return ever
