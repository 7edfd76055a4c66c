"""A frame whose capture failed, perhaps in another process, captured once more; nothing of it runs."""

from __future__ import annotations

from jitney.backends import FailedFrame, resolve
from jitney.capture.interpreter.signals import GiveUp
from jitney.capture.interpreter.target import Target
from jitney.errors import CaptureError
from jitney.runtime.compile_frame import compile_frame
from jitney.runtime.dispatch import Point, Root
from jitney.runtime.entry import CaptureFault, Session


def capture_again(frame: FailedFrame) -> str:
    """Capture a frame as a call of it would be; returns why capture gives up, which is empty if it does not.

    Raises:
        CaptureError: a bug of jitney's.
    """
    session = Session(resolve("eager"), fullgraph=False, dynamic=None)
    function, rest = frame.function, Target(frame.code, frame.globals, None)
    dispatcher = Point(session, rest) if function is None else Root(session, function)
    try:
        compile_frame(dispatcher, dict(frame.arguments), frame.cells)
    except GiveUp as reason:
        return reason.reason
    except CaptureFault as fault:
        message = f"a bug of jitney's: {type(fault.error).__name__}: {fault.error}"
        raise CaptureError(message, user_stack=fault.user_stack) from fault.error
    return ""
