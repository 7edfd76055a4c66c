"""Records what is launched on a CUDA device."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from jitney.backends.devices import end_pool, within_pool
from jitney_triton_gpu.cuda_graphs.recording import Recording

# One part in so many of the device's memory: what a recording may take that nobody asked for; what all of them may.
LARGEST, ALL = 64, 16


class Cuda:
    """One device.

    Each recording has memory of its own for what it needs while it runs: what one leaves free, another's results may
    not take, for the first writes there again whenever it runs.
    """

    device_type = "cuda"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.side = torch.cuda.Stream(device)  # nothing is recorded on the default one
        self._lock = threading.Lock()
        self._turns = threading.Lock()
        self._last: tuple[int, torch.cuda.Event] | None = None  # a stream, and what ran there last
        self._workspaces = torch.cuda.graph_pool_handle()  # the pool of cuBLAS's
        self._memory = torch.cuda.get_device_properties(device).total_memory
        self._kept: weakref.WeakKeyDictionary[Recording, int] = weakref.WeakKeyDictionary()

    def is_busy(self) -> bool:
        """Is the current stream being recorded?"""
        return torch.cuda.is_current_stream_capturing()

    def prepare(self) -> None:
        """See ``Recorder``. cuBLAS has a workspace for each thread and stream, of 32 MiB on an H200.

        It is no recording's memory: else the first one would count it, and keep it for all others. Nor is it anybody
        else's: torch takes all workspaces back when somebody asks for that, as torch.compile does around each of its
        recordings, and a replay would write to memory that is another tensor's by then, or nobody's. So they are in a
        pool of their own, and before each recording there is one again. Where the library refuses, as it may while
        algorithms have to be deterministic, the graph itself will tell.
        """
        with self._lock:
            if self.is_busy():
                return
            current = torch.cuda.current_stream(self.device)
            self.side.wait_stream(current)
            if self._last is not None:
                self.side.wait_event(self._last[1])
            with (
                torch.cuda.stream(self.side),
                torch.no_grad(),
                torch.autocast("cuda", enabled=False),
                contextlib.suppress(RuntimeError),
            ):
                one, made = torch.zeros(2, 16, 16, device=self.device)
                with self._own_memory():
                    torch.mm(one, one, out=made)
                    torch.addmm(one[0], one, one, out=made)
            current.wait_stream(self.side)

    def _own_memory(self) -> contextlib.AbstractContextManager[None]:
        """Memory for workspaces; other allocators than torch's own have no pools."""
        if torch.cuda.get_allocator_backend() != "native":
            return contextlib.nullcontext()
        return within_pool(self.device, self._workspaces)

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        """See ``Recorder``. Other threads go on meanwhile."""
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        current = torch.cuda.current_stream(self.device)
        with self._lock:
            self.side.wait_stream(current)
            with torch.cuda.stream(self.side):
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    made = run()
                except BaseException:
                    with contextlib.suppress(RuntimeError):
                        graph.capture_end()
                    self._recover(pool)
                    raise
                try:
                    graph.capture_end()
                except RuntimeError:
                    self._recover(pool)
                    raise
            current.wait_stream(self.side)
        return made, graph.replay

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """See ``Recorder``. Recordings share the libraries' workspaces, and the state of the random generator."""
        current = torch.cuda.current_stream(self.device)
        with self._turns:
            if self._last is not None and self._last[0] != current.cuda_stream:
                current.wait_event(self._last[1])
            try:
                yield
            finally:
                done = self._last[1] if self._last is not None else torch.cuda.Event()
                done.record(current)
                self._last = current.cuda_stream, done

    def wait(self) -> None:
        """See ``Recorder``."""
        torch.cuda.current_stream(self.device).synchronize()

    def taken(self) -> int:
        """See ``Recorder``."""
        return torch.cuda.memory_reserved(self.device)

    def room(self) -> int:
        """See ``Recorder``. Of memory that is another allocator's than torch's own nobody knows who takes it."""
        if torch.cuda.get_allocator_backend() != "native" or torch.cuda.get_sync_debug_mode():
            return -1
        return max(0, min(self._memory // LARGEST, self._memory // ALL - sum(list(self._kept.values()))))

    def keep(self, recording: Recording, taken: int) -> None:
        """See ``Recorder``."""
        self._kept[recording] = taken

    def _recover(self, pool: tuple[int, int]) -> None:
        """After a recording that failed, torch's allocator and random generator believe that it goes on."""
        end_pool(self.device, pool)
        empty = torch.cuda.CUDAGraph()
        with contextlib.suppress(RuntimeError):
            empty.capture_begin(capture_error_mode="thread_local")
            torch.empty(1, device=self.device).zero_()
            empty.capture_end()


@functools.cache
def recorder(device: torch.device) -> Cuda:
    """The device's."""
    return Cuda(device)
