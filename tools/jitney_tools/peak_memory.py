"""How much memory a call needs at most, as torch's allocators tell it."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch


def peak(call: Callable[[], Any], device: torch.device) -> int:
    """Bytes that one call has allocated at its highest, beyond what was there before it.

    On the CPU torch's profiler tells of each allocation; kernels of ours take no memory from elsewhere while it runs.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated(device) - before
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    with _quiet():
        profile.start()
    try:
        call()
    finally:
        with _quiet():
            profile.stop()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    own = [e for e in events if e.get("name") == "[memory]" and e["args"].get("Device Type") == 0]
    return highest(event["args"]["Bytes"] for event in sorted(own, key=lambda event: event["args"]["Ev Idx"]))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the profiler's own C++ code writes to stderr when it begins and ends."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def highest(changes: Iterable[int]) -> int:
    """The highest sum on the way."""
    total = most = 0
    for change in changes:
        total += change
        most = max(most, total)
    return most
