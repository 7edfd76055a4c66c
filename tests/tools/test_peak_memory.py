import pytest
import torch

import jitney
from jitney_tools.peak_memory import highest, peak

CPU = torch.device("cpu")
MB = 2**20


def test_the_highest_sum_counts() -> None:
    assert highest([5, -5, 3, 4, -7, 1]) == 7 and highest([]) == 0


def test_the_peak_is_what_is_there_at_once() -> None:
    x = torch.ones(MB // 4)  # 1 MB

    def call() -> torch.Tensor:
        return ((x + 1) + 1) + 1  # two at a time

    assert 2 * MB <= peak(call, CPU) < 2.2 * MB


def test_large_memory_of_kernels_is_seen() -> None:
    x = torch.ones(8 * MB)  # 32 MB, which llvm_cpu takes from a pool of its own
    compiled = jitney.compile(lambda x: x + 1, backend="llvm_cpu")
    compiled(x)
    assert 32 * MB <= peak(lambda: compiled(x), CPU) < 33 * MB


def test_an_error_of_the_call_leaves_the_profiler_as_it_was() -> None:
    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        peak(fails, CPU)
    assert peak(lambda: torch.ones(MB // 4), CPU) >= MB
