"""A program that begins again: its module executed anew, nothing compiled, the disk as the last run has left it.

Every function, class and object of the program is another one then, as in a second process.
"""

from __future__ import annotations

import linecache
import sys
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import jitney
from jitney import events

NAME = "begun_again"


@dataclass
class Story:
    """What happened to the frames: ``loaded``, ``captured``, ``stored``, ``refused: why`` or ``not stored: why``."""

    steps: list[str] = field(default_factory=list)

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.FrameLoaded():
                self.steps.append("loaded")
            case events.FrameCaptured():
                self.steps.append("captured")
            case events.FrameStored(reason=reason):
                self.steps.append(f"not stored: {reason}" if reason else "stored")
            case events.FrameRefused(reason=reason):
                self.steps.append(f"refused: {reason}")
            case _:
                pass

    @property
    def loaded(self) -> bool:
        """Did every frame come from disk?"""
        return "loaded" in self.steps and "captured" not in self.steps


def begin(text: str) -> types.ModuleType:
    """The program's module, executed anew. Its functions are found in ``sys.modules`` as those of any module."""
    module = types.ModuleType(NAME)
    text = textwrap.dedent(text)
    filename = f"<{NAME}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    sys.modules[NAME] = module
    module.torch = torch  # type: ignore[attr-defined]
    module.nn, module.F = torch.nn, torch.nn.functional  # type: ignore[attr-defined]
    exec(compile(text, filename, "exec"), module.__dict__)
    jitney.reset()
    return module


def run(
    text: str,
    call: Callable[[Any, types.ModuleType], Any] | None = None,
    backend: str = "aot_eager",
    **options: Any,
) -> tuple[Any, Any, Story]:
    """Results compiled and eager, and what happened.

    Args:
        text: defines ``fn`` and ``arguments()``, which makes the same ones each time.
        call: ``call(function, module)``; by default ``function(*module.arguments())`` without gradients.
        backend: of ``jitney.compile``, as are ``options``.
    """

    def plainly(function: Any, module: types.ModuleType) -> Any:
        with torch.no_grad():
            return function(*module.arguments())

    call = call or plainly
    module = begin(text)
    torch.manual_seed(0)
    expected = call(module.fn, module)
    module = begin(text)
    story = Story()
    torch.manual_seed(0)
    with events.listen(story):
        found = call(jitney.compile(module.fn, backend=backend, **options), module)
    return found, expected, story
