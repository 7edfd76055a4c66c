"""Records what is launched on a CUDA device, for ``recordings.py``."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch


class Cuda:
    """One device. Recordings share memory for what they need while they run, so they run one after the other."""

    device_type = "cuda"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pool = torch.cuda.graph_pool_handle()
        self.side = torch.cuda.Stream(device)  # nothing is recorded on the default one
        self.last: torch.cuda.Stream | None = None  # that something recorded ran on
        self._lock = threading.Lock()

    def is_busy(self) -> bool:
        """Is the current stream being recorded?"""
        return torch.cuda.is_current_stream_capturing()

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        """See ``Recorder``. Other threads go on meanwhile."""
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self.device)
        with self._lock:
            self.side.wait_stream(current)
            with torch.cuda.stream(self.side):
                try:
                    graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                    try:
                        made = run()
                    finally:
                        graph.capture_end()
                except BaseException:
                    self._recover()
                    raise
            current.wait_stream(self.side)
        return made, functools.partial(self._replay, graph)

    def _recover(self) -> None:
        """After a recording that failed, torch's random generator still believes that it goes on: until one ends well."""
        graph = torch.cuda.CUDAGraph()
        with contextlib.suppress(RuntimeError):
            graph.capture_begin(capture_error_mode="thread_local")
            torch.empty(1, device=self.device).zero_()
            graph.capture_end()

    def _replay(self, graph: torch.cuda.CUDAGraph) -> None:
        with self._lock:
            current = torch.cuda.current_stream(self.device)
            if self.last is not None and self.last != current:
                current.wait_stream(self.last)
            self.last = current
            graph.replay()


@functools.cache
def recorder(device: torch.device) -> Cuda:
    """The device's."""
    return Cuda(device)
