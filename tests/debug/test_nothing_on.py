"""With every tool off, a call runs no line of a tool's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import jitney
from jitney import events

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from tools import use_each_once

CORE = Path(jitney.__file__).resolve().parent


def files_run(call: Any) -> set[str]:
    """The files of core whose functions a call enters, below core's folder."""
    found: set[str] = set()

    def look(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    paths = [Path(name).resolve() for name in found]
    return {str(path.relative_to(CORE)) for path in paths if path.is_relative_to(CORE)}


def test_a_call_after_all_tools_were_used_runs_none_of_them() -> None:
    x = torch.ones(4, requires_grad=True)
    bare = jitney.compile(lambda x: x.sin() * 2, backend="aot_eager")
    bare(x).sum().backward()
    use_each_once()
    after = jitney.compile(lambda x: x.sin() * 2, backend="aot_eager")
    after(x).sum().backward()
    for compiled in (bare, after):
        compiled(x).sum().backward()
        run = files_run(lambda compiled=compiled: compiled(x).sum().backward())
        assert run and not [name for name in run if name.startswith(("debug", "events", "markers"))], run
    assert files_run(lambda: bare(x)) == files_run(lambda: after(x))


def test_no_tool_goes_on_listening() -> None:
    before = len(events._bus.listeners)
    use_each_once()
    assert len(events._bus.listeners) == before
