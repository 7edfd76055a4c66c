"""How something was compiled: for tools that compile it once more, in the same way."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jitney.debug.reach import reached


@dataclass(frozen=True)
class CompiledAs:
    """A function and the arguments of ``compile`` for it.

    Args:
        function: not compiled.
        backend, options, mode, dynamic, fullgraph: as in ``compile``; a ``backend`` of None: nobody has said.
        note: whose arguments these are, if not the function's own.
    """

    function: Callable[..., Any]
    backend: Any = None
    options: Mapping[str, Any] | None = None
    mode: str | None = None
    dynamic: bool | None = None
    fullgraph: bool = False
    note: str = ""

    def arguments(self) -> dict[str, Any]:
        """The keywords for ``compile``."""
        return {
            "backend": "auto" if self.backend is None else self.backend,
            "options": self.options,
            "mode": self.mode,
            "dynamic": self.dynamic,
            "fullgraph": self.fullgraph,
        }


def compiled_as(
    function: Any, backend: Any = None, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> CompiledAs:
    """How ``function`` is to be compiled: as it was, if it was, but for what is given here.

    A function that is not compiled, but calls something that is, is compiled as that was.

    Args:
        function: anything that ``compile`` takes, or has returned.
        backend: another one, with which the options and the mode of the first do not hold; None: that of the function.
        options: beside those of the function.
        mode: instead of that of the function.
    """
    original, session, note = original_of(function), _session_of(function), ""
    if session is None and backend is None:
        parts = [part for part in reached(original) if hasattr(type(part), "_jitney_is_compiled")]
        if parts:
            session = parts[0]._jitney_session
            name = getattr(parts[0]._jitney_original, "__name__", type(parts[0]._jitney_original).__name__)
            note = f"compiled as {name} is, which it calls: backend={session.backend.name!r}"
            options_of = session.backend.asked.options if session.backend.asked is not None else None
            note += f", options={dict(options_of)}" if options_of else ""
    if session is None:
        return CompiledAs(original, backend, options, mode)
    asked = session.backend.asked
    if backend is None and asked is not None:
        backend, mode = asked.spec, asked.mode if mode is None else mode
        options = {**(asked.options or {}), **(options or {})} or None
    return CompiledAs(original, backend, options, mode, session.dynamic, session.fullgraph and not note, note)


def _session_of(function: Any) -> Any:
    in_place = getattr(function, "_compiled_call_impl", None) if isinstance(function, torch.nn.Module) else None
    return getattr(function, "_jitney_session", getattr(in_place, "_jitney_session", None))


def original_of(function: Any) -> Any:
    """What was given to ``compile``; of a compiled method, the method."""
    original = getattr(function, "_jitney_original", function)
    if isinstance(function, types.MethodType) and original is not function:  # it was looked up in its function
        return types.MethodType(original, function.__self__)
    return original
