"""What a frame returns instead of a value: the rest of it, or its eager run, for whoever called it to go on with."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, final

from jitney.errors import BackendFailed, JitneyError
from jitney.torch_compat.out_of_memory import advise

if TYPE_CHECKING:
    from jitney.runtime.dispatch import Dispatcher, Point


class Continue:
    """The rest of a frame, to be run by whoever called the frame."""

    __slots__ = ("args", "point")

    def __init__(self, point: Point | Retry, args: tuple[Any, ...]) -> None:
        self.point = point
        self.args = args


def drive(result: Any) -> Any:
    """Run continuations until there is a value: a loop, so that breaks in a loop do not nest calls."""
    while type(result) is Continue:
        point = result.point
        result = point.release(result) if type(point) is not Retry and point.skip else point.run(*result.args)
    return result


@functools.lru_cache(maxsize=256)
def calling(count: int) -> Any:
    """A function that calls another one with values taken one by one, and keeps none of them."""
    return eval(f"lambda function, take: function({', '.join(['take()'] * count)})")


@final
class Retry:
    """The eager run of a frame whose graph failed or whose lock was taken: its own ``try`` and ``with`` take over.

    Args:
        dispatcher: whose frame it is.
        error: what the graph raised.
        blame: what to raise or say if that is the backend's fault; None if it is not.
        kwargs: the frame's arguments by keyword.
    """

    def __init__(
        self, dispatcher: Dispatcher, error: Exception, blame: BackendFailed | None, kwargs: dict[str, Any]
    ) -> None:
        self.dispatcher = dispatcher
        self.error = error
        self.blame = blame
        self.kwargs = kwargs

    def run(self, *args: Any) -> Any:
        """The eager result."""
        if isinstance(self.error, JitneyError):
            raise self.error
        if self.blame is not None:
            self.dispatcher.accuse(self.blame)
        try:
            return self.dispatcher.eager(args, self.kwargs)
        except Exception as error:
            advise(error, self.dispatcher.target.name, len(self.dispatcher.entries))
            raise
