"""Plain weights or those that oneDNN has put in order: the way that takes less time where the program runs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jitney
from jitney_llvm_cpu.onednn import convolutions, native, packed
from jitney_llvm_cpu.onednn.trial import GAIN, TRIES, Trial

needs_onednn = pytest.mark.skipif(convolutions.operators() is None, reason="this torch has no oneDNN")


@pytest.mark.parametrize(("plain", "packs"), [(1.0, False), (0.5, False), (1.01 / GAIN, True), (2.0, True)])
def test_the_faster_way_is_taken_after_some_calls_of_each(plain: float, packs: bool) -> None:
    trial = Trial()
    trial.compare(True)
    turns = []
    while trial.packs is None:
        turns.append(trial.packs_next)
        slow = 5.0 if len(turns) < 3 else 0.0  # what else the machine does: the fastest call counts
        trial.add(turns[-1], slow + (1.0 if turns[-1] else plain))
    assert turns == [True, False] * TRIES
    assert trial.packs is packs


def test_other_numbers_are_no_choice() -> None:
    trial = Trial()
    trial.compare(False)
    assert trial.packs is True


class Clock:
    """Seconds that pass with each call of one way."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def spent(self, way: str, seconds: float, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            self.calls.append(way)
            self.now += seconds
            return call(*given)

        return timed


@pytest.fixture(params=[0.5, 2.0], ids=["plain is faster", "plain is slower"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Clock, float]]:
    made = Clock()
    monkeypatch.setattr(packed, "perf_counter", lambda: made.now)
    monkeypatch.setattr(packed, "_plain", made.spent("plain", request.param, packed._plain))
    monkeypatch.setattr(
        packed.PackedConvolution, "_packed", made.spent("packed", 1.0, packed.PackedConvolution._packed)
    )
    timed = packed.PackedConvolution._timed

    def spent(one: packed.PackedConvolution, asked: Any, x: Tensor, packs: bool) -> bool:
        made.calls.append("packed" if packs else "plain")
        made.now += 1.0 if packs else request.param
        return timed(one, asked, x, packs)

    monkeypatch.setattr(packed.PackedConvolution, "_timed", spent)
    yield made, request.param


@needs_onednn
def test_calls_of_a_program_are_timed_and_the_numbers_stay(clock: tuple[Clock, float]) -> None:
    made, plain = clock
    module = nn.Sequential(nn.Conv2d(16, 64, 3, padding=1), nn.GELU()).eval()
    jitney.reset()
    compiled = jitney.compile(module, backend="llvm_cpu")
    x = torch.randn(2, 16, 20, 20).to(memory_format=torch.channels_last)
    with torch.no_grad():
        first: Tensor = compiled(x)
        for _ in range(2 * TRIES + 4):
            assert torch.equal(compiled(x), first)
        torch.testing.assert_close(first, module(x))
    assert made.calls[:3] == ["packed", "packed", "plain"]  # made, then both compared
    assert made.calls[3:] == ["packed", "plain"] * TRIES  # after that nobody is asked
    gc.collect()
    (one,) = (found for found in gc.get_objects() if type(found) is packed.PackedConvolution)
    (row,) = one.table.rows
    assert row.mode == (native.PLAIN if plain < 1 else native.PACKED)
    assert bool(one.state.hits) is (plain > 1)


@needs_onednn
def test_numbers_are_compared_on_an_input_that_tells(clock: tuple[Clock, float]) -> None:
    made, _ = clock
    convolution = packed.PackedConvolution()
    x, weight = torch.zeros(2, 16, 20, 20).to(memory_format=torch.channels_last), torch.randn(64, 16, 3, 3)
    given = (weight, None, [1, 1], [1, 1], [1, 1], 1, *convolutions.IDENTITY)
    for _ in range(4):
        convolution(x, *given)
    assert made.calls == ["packed"] * 4
    convolution(x + 1, *given)
    assert made.calls[4:] == ["packed", "plain"]


@needs_onednn
def test_weights_that_nobody_uses_in_order_are_not_kept(clock: tuple[Clock, float]) -> None:
    _, plain = clock
    convolution = packed.PackedConvolution()
    x, weight = torch.randn(2, 16, 20, 20).to(memory_format=torch.channels_last), torch.randn(64, 16, 3, 3)
    for _ in range(2 * TRIES + 3):
        convolution(x, weight, None, [1, 1], [1, 1], [1, 1], 1, *convolutions.IDENTITY)
    assert (convolution.kept is None) is (plain < 1)


@needs_onednn
def test_weights_may_be_written_to_in_the_middle_of_a_trial(clock: tuple[Clock, float]) -> None:
    module = nn.Conv2d(16, 64, 3, padding=1).eval()
    compiled = jitney.compile(module, backend="llvm_cpu")
    x = torch.randn(2, 16, 20, 20).to(memory_format=torch.channels_last)
    with torch.no_grad():
        for n in range(2 * TRIES + 6):
            if n % 3 == 2:
                module.weight.data.mul_(-0.5)
            torch.testing.assert_close(compiled(x), module(x))
