"""Large blocks of memory that are used again while they are warm.

The C library gives a block of 32 MB and more back to the system when it is freed, and gets it anew, page by page and
zeroed, at the next call: for a kernel that only streams through memory that is most of its time (64 MB of ``x + 1`` on
two cores: 32 ms into fresh memory, 10 ms into fresh memory of huge pages, 6 ms into memory used before). Of smaller
blocks it gives back what lies at the end of its heap, or is larger than what it got back before: now this, now that, by
what else the process does (a training step of a small DistilBert: from 500 to 1,100 pages, 2 us each, in 45 ms). So
blocks of a megabyte and more come from here, large ones as huge pages where the system has them, kept when their tensor
dies, up to a limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from jitney.backends.devices import fresh_cpu, is_profiling

THRESHOLD = 1 << 20  # bytes: below, asking here takes as long as what is saved
LIMIT = 512 << 20  # bytes kept unused in the process
_HUGE_PAGE = 2 << 20
_HUGE = 4 * _HUGE_PAGE  # bytes of the smallest block of huge pages: of smaller ones too much would be left over
_STEP = 1 << 16  # sizes of those are rounded up to


class WarmMemory:
    """A pool of blocks by size.

    Args:
        limit: bytes kept that no tensor uses; the least recently used go first.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.free: list[tuple[int, mmap.mmap]] = []  # oldest first
        self.lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            # The child has one thread: whoever held the lock is not there to give it back.
            os.register_at_fork(after_in_child=functools.partial(_renew_lock, weakref.ref(self)))

    small = THRESHOLD
    fresh_small = staticmethod(fresh_cpu)

    def empty_strided(
        self, size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """As ``torch.empty_strided``; a large block's storage cannot be resized."""
        extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if math.prod(size) else 0
        if extent * dtype.itemsize < THRESHOLD or is_profiling():  # which is to see what is allocated
            return torch.empty_strided(size, stride, dtype=dtype, device=device)
        return torch.as_strided(self._tensor(extent * dtype.itemsize, dtype), size, stride)

    def empty(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As ``torch.empty`` of one dimension."""
        if size * dtype.itemsize < THRESHOLD or is_profiling():
            return torch.empty(size, dtype=dtype, device=device)
        return self._tensor(size * dtype.itemsize, dtype)

    def clear(self) -> None:
        """Give what no tensor uses back to the system."""
        with self.lock:
            self.free.clear()

    @property
    def unused(self) -> int:
        """Bytes that no tensor uses."""
        return sum(size for size, _ in self.free)

    def _tensor(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        unit = _HUGE_PAGE if count >= _HUGE else _STEP
        size = -(-count // unit) * unit
        lease = _lease(size)
        block = self._take(size) or _fresh(size)
        begin = 0
        if unit == _HUGE_PAGE:
            begin = -ctypes.addressof(ctypes.c_char.from_buffer(block)) % _HUGE_PAGE
        held: Any = lease.from_buffer(block, begin)
        held.give_back = functools.partial(self._give, size, block)
        return torch.frombuffer(held, dtype=dtype, count=count // dtype.itemsize)

    def _take(self, size: int) -> mmap.mmap | None:
        with self.lock:
            for at in range(len(self.free) - 1, -1, -1):
                if self.free[at][0] == size:
                    return self.free.pop(at)[1]
        return None

    def _give(self, size: int, block: mmap.mmap) -> None:
        # Called when a tensor dies, perhaps inside of this thread's own _take: never wait for the lock.
        if size > self.limit or not self.lock.acquire(blocking=False):
            return
        try:
            self.free.append((size, block))
            while self.unused > self.limit:
                self.free.pop(0)
        finally:
            self.lock.release()


def _renew_lock(owner: weakref.ref[WarmMemory]) -> None:
    memory = owner()
    if memory is not None:
        memory.lock = threading.Lock()


@functools.cache
def _lease(size: int) -> Any:
    """A class of objects with ``size`` bytes; what its object's ``give_back`` is, is called when it dies."""

    def __del__(self: Any) -> None:
        self.give_back()

    return type("Lease", (ctypes.c_char * size,), {"__del__": __del__})


def _fresh(size: int) -> mmap.mmap:
    if size < _HUGE:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


memory = WarmMemory()  # the process's
