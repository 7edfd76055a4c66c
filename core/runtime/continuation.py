"""What a frame returns instead of a value: the rest of it, or its eager run, for whoever called it to go on with."""

from __future__ import annotations

import functools
from typing import Any, Protocol, final

from jitney.errors import BackendFailed, JitneyError
from jitney.runtime.entry import CodeEntries, FrameState
from jitney.torch_compat.out_of_memory import advise

EAGER = FrameState.EAGER  # attributes of an enum are slow in Python 3.11


class Rest(Protocol):
    """The rest of a frame: see ``dispatch.Point``."""

    state: FrameState

    def run(self, *args: Any) -> Any:
        """Its value, or a ``Continuation``."""

    def release(self, rest: Continuation) -> Any:
        """The same, where it runs eagerly."""


class Continuation:
    """The rest of a frame, to be run by whoever called the frame."""

    __slots__ = ("args", "point")

    def __init__(self, point: Rest | EagerRun, args: tuple[Any, ...]) -> None:
        self.point = point
        self.args = args


def run_continuations(result: Any) -> Any:
    """Run continuations until there is a value: a loop, so that breaks in a loop do not nest calls."""
    while type(result) is Continuation:
        point = result.point
        if type(point) is not EagerRun and point.state is EAGER:
            result = point.release(result)
        else:
            args, result.args = result.args, ()  # whoever else has it holds nothing of the frame's
            result = point.run(*args)
            args = ()
    return result


@functools.lru_cache(maxsize=256)
def taking_call(count: int) -> Any:
    """A function that calls another one with values taken one by one, and keeps none of them."""
    return eval(f"lambda function, take: function({', '.join(['take()'] * count)})")


@final
class EagerRun:
    """The eager run of a frame whose graph failed: its own ``try`` and ``with`` take over.

    Args:
        entries: of the code that the frame runs.
        error: what the graph raised.
        blame: what to raise or say if that is the backend's fault; None if it is not.
        kwargs: the frame's arguments by keyword.
    """

    def __init__(
        self, entries: CodeEntries, error: Exception, blame: BackendFailed | None, kwargs: dict[str, Any]
    ) -> None:
        self.entries = entries
        self.error = error
        self.blame = blame
        self.kwargs = kwargs

    def run(self, *args: Any) -> Any:
        """The eager result."""
        if isinstance(self.error, JitneyError):
            raise self.error
        if self.blame is not None:
            self.entries.accuse(self.blame)
        try:
            return self.entries.eager(args, self.kwargs)
        except Exception as error:
            advise(error, self.entries.target.name, len(self.entries.entries))
            raise
