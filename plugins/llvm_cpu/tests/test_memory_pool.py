"""Large blocks are used again when nobody uses them any more, whatever threads and processes do."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import output_code

import jitney
from jitney.cache.store import DiskCache
from jitney_llvm_cpu.memory_pool import THRESHOLD, WarmMemory

CPU = torch.device("cpu")
COUNT = THRESHOLD // 4 + 100
CPU = torch.device("cpu")


def test_a_block_is_used_again_once_its_last_view_is_gone() -> None:
    memory = WarmMemory()
    made = memory.empty_strided((COUNT,), (1,), dtype=torch.float32, device=CPU)
    address, view = made.data_ptr(), made[5:]
    del made
    assert memory.unused == 0
    del view
    assert memory.unused > 0
    assert memory.empty(COUNT, dtype=torch.float32, device=CPU).data_ptr() == address


def test_what_is_unused_stays_below_the_limit() -> None:
    memory = WarmMemory(limit=3 * THRESHOLD)
    held = [memory.empty(COUNT, dtype=torch.float32, device=CPU) for _ in range(4)]
    held.clear()
    assert 0 < memory.unused <= memory.limit
    memory.clear()
    assert memory.unused == 0


def in_a_child(lock: Any, work: Callable[[Any], None]) -> Any:
    """What ``work`` puts into a queue in a process that is forked while another thread holds the lock."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    child = context.Process(target=work, args=(queue,), daemon=True)
    child.start()
    try:
        return queue.get(timeout=60)
    finally:
        done.set()
        holder.join()
        child.kill()
        child.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_a_thread_takes_memory_takes_its_own() -> None:
    memory = WarmMemory()

    def work(queue: Any) -> None:
        made = memory.empty(COUNT, dtype=torch.float32, device=CPU)
        made[-1] = 7
        queue.put(made[-1].item())

    assert in_a_child(memory.lock, work) == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_a_thread_makes_room_in_the_cache_stores(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "kernels")

    def work(queue: Any) -> None:
        cache.store("ab", b"code")
        queue.put(cache.load("ab"))

    assert in_a_child(cache._lock, work) == b"code"


def test_results_below_the_threshold_are_torchs_own() -> None:
    """What no block is for is not asked for here: a whole training step has hundreds of small results."""
    compiled = jitney.compile(lambda x: (x + 1, x.sum()), backend="llvm_cpu", dynamic=False, options={"dump": True})
    with output_code() as codes:
        compiled(torch.ones(COUNT))
    code = "\n".join(map(str, codes))
    assert f"_empty_strided(({COUNT}, )" in code and "_fresh_small((), ()" in code
    sized = jitney.compile(lambda x: x + 1, backend="llvm_cpu", dynamic=True, options={"dump": True})
    with output_code() as codes:
        sized(torch.ones(3))
    code = "\n".join(map(str, codes))
    assert "_fresh_small" not in code
