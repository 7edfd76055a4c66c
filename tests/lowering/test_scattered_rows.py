"""Rows whose elements lie far apart, a few of each line of memory, are put into memory one after the other before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import lowered

from jitney_lowering.ir import Computed, Kernel, Load, walk
from jitney_lowering.policy import GPU
from jitney_lowering.scheduler import schedule

SIDE = 48


def images(channels: int = 64) -> torch.Tensor:
    return torch.randn(2, channels, SIDE, SIDE).to(memory_format=torch.channels_last)


def normalised(x: torch.Tensor) -> torch.Tensor:
    """Groups of two channels each, by hand."""
    rows = x.contiguous().view(x.shape[0], -1, 2, x.shape[2] * x.shape[3])
    return F.relu((rows - rows.mean((2, 3), keepdim=True)) / rows.std((2, 3), keepdim=True)).view(x.shape)


def summed(x: torch.Tensor) -> torch.Tensor:
    return (x.contiguous().view(2, -1, 2, SIDE * SIDE) * 2).sum((2, 3))


@pytest.mark.parametrize("fn", [normalised, summed])
def test_they_are_copied_by_a_kernel_of_its_own(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = lowered(fn, images(), whole=None).program
    (first, *others) = program.steps
    assert first.apart and not any(getattr(step, "apart", False) for step in others)
    inputs = {name for name in program.inputs if isinstance(name, str)}
    large = {name for name in inputs if len(program.buffers[name].size) == 4}
    assert not any(isinstance(v, Load) and v.buffer in large for step in others for v in walk(step.value))
    assert len(schedule(program).items) == 2


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (normalised, torch.randn(2, 64, SIDE, SIDE)),  # one after the other already
        (normalised, images()[:, :, :8, :8]),  # few lines, which caches hold
        (lambda x: x.contiguous().mean((2, 3)), images()),  # all channels of a line side by side
        (lambda x: x.contiguous().view(2, 2, -1).var(2), images()),  # whole lines
        (lambda x: F.relu(F.group_norm(x.contiguous(), 32)), images()),  # sums of channels
        (lambda x: x[:, :2].sum((1, 2, 3)), images()),
        (normalised, images(6)),  # neighbours in few lines
    ],
)
def test_other_rows_are_not(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    program = lowered(fn, x, whole=None).program
    assert not any(getattr(step, "apart", False) for step in program.steps)


def test_where_the_machine_does_not_want_it_they_are_not() -> None:
    assert not any(
        getattr(s, "apart", False) for s in lowered(normalised, images(), whole=None, policy=GPU).program.steps
    )


def on_two_axes(x: torch.Tensor) -> torch.Tensor:
    return x.mean((2, 3))


@pytest.mark.parametrize(("count", "shared"), [(1, True), (4, True), (8, False)])
def test_few_rows_of_much_work_are_shared(count: int, shared: bool) -> None:
    x = torch.randn(count, 64, SIDE, SIDE).to(memory_format=torch.channels_last)
    (total, *_) = [step for step in lowered(on_two_axes, x, whole=None).program.steps if isinstance(step, Computed)]
    assert (total.loops[0] in total.reduced) is (shared or count == 1)
    assert total.loops[-1] not in total.reduced  # along memory


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (on_two_axes, torch.randn(2, 64, SIDE, SIDE)),  # rows enough
        (on_two_axes, torch.randn(2, 64, 8, 8).to(memory_format=torch.channels_last)),  # little work
        (lambda x: x.sum(1), torch.randn(2, 1 << 17)),  # nothing beside
    ],
)
def test_other_rows_are_not_shared(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    (total, *_) = [step for step in lowered(fn, x, whole=None).program.steps if isinstance(step, Computed)]
    assert total.loops[0] not in total.reduced


@pytest.mark.parametrize(("channels", "along"), [(64, True), (16, True), (12, False), (3, False)])
def test_a_copy_is_reduced_as_it_was_in_memory(channels: int, along: bool) -> None:
    """With channels innermost, if these fill a vector."""
    x = torch.randn(16, channels, SIDE, SIDE).to(memory_format=torch.channels_last)
    (total, *_) = lowered(lambda x: x.contiguous().sum((2, 3)), x, whole=None).program.steps
    assert isinstance(total, Computed) and (total.loops[-1] is total.vars[-1]) is along


def test_what_reads_scattered_rows_has_a_kernel_of_its_own() -> None:
    """A group norm whose result is turned: statistics of a group are few, its pixels lie far apart."""
    x = torch.randn(2, 64, 112, 112).to(memory_format=torch.channels_last)
    program = lowered(lambda x: F.group_norm(x.contiguous(), 32), x, whole=None).program
    kernels = [item for item in schedule(program).items if isinstance(item, Kernel)]
    last = kernels[-1]
    assert len(kernels) == 4 and len(last.body) == 1 and not last.scratch
