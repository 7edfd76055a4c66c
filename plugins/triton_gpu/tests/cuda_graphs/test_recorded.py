"""Recordings give eager's numbers, and change nothing that somebody holds; with a recorder for the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from fork_server import run_python
from hypothesis import given, settings
from hypothesis import strategies as st

from jitney_triton_gpu.cuda_graphs import recorded, trial
from jitney_triton_gpu.cuda_graphs.recorded import Recorded, Traits
from jitney_triton_gpu.cuda_graphs.recording import Recording


class Tape:
    """As a device: what is recorded has not run yet, and runs again into the same memory."""

    device_type = "cpu"

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0
        self.busy = False
        self.error: RuntimeError | None = None
        self.memory, self.limit = 0, 1 << 40
        self.prepared = 0

    def turn(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def prepare(self) -> None:
        self.prepared += 1

    def wait(self) -> None:
        """What runs here is done when it returns."""

    def taken(self) -> int:
        return self.memory

    def room(self) -> int:
        return self.limit

    def keep(self, recording: Recording, taken: int) -> None:
        self.limit -= taken

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
                    place.untyped_storage().copy_(new.untyped_storage())

        return made, replay


@pytest.fixture
def tape() -> Tape:
    return Tape()


def wrap(
    run: Callable[..., Any],
    tape: Tape,
    *,
    written: Sequence[int] = (),
    dynamic: bool = False,
    launches: int = 10,
    automatic: bool = False,
    seen: int | None = None,
    trains: bool = False,
    needed: int = 0,
) -> tuple[Recorded, list[str]]:
    told: list[str] = []
    traits = Traits(frozenset(written), dynamic, launches, automatic, seen, trains, True, needed)
    return Recorded(run, tape, traits, told.append), told


def recordings_of(calls: Recorded) -> list[Recording]:
    return [r for alike in calls.known.values() for r in alike.recordings]


class Clock:
    """In place of ``perf_counter``: what a launched call takes and a replay does; the host, then the device."""

    def __init__(self, launched: tuple[float, float], replayed: tuple[float, float] = (0, 0)) -> None:
        self.parts = [9.0, 9.0, *launched * 2, *replayed, 9.0, 9.0, *replayed]  # others disturb now and then
        self.now = 0.0
        self.readings = 0

    def __call__(self) -> float:
        if self.readings % 3:
            self.now += self.parts.pop(0)
        self.readings += 1
        return self.now


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launching takes a millisecond, a replay a tenth, and the device has nothing to do."""
    monkeypatch.setattr(trial, "perf_counter", Clock((1e-3, 0), (1e-4, 0)))


