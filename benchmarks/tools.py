"""Each debugging tool used once, in this process, and switched off again: what a call costs then is what they cost."""

from __future__ import annotations

import logging
import tempfile

import torch

import jitney
from jitney.config import config
from jitney_tools.bisect import bisect
from jitney_tools.debug_folder import folder


def small(x: torch.Tensor) -> torch.Tensor:
    """Something to look at."""
    return x.sin() + 1


def use_each_once() -> None:
    """Logs, debug folder, report's events, profiler, markers, explain, bisect, cross-check, minifier's watch."""
    x = torch.ones(3)
    quiet = logging.NullHandler()
    root = logging.getLogger("jitney")
    root.addHandler(quiet)
    before, root.propagate = root.propagate, False
    with tempfile.TemporaryDirectory() as path, config.patch(base_dir=path):
        with config.patch(compile_debug=True):
            jitney.compile(small, backend="eager")(x)
        made = folder.current()
        if made is not None:
            made.close()
        with config.patch(profiler_markers=True):
            jitney.compile(small, backend="eager")(x)
        with config.patch(repro_after="capture", repro_level=4):
            jitney.compile(small, backend="eager")(x)
        with jitney.CompileProfiler() as profiler:
            jitney.compile(small, backend=profiler)(x)
        jitney.compile(small, backend="eager", options={"crosscheck": True})(x)
        jitney.explain(small)(x)
        bisect(small, (x,), backend="aot_eager")
    jitney.set_logs()
    root.removeHandler(quiet)
    root.propagate = before
