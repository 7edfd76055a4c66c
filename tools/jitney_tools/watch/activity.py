"""What a thread is at, by its stack: in a graph, between graphs, in guards, or nothing of jitney's."""

from __future__ import annotations

from types import FrameType

from jitney._util.callers import is_ours
from jitney._util.ownership import trusted_file

GENERATED = ("<jitney ", "<eval_with_key>")  # what jitney and FX write
ENTRY = "_entry"  # the function of a frame: guards, the call of its graph, writes


def activity(frame: FrameType | None) -> str:
    """``graphs``, ``breaks`` (Python of the program in what is compiled), ``guards``; empty for anything else.

    The innermost frame that is neither torch's nor Python's own decides.
    """
    in_program = False
    while frame is not None:
        filename, name = frame.f_code.co_filename, frame.f_code.co_name
        plugin = str(frame.f_globals.get("__name__")).startswith("jitney_")
        if filename.startswith(GENERATED) or plugin:
            if in_program:
                return "breaks"
            return "guards" if name == ENTRY and not plugin else "graphs"
        if is_ours(filename):
            return "breaks" if in_program else "guards"
        if not trusted_file(filename):
            in_program = True
        frame = frame.f_back
    return ""


def users_line(frame: FrameType | None) -> str:
    """The innermost line that is neither torch's, Python's own, a plugin's nor ours: ``file:line``."""
    while frame is not None:
        filename = frame.f_code.co_filename
        plugin = str(frame.f_globals.get("__name__")).startswith("jitney_")
        if not (plugin or filename.startswith(GENERATED) or is_ours(filename) or trusted_file(filename)):
            return f"{filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