def double(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    return [x * w, x + w]


def test_what_is_called_often_is_recorded(tape: Tape) -> None:
    calls, told = wrap(double, tape)
    x, w = torch.randn(5), torch.randn(5)
    for step in range(6):
        x.fill_(step)
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert (tape.recorded, tape.replayed, told) == (1, 4, [])


def test_each_recording_is_prepared(tape: Tape, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries' workspaces may be gone since the last one."""
    record = tape.record

    def prepared(run: Callable[[], Sequence[Any]]) -> Any:
        assert tape.prepared == tape.recorded + 1
        return record(run)

    monkeypatch.setattr(tape, "record", prepared)
    calls, told = wrap(double, tape, dynamic=True)
    for size in (5, 7):
        x, w = torch.randn(size), torch.randn(size)
        for _ in range(5):
            torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert (tape.recorded, told) == (2, [])


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
    assert tape.recorded == recorded.MOST  # then they are launched one by one
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
        assert all(map(torch.equal, calls(keep[-1], w), double(keep[-1], w)))
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
    assert len(calls.known) <= recorded.MOST_KINDS + recorded.MOST


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
@given(STEPS, st.sampled_from([5, 400_000]), st.sampled_from([None, (None,), (0,), (1,), (3,)]))
def test_any_order_of_calls_and_of_letting_go(
    steps: list[tuple[int, int, int, int]], size: int, automatic: tuple[int | None] | None
) -> None:
    """Each step: which input, which weight, how many results are let go of, and which result is kept as what."""

    def program(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        base = x * w
        return [base, base[1:], (x + w).sum(), x]

    gc.freeze()  # of collections, only this example's objects are looked at
    tape = Tape()
    calls, _ = wrap(program, tape, automatic=automatic is not None, seen=automatic[0] if automatic else None)
    calls.trial = None
    inputs, weights = [torch.zeros(size) for _ in range(3)], [torch.ones(size) for _ in range(2)]
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number, (x, w, gone, kept) in enumerate(steps):
        inputs[x].fill_(number)
        weights[w].fill_(number + 0.5)
        made, wanted = calls(inputs[x], weights[w]), program(inputs[x], weights[w])
        assert all(map(torch.equal, made, wanted))
        assert made[3] is inputs[x]
        if kept < 3:
            held.append((made[kept].reshape(-1)[-1:] if kept else made[kept], wanted[kept].clone()))
        del made
        del held[:gone]
        for mine, theirs in held:
            assert torch.equal(mine, theirs.reshape(-1)[-1:] if mine.shape != theirs.shape else theirs)
    gc.collect()
    gc.unfreeze()


@pytest.mark.usefixtures("quick")
def test_what_nobody_asked_for_gives_copies(tape: Tape) -> None:
    """So that other streams may read them when the program has let go of them."""
    calls, told = wrap(double, tape, automatic=True)
    x, w = torch.randn(300_000), torch.randn(300_000)
    held, wanted = [], []
    for step in range(9):
        x.fill_(step)
        made = calls(x, w)
        held.append(made[step % 2])
        wanted.append(double(x, w)[step % 2])
    torch.testing.assert_close(held, wanted)
    assert (tape.recorded, tape.replayed, told) == (1, 5, [])


STRIDED = [
    lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[0].expand(3, 4), lambda x: x.reshape(-1).unfold(0, 3, 1),
    lambda x: x[1:, 1:], lambda x: x[:0], lambda x: x[2, 3],
]  # fmt: skip


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("view", STRIDED)
@pytest.mark.parametrize("first", [False, True])
def test_copies_have_the_strides_of_results(tape: Tape, view: Callable[..., Any], first: bool) -> None:
    """Also where they share memory: then the copies do."""

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        base = x + 1
        return [view(base), base, view(base).unsqueeze(-1)] if first else [view(base)]

    calls, told = wrap(run, tape, automatic=True)
    x = torch.zeros(3, 4)
    for step in range(8):
        x.copy_(torch.arange(12.0).reshape(3, 4) + step)
        made, wanted = calls(x), run(x)
        torch.testing.assert_close(list(made), wanted)
        for m, w in zip(made, wanted, strict=True):
            assert m.stride() == w.stride()
            assert m.storage_offset() - made[0].storage_offset() == w.storage_offset() - wanted[0].storage_offset()
            assert m.untyped_storage().data_ptr() == made[0].untyped_storage().data_ptr()
        made[0].untyped_storage().fill_(0)  # the program's to change
    assert (tape.recorded, told) == (1, [])


@pytest.mark.usefixtures("quick")
def test_residuals_stay_where_they_are(tape: Tape) -> None:
    """Unless they are results, too: what the program writes to one is noticed in the other, as always."""

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        made = x * 2
        return [made, x.sin(), made]

    calls, told = wrap(run, tape, automatic=True, seen=1)
    x = torch.randn(10)
    places = []
    for _ in range(9):
        made = calls(x)
        assert made[2] is made[0]
        made[0].add_(1)
        torch.testing.assert_close(list(made), [x * 2 + 1, x.sin(), x * 2 + 1])
        places.append(made[1].data_ptr())
        del made
    assert len(set(places[4:])) == 1 and tape.recorded == 1 and not told


@pytest.mark.parametrize(
    ("times", "why", "recordings"),
    [
        (((1e-3, 5e-3),), "the device takes longer than launching does", 0),
        (((1e-3, 0), (0.95e-3, 0)), "a replay is no faster than launching is", 1),
        (((1e-3, 0), (0.1e-3, 0.9e-3)), "a replay is no faster than launching is", 1),
    ],
)
def test_what_is_no_faster_is_not_recorded(
    tape: Tape, monkeypatch: pytest.MonkeyPatch, times: Sequence[tuple[float, float]], why: str, recordings: int
) -> None:
    monkeypatch.setattr(trial, "perf_counter", Clock(*times))
    calls, told = wrap(double, tape, automatic=True)
    x, w = torch.randn(5), torch.randn(5)
    for step in range(12):
        x.fill_(step)
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert (told, tape.recorded) == ([why], recordings) and not calls.known


def test_memory_and_copies_have_limits_unless_asked_for(tape: Tape, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tape.record

    def large(run: Callable[[], Sequence[Any]]) -> Any:
        tape.memory += 3 << 20
        return record(run)

    monkeypatch.setattr(tape, "record", large)
    tape.limit = 4 << 20
    x, w = torch.randn(5), torch.randn(5)
    for why in ([], ["its 3 MiB of memory are more than is taken for it unless it is asked for"]):
        calls, told = wrap(double, tape, automatic=True)
        calls.trial = trial.Trial(tape)
        calls.trial.launches = calls.trial.replays = trial.TRIES
        for _ in range(4):
            torch.testing.assert_close(list(calls(x, w)), double(x, w))
        assert told == why
    tape.limit, tape.memory = 1 << 40, 0
    monkeypatch.setattr(trial, "TRAINING", 2 << 20)
    monkeypatch.setattr(trial, "perf_counter", Clock((1e-3, 0), (1e-4, 0)))
    calls, told = wrap(double, tape, automatic=True, trains=True)
    for _ in range(6):
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert len(told) == 1 and told[0].startswith("its 3 MiB of memory are more")
    monkeypatch.setattr(trial, "perf_counter", Clock((1e-3, 0), (1e-4, 0)))
    calls, told = wrap(lambda x: [x + 1], tape, automatic=True)
    much = torch.randn(10_000_000)
    for _ in range(6):
        torch.testing.assert_close(list(calls(much)), [much + 1])
    assert told == ["38 MiB would be copied at each call"]
    taken = tape.memory
    monkeypatch.setattr(trial, "perf_counter", Clock((1e-3, 0), (1e-4, 0)))
    calls, told = wrap(lambda x: [x[0]], tape, automatic=True, launches=100)
    several = [much.clone() for _ in range(6)]
    for one in several:
        torch.testing.assert_close(calls(one)[0], one[0])
    assert told == ["38 MiB would be copied at each call"]
    assert tape.memory == taken  # which is known before there is memory for copies


class Weak(Tape):
    """It knows addresses, as a device does: the memory of inputs does not live for it."""

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        assert isinstance(run, functools.partial)
        return super().record(functools.partial(run.func, *map(self.unowned, run.args)))

    @staticmethod
    def unowned(x: torch.Tensor) -> torch.Tensor:
        memory = (ctypes.c_char * (x.numel() * x.element_size())).from_address(x.data_ptr())
        return torch.frombuffer(memory, dtype=x.dtype)


def test_what_another_recording_makes_is_not_copied() -> None:
    """While each call has memory of its own, residuals come from elsewhere each time; no more when it is recorded."""
    tape = Weak()
    w = torch.randn(5)
    forward, _ = wrap(lambda x: [x * 2, x.sin()], tape)
    backward, _ = wrap(lambda y, w: [y * w], tape)
    before = []
    for _ in range(8):
        x = torch.randn(5)
        residual = forward(x)[1]
        if not tape.recorded:
            before.append(residual)
        torch.testing.assert_close(backward(residual, w), [x.sin() * w])
        del residual
    (recording,) = recordings_of(backward)
    assert not recording.moving and recording.replays > 1
    for _ in range(4):  # two steps at a time: residuals alternate between places, and are copied
        x, y = torch.randn(5), torch.randn(5)
        residuals = [forward(x)[1], forward(y)[1]]
        torch.testing.assert_close(backward(residuals[0], w), [x.sin() * w])
        torch.testing.assert_close(backward(residuals[1], w), [y.sin() * w])
        residuals.clear()


@pytest.mark.parametrize(("needed", "told"), [(4, []), (3, ["its 4 MiB of memory are more"]), (0, [])])
@pytest.mark.usefixtures("quick")
def test_recordings_take_little_more_than_launched_calls(
    needed: int, told: list[str], tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tape.record

    def large(run: Callable[[], Sequence[Any]]) -> Any:
        assert tape.prepared, "what all recordings have in common would count"
        tape.memory += 4 << 20
        return record(run)

    monkeypatch.setattr(tape, "record", large)
    monkeypatch.setattr(trial, "SPARE", 1 << 20)
    calls, reasons = wrap(double, tape, automatic=True, needed=needed << 20)
    x, w = torch.randn(5), torch.randn(5)
    for _ in range(8):
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert [r[:28] for r in reasons] == told


@pytest.mark.usefixtures("quick")
def test_what_fits_no_recording_for_long_is_given_up(tape: Tape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "COPIED", 1000)
    calls, told = wrap(double, tape, automatic=True)
    memory, w = torch.randn(1000 * 50), torch.randn(1000)
    for step in range(50):
        x = memory[1000 * step :][:1000] if step > 9 else memory[:1000]
        torch.testing.assert_close(list(calls(x, w)), double(x, w))
    assert told == ["no recording fits what it is called with"]


def test_settings_of_libraries_count(tape: Tape) -> None:
    """They decide when an operator is called how it computes."""
    calls, _ = wrap(double, tape)
    x, w = torch.randn(5), torch.randn(5)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for number, allowed in enumerate((False, True, False, True)):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            for _ in range(4):
                calls(x, w)
            assert tape.recorded == min(number + 1, 2)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_results_of_another_dtype_are_not_recorded(tape: Tape) -> None:
    """They are views of an input, or of another result."""
    for run in (lambda x: [x.view(torch.int32)], lambda x: [y := x + 1, y.view(torch.int32)]):
        calls, told = wrap(run, tape)
        x = torch.randn(4)
        for _ in range(5):
            assert all(torch.equal(a, b) for a, b in zip(calls(x), run(x), strict=True))
        assert told == ["RuntimeError: a result is another tensor's memory as another dtype"]


def test_numbers_that_are_equal_and_not_the_same(tape: Tape) -> None:
    calls, _ = wrap(lambda x, n: [x / n], tape)
    x = torch.ones(3)
    for step in range(12):
        n = (0.0, -0.0, math.nan, True)[step % 4]
        (made,) = calls(x, n)
        torch.testing.assert_close(made, x / n, equal_nan=True)
    assert tape.recorded == 4


def test_memory_of_a_result_that_is_gone(tape: Tape) -> None:
    calls, _ = wrap(double, tape)
    x, w = torch.randn(5), torch.randn(5)
    for step in range(8):
        x.fill_(step)
        made = list(calls(x, w))
        torch.testing.assert_close(made, double(x, w))
        if step == 4:
            made[0].untyped_storage().resize_(0)
        del made
    assert tape.recorded == 2


@pytest.mark.usefixtures("quick")
def test_residuals_that_the_program_looks_at_are_its_own(tape: Tape) -> None:
    calls, told = wrap(double, tape, automatic=True, seen=1, trains=True)
    x, w = torch.randn(5), torch.randn(5)
    for step in range(12):
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
        before = tape.replayed
        with hooks if step % 2 else contextlib.nullcontext():
            torch.testing.assert_close(list(calls(x, w)), double(x, w))
        assert not step % 2 or tape.replayed == before
    assert tape.recorded == 1 and not told


@pytest.mark.usefixtures("quick")
def test_recordings_of_inference_mode(tape: Tape) -> None:
    calls, told = wrap(double, tape, automatic=True)
    w = torch.randn(5)
    for step in range(12):
        x = torch.randn(5)
        with torch.inference_mode(step < 7):
            made = list(calls(x, w))
            torch.testing.assert_close(made, double(x, w))
        assert [m.is_inference() for m in made] == [step < 7] * 2
    assert tape.recorded == 1 and not told


def test_settings_are_read_however_they_were_made() -> None:
    """torch refuses some questions after its newer names have been used: a process of its own."""
    program = (
        "import torch; from jitney.backends.devices import library_settings\n"
        "before = library_settings(); torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "after = library_settings(); torch.backends.cudnn.conv.fp32_precision = 'ieee'\n"
        "assert before != after != library_settings()"
    )
    run_python("-c", program, check=True)
