"""Block sizes that are measured: each gives the same numbers, the fastest is taken and remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import jitney
from jitney.cache.store import DiskCache
from jitney_lowering.ir import Extern
from jitney_triton_gpu import compiler
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.launcher import HEADER
from jitney_triton_gpu.measure import Device
from jitney_triton_gpu.tiles import OTHERS, USUAL, Tuning
from jitney_triton_gpu.tuning import Choice, Make, Room, Tuner

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Chosen(Tuner):
    """Takes one choice, wherever it makes a difference."""

    def __init__(self, tuning: Tuning) -> None:
        super().__init__(Clock(0), "", None, "test")
        self.tuning = tuning

    def best(self, make: Make, rooms: Mapping[str, Room]) -> Choice:
        """What was chosen."""
        self.chosen.append(self.tuning)
        return Choice(self.tuning)


def layer_norm_training(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = F.layer_norm(x * 2, x.shape[-1:], w, w)
    return torch.autograd.grad(y.square().sum(), [x, w])


PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "pointwise": lambda x, w: F.gelu(x) + x.cos(),
    "a row for all": lambda x, w: x * w + 1,
    "transposed": lambda x, w: (x.t() * 2 + 1).contiguous(),
    "softmax": lambda x, w: (x * w).softmax(-1),
    "column sums": lambda x, w: (x * w).sum(0),
    "everything": lambda x, w: (x.exp() * w).sum(),
    "across": lambda x, w: x.view(2, 4, -1).softmax(1),
    "layer norm": layer_norm_training,
}


def label(tuning: Tuning) -> str:
    return " ".join(f"{name}={n}" for name, n in vars(tuning).items() if n)


# One for each of the sizes, either way, and some of several.
TRIED = [
    *(Tuning(**{name: times}) for name in ("x", "r", "warps", "many") for times in (1, -1)),
    Tuning(x=2, warps=1), Tuning(x=2, r=-2, many=1), Tuning(r=-1, many=1, stages=3),
]  # fmt: skip


@pytest.mark.parametrize("tuning", TRIED, ids=label)
def test_each_choice_gives_the_same_numbers(tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Chosen(tuning)
    monkeypatch.setattr(compiler, "tuner_of", lambda *args: chosen)
    for n, (name, fn) in enumerate(PROGRAMS.items()):
        generator = torch.Generator().manual_seed(n)
        x = torch.randn(8, 520, generator=generator).to(DEVICE).requires_grad_(name == "layer norm")
        w = torch.randn(520, generator=generator).to(DEVICE).requires_grad_(name == "layer norm")
        found = jitney.compile(fn, backend="triton_gpu", mode="max-autotune-no-cudagraphs")(x, w)
        torch.testing.assert_close(found, fn(x, w), rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
    assert len(chosen.chosen) >= len(PROGRAMS)


class Clock:
    """Times that are told, instead of measured."""

    def __init__(self, fastest: int, usual: float = 1.0, theirs: float | None = None) -> None:
        self.fastest = fastest
        self.theirs = theirs
        self.usual = usual
        self.calls = 0

    def operator(self, call: Extern, codes: Sequence[Code], rooms: Mapping[str, Room]) -> float | None:
        return self.theirs

    def codes(self, codes: Sequence[Code], rooms: Mapping[str, Room]) -> list[float | None]:
        self.calls += 1
        times: list[float | None] = [2.0] * len(codes)
        times[0], times[-1] = self.usual, None
        times[self.fastest] = 0.5
        return times


def tuned(clock: Clock, monkeypatch: pytest.MonkeyPatch, cache: DiskCache | None, scale: float = 2.0) -> list[Tuning]:
    tuner = Tuner(clock, "a device", cache, "test")
    monkeypatch.setattr(compiler, "tuner_of", lambda *args: tuner)
    jitney.reset()
    x = torch.arange(5000.0, device=DEVICE)
    fn = jitney.compile(lambda x: (x * scale).cos(), backend="triton_gpu", mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(fn(x), (x * scale).cos(), rtol=1e-4, atol=1e-4)
    return tuner.chosen


def test_the_fastest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = tuned(Clock(2), monkeypatch, None)
    assert found in OTHERS


def test_what_is_hardly_faster_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuned(Clock(2, usual=0.51), monkeypatch, None) == [USUAL]


def test_choices_are_remembered_for_the_same_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "kept")
    clock = Clock(2)
    first = tuned(clock, monkeypatch, cache)
    assert tuned(clock, monkeypatch, cache) == first
    assert clock.calls == 1
    tuned(clock, monkeypatch, cache, scale=3.0)
    assert clock.calls == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'["a", 0, 0, 0, 0, 1.0]', b"[9, 9, 9, 9, 9, 1.0]"])
def test_a_choice_on_disk_that_is_none_is_measured_again(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = DiskCache(tmp_path / "kept")
    clock = Clock(2)
    first = tuned(clock, monkeypatch, cache)
    (file,) = (tmp_path / "kept").iterdir()
    cache.store(file.stem, content)
    assert tuned(clock, monkeypatch, cache) == first
    assert clock.calls == 2


class Full(Clock):
    """There is no memory to measure in."""

    def codes(self, codes: Sequence[Code], rooms: Mapping[str, Room]) -> list[float | None]:
        self.calls += 1
        return [None] * len(codes)


def test_what_could_not_be_measured_is_measured_by_the_next_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache, full, clock = DiskCache(tmp_path / "kept"), Full(0), Clock(2)
    assert tuned(full, monkeypatch, cache) == [USUAL]
    (found,) = tuned(clock, monkeypatch, cache)
    assert (full.calls, clock.calls) == (1, 1) and found in OTHERS


def test_measuring_draws_none_of_the_programs_random_numbers() -> None:
    rooms = {"x": Room(torch.bfloat16, 8), "n": Room(torch.int64, 3)}
    device = torch.device(DEVICE)
    states = [torch.cuda.get_rng_state(device) if DEVICE == "cuda" else torch.get_rng_state()]
    memory = Device(device, HEADER, relaxed=False)._memory(rooms)
    states.append(torch.cuda.get_rng_state(device) if DEVICE == "cuda" else torch.get_rng_state())
    assert torch.equal(*states)
    assert memory["x"].unique().numel() > 1 and not memory["n"].any()
