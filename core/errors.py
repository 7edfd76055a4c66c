"""The one tree of errors: what went wrong, on which line of the user's, and what to try next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from traceback import FrameSummary

from jitney._util.callers import is_users


def describe_frame(frame: FrameSummary) -> str:
    """``file.py:12, in forward: y = x.item()`` for one frame of the user's stack."""
    line = (frame.line or "").strip()
    where = f"{frame.filename}:{frame.lineno}, in {frame.name}"
    return f"{where}: {line}" if line else where


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint for a misspelt name: ``did you mean 'x' or 'y'?``, or empty if nothing is close."""
    close = difflib.get_close_matches(name, list(choices), n=2)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""


class JitneyError(RuntimeError):
    """Root of everything that jitney raises on its own behalf.

    Args:
        reason: one sentence, without the place.
        user_stack: the user's frames, outermost first; the last one that is not torch's leads the message.
        hint: what to try next, one sentence, or empty.
        command: what to type for something small that fails the same way, or empty.
        phase: overrides the class's phase.
    """

    phase = "compile"
    asks_for = "minify"  # what ``command`` does

    def __init__(
        self,
        reason: str,
        *,
        user_stack: Sequence[FrameSummary] = (),
        hint: str = "",
        command: str = "",
        phase: str | None = None,
    ) -> None:
        self.reason = reason
        self.user_stack = tuple(user_stack)
        self.hint = hint
        self.command = command
        if phase is not None:
            self.phase = phase
        super().__init__(self._render())

    def drop_command(self) -> None:
        """There is nothing to type after all."""
        self.command = ""
        self.args = (self._render(),)

    def _render(self) -> str:
        own = [frame for frame in self.user_stack if is_users(frame.filename)] or self.user_stack
        lines = [describe_frame(own[-1])] if own else []
        lines.append(f"{self.phase}: {self.reason}")
        if self.hint:
            lines.append(f"try: {self.hint}")
        if self.command:
            lines.append(f"{self.asks_for}: {self.command}")
        if len(self.user_stack) > 1:
            lines.append("from user code:")
            lines += [f"  {describe_frame(f)}" for f in self.user_stack]
        return "\n".join(lines)


class Unsupported(JitneyError):
    """A graph break where none is allowed (``fullgraph=True``)."""

    phase = "capture"


class CaptureError(JitneyError):
    """A bug of ours in capture; with ``config.suppress_errors`` the frame runs eagerly instead."""

    phase = "capture"
    asks_for = "record"


class AotError(JitneyError):
    """A bug of ours in AOT; with ``config.suppress_errors`` the graph runs as captured instead."""

    phase = "aot"


class GuardError(JitneyError):
    """A guard program that is malformed, or does not hold on the very values it was made from: a bug of ours.

    Raised under ``config.verify``; else the frame runs eagerly.
    """

    phase = "guards"


class RecompileError(JitneyError):
    """No compiled form fits a call, under ``config.error_on_recompile``; the message has the guard that failed."""

    phase = "guards"


class SavedError(JitneyError):
    """A compiled function cannot be saved, or a saved file cannot be loaded here; the message has what differs."""

    phase = "load"


class InvalidOption(JitneyError):
    """An option that the backend does not have, or of the wrong type; the message lists the valid ones."""

    phase = "options"


class BackendNotFound(JitneyError):
    """No installed package offers a backend of this name; the message has the nearest names."""

    phase = "backend"


class BackendFailed(JitneyError):
    """A backend raised while compiling, or returned something that cannot be called or used."""

    phase = "backend"


class WrongNumbers(BackendFailed):
    """A compiled graph's results, gradients or writes are not eager's: found by a cross-check or the minifier."""


class PluginError(JitneyError):
    """A plugin cannot be imported, has an incompatible hook version, or shares its name with another."""

    phase = "plugins"
