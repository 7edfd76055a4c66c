"""The counters of jitney-scalars in TensorBoard's own files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import jitney
import jitney_scalars

pytestmark = pytest.mark.filterwarnings("ignore")


def test_tensorboard_reads_what_was_counted(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    compiled = jitney.compile(lambda x: x.sin() + 1, backend="eager")
    with SummaryWriter(str(tmp_path)) as writer:
        for step, size in enumerate((2, 3, 4)):
            compiled(torch.ones(size))
            jitney_scalars.log(writer, step)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in found.Scalars("jitney/recompiles")][-1] == 1
    assert found.Scalars("jitney/graphs")[-1].value >= 2
