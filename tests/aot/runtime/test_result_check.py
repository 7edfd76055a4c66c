"""The check of a graph's first result goes on in another process where it has not been made here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from jitney.aot.runtime.result_check import ANYTHING, checked
from jitney.cache.frames import pack, unpack
from jitney.cache.recipes import Reader, Writer
from jitney.errors import BackendFailed


def graph(x: Any) -> Any:
    return x + 1, x.sum()


def kept(run: Any) -> Any:
    """What another process makes of it."""
    writer = Writer()
    number = writer.ref(run)
    data, blobs = unpack(pack([writer.objects, number], writer.blobs))
    return Reader(data[0], blobs).make(data[1])


def test_what_has_not_run_is_checked_where_it_is_loaded() -> None:
    forward = fx.symbolic_trace(graph).forward
    right = [torch.ones(2), ANYTHING]
    wrong = [torch.ones(3), torch.ones(())]
    run = kept(checked(forward, right, 2, lambda reason: None))
    assert [y.tolist() for y in run(torch.ones(2))] == [[2, 2], 2]
    with pytest.raises(BackendFailed, match=r"output 0 is torch.float32\[2\] on cpu, torch.float32\[3\] on cpu was"):
        kept(checked(forward, wrong, 2, lambda reason: None))(torch.ones(2))
    settled = checked(forward, right, 2, lambda reason: None)
    settled(torch.ones(2))
    assert kept(settled).__name__ == "forward"
