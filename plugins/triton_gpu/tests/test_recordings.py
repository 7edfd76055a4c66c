"""Recordings give eager's numbers, and change nothing that somebody holds; with a recorder for the CPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jitney_triton_gpu import recordings
from jitney_triton_gpu.recordings import Recorded, Traits


class Tape:
    """As a device: what is recorded has not run yet, and runs again into the same memory."""

    device_type = "cpu"

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0
        self.busy = False
        self.error: RuntimeError | None = None

    def is_busy(self) -> bool:
        return self.busy

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        if self.error is not None:
            raise self.error
        self.recorded += 1
        made = run()
        places = [m.detach() if isinstance(m, torch.Tensor) else None for m in made]

        def replay() -> None:
            self.replayed += 1
            for place, new in zip(places, run(), strict=True):
                if place is not None and place.data_ptr() != new.data_ptr():
                    place.copy_(new)

        return made, replay


@pytest.fixture
def tape() -> Tape:
    return Tape()


def wrap(
    run: Callable[..., Any], tape: Tape, *, written: Sequence[int] = (), dynamic: bool = False, launches: int = 10
) -> tuple[Recorded, list[str]]:
    told: list[str] = []
    return Recorded(run, tape, Traits(frozenset(written), dynamic, launches), told.append), told


def double(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    return [x * w, x + w]


def test_what_is_called_often_is_recorded(tape: Tape) -> None:
    calls, told = wrap(double, tape)
    x, w = torch.randn(5), torch.randn(5)
    for step in range(6):
        x.fill_(step)
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert (tape.recorded, tape.replayed, told) == (1, 4, [])


def test_results_that_are_held_do_not_change(tape: Tape) -> None:
    calls, told = wrap(double, tape)
    x, w = torch.randn(300_000), torch.randn(300_000)
    held, wanted = [], []
    for step in range(9):
        x.fill_(step)
        made = calls(x, w)
        held.append(made[0][5:9] if step % 2 else made[1])
        wanted.append(held[-1].clone())
        del made
    assert tape.recorded == recordings.MOST  # then they are launched one by one
    torch.testing.assert_close(held, wanted)
    assert torch.equal(held[7], (torch.full((4,), 7.0) * w[5:9]))
    held.clear()
    before = tape.replayed
    torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert tape.replayed == before + 1 and not told


def test_small_results_that_are_held_are_copies_then(tape: Tape) -> None:
    """As losses are, in a list."""
    calls, _ = wrap(lambda x: [x.sum(), x * 2], tape)
    x = torch.randn(300_000)
    losses = []
    for step in range(40):
        x.fill_(step)
        losses.append(calls(x)[0])
    assert [loss.item() for loss in losses] == [300_000.0 * n for n in range(40)]
    assert tape.recorded <= 3 and tape.replayed >= 37


def test_small_inputs_may_come_from_anywhere(tape: Tape) -> None:
    calls, told = wrap(double, tape)
    w, keep = torch.randn(5), []
    for _ in range(8):
        x = torch.randn(5)
        keep.append(x)
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert (tape.recorded, tape.replayed, told) == (1, 6, [])


def test_an_input_that_moves_later_is_copied_then(tape: Tape) -> None:
    calls, told = wrap(double, tape)
    x, w, keep = torch.randn(5), torch.randn(5), []
    for step in range(12):
        if step > 4:
            keep.append(x)
            x = torch.randn(5)
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert (tape.recorded, told) == (2, [])


def test_copying_large_inputs_is_not_worth_it(tape: Tape) -> None:
    calls, told = wrap(double, tape)
    w, keep = torch.randn(20_000_000), []
    for _ in range(4):
        keep.append(torch.randn(20_000_000))
        torch.testing.assert_close(list(calls(keep[-1], w)), double(keep[-1], w))
    assert tape.recorded == 0 and told == ["copying its inputs takes longer than its launches do"]


def test_a_launch_or_two_are_not_worth_it(tape: Tape) -> None:
    calls, told = wrap(double, tape, launches=2)
    x, w = torch.randn(5), torch.randn(5)
    for _ in range(4):
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert tape.recorded == 0 and told == ["it launches too little for a recording to be faster"]


def test_parameters_that_are_replaced(tape: Tape) -> None:
    calls, _ = wrap(double, tape)
    x, weights = torch.randn(500_000), [torch.randn(500_000) for _ in range(2)]
    for step in range(12):
        w = weights[step // 6]
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert tape.recorded == 2


def test_what_is_written_to_is_never_a_copy(tape: Tape) -> None:
    def count(x: torch.Tensor, seen: torch.Tensor) -> list[torch.Tensor]:
        seen += 1
        return [x * 2, seen]

    calls, told = wrap(count, tape, written=[1])
    x, seen = torch.randn(5), torch.zeros(1)
    for step in range(2):
        assert calls(x, seen)[1] is seen and seen.item() == step + 1
    tape.recorded = 0
    keep = []
    calls, told = wrap(count, tape, written=[1])
    for _ in range(5):
        keep.append(torch.zeros(1))
        made = calls(x, keep[-1])
        assert made[1] is keep[-1] and keep[-1].item() == 1
    assert told == ["what it writes to comes from elsewhere each time"] and not tape.recorded


def test_results_that_are_inputs_or_views_of_them(tape: Tape) -> None:
    calls, _ = wrap(lambda x, n: [x, x[2:], x.view(5, 2).t(), n, x + n], tape)
    memory = torch.arange(30.0)
    for start in (0, 0, 0, 7, 7, 12):
        x = memory[start : start + 10]
        same, part, turned, number, more = calls(x, 3)
        assert same is x and number == 3
        assert part.data_ptr() == x[2:].data_ptr() and torch.equal(part, x[2:])
        assert torch.equal(turned, x.view(5, 2).t()) and torch.equal(more, x + 3)
    assert tape.recorded == 3  # the results of the call before are held during the next


def test_views_of_inputs_that_share_memory_are_not_recorded(tape: Tape) -> None:
    calls, told = wrap(lambda x, y: [x[1:], y + 1], tape)
    memory = torch.arange(30.0)
    for _ in range(4):
        torch.testing.assert_close(list(calls(memory[:5], memory[5:])), [memory[1:5], memory[5:] + 1])
    assert told == ["RuntimeError: a result is a view of inputs that share their memory"]


def test_gradients_that_are_one_tensor_are_two_for_autograd(tape: Tape) -> None:
    """It takes a tensor that nobody else holds as it is: never the same memory for two leaves."""

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        made = x * 2
        return [made, made, made.view(2, 5), x + 1]

    calls, _ = wrap(run, tape)
    x = torch.randn(10)

    class Thrice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *leaves: torch.Tensor) -> torch.Tensor:
            return leaves[0] + leaves[1] + leaves[2].view(10)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return tuple(calls(x)[:3])

    for _ in range(6):
        leaves = [torch.zeros(shape, requires_grad=True) for shape in ((10,), (10,), (2, 5))]
        Thrice.apply(*leaves).sum().backward()
        for number, leaf in enumerate(leaves):
            assert leaf.grad is not None
            leaf.grad.mul_(number + 1)
        for number, leaf in enumerate(leaves):
            torch.testing.assert_close(leaf.grad.flatten(), x * 2 * (number + 1))
    assert tape.replayed > 2


def test_each_number_and_size_has_recordings_of_its_own(tape: Tape) -> None:
    calls, _ = wrap(lambda x, n: [x * n], tape, dynamic=True)
    memory = torch.randn(20)
    for step in range(24):
        x, n = memory[: 4 + step % 2], (1, 1.0)[step // 2 % 2]
        (made,) = calls(x, n)
        assert made.shape == x.shape and torch.equal(made, x * n)
    assert tape.recorded == 4
    for n in range(1000):
        calls(memory, n)
    assert len(calls.known) <= recordings.MOST_KINDS + recordings.MOST


def test_what_cannot_be_recorded_runs_as_it_is(tape: Tape) -> None:
    calls, told = wrap(double, tape)
    tape.error = RuntimeError("operation not permitted")
    x, w = torch.randn(5), torch.randn(5)
    for _ in range(5):
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert told == ["RuntimeError: operation not permitted"]


def test_the_users_own_recording_is_left_alone(tape: Tape) -> None:
    calls, _ = wrap(double, tape)
    x, w = torch.randn(5), torch.randn(5)
    tape.busy = True
    for _ in range(5):
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert not tape.recorded and not calls.known


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 5)), min_size=4, max_size=40
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([5, 400_000]))
def test_any_order_of_calls_and_of_letting_go(steps: list[tuple[int, int, int, int]], size: int) -> None:
    """Each step: which input, which weight, how many results are let go of, and which result is kept as what."""

    def program(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        base = x * w
        return [base, base[1:], (x + w).sum(), x]

    tape = Tape()
    calls, _ = wrap(program, tape)
    inputs, weights = [torch.zeros(size) for _ in range(3)], [torch.ones(size) for _ in range(2)]
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number, (x, w, gone, kept) in enumerate(steps):
        inputs[x].fill_(number)
        weights[w].fill_(number + 0.5)
        made, wanted = calls(inputs[x], weights[w]), program(inputs[x], weights[w])
        torch.testing.assert_close(list(made), wanted)
        assert made[3] is inputs[x]
        if kept < 3:
            held.append((made[kept].reshape(-1)[-1:] if kept else made[kept], wanted[kept].clone()))
        del made
        del held[:gone]
        for mine, theirs in held:
            torch.testing.assert_close(mine, theirs.reshape(-1)[-1:] if mine.shape != theirs.shape else theirs)
    gc.collect()
