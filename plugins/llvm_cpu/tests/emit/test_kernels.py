"""Kernels whose items several threads share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from jitney_lowering.index import Var, index
from jitney_lowering.ir import Kernel, Nest, Store, constant, load


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [48, 64, 72, 80, 96, 128, 136, 160, 256])
def test_a_loop_short_enough_to_be_written_out_is_done_once_by_all_threads_together(
    compiled: Callable[..., Any], n: int, threads: int
) -> None:
    i = Var("i", n)
    dtypes = {"a": torch.float32, "filled": torch.float32, "copied": torch.float32}
    fill = Kernel("fill", (), (Nest((i,), (Store("filled", index(i), constant(1.0, torch.float32)),)),), dtypes)
    copy = Kernel("copy", (), (Nest((i,), (Store("copied", index(i), load("a", index(i), torch.float32)),)),), dtypes)
    buffers = {"a": torch.arange(1.0, n + 1), "filled": torch.zeros(4 * n), "copied": torch.zeros(4 * n)}
    compiled(fill, copy)(buffers, threads=threads)
    assert buffers["filled"].tolist() == [1.0] * n + [0.0] * (3 * n)
    assert buffers["copied"].tolist() == [*buffers["a"].tolist(), *[0.0] * (3 * n)]
