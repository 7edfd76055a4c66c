"""Block sizes chosen by measuring: what ``mode="max-autotune"`` does for each kernel, once for each machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass

import torch
from rich.console import Console
from rich.progress import Progress

from jitney.cache.store import DiskCache
from jitney.lowering import NotLowered
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.tiles import OTHERS, USUAL, Tuning

BETTER = 0.97  # of the usual sizes' time: what a choice must reach, for times are not exact
Make = Callable[[Tuning, str], Code]


@dataclass(frozen=True)
class Room:
    """The memory of a buffer: its dtype, and how many elements it spans."""

    dtype: torch.dtype
    extent: int


# ``measure(codes, rooms)``: seconds that each takes, with memory for the buffers by name; None for what does not run.
Measure = Callable[[Sequence[Code], Mapping[str, Room]], Sequence[float | None]]


class Tuner:
    """Chooses block sizes.

    Args:
        measure: how long codes take.
        about: what choices depend on besides the code: the device, versions.
        cache: where choices are kept; None for nowhere.
        name: the user's function, for the progress that is shown on a terminal.
        kernels: how many there may be.
    """

    def __init__(self, measure: Measure, about: str, cache: DiskCache | None, name: str, kernels: int) -> None:
        self.measure = measure
        self.about = about
        self.cache = cache
        console = Console(stderr=True)
        self.progress = Progress(console=console, transient=True, disable=not console.is_terminal)
        self.task = self.progress.add_task(f"triton_gpu measures the kernels of {name}", total=kernels)
        self.chosen: list[Tuning] = []

    def best(self, make: Make, rooms: Mapping[str, Room]) -> Tuning:
        """The sizes with which a kernel is fastest.

        Args:
            make: ``make(tuning, name)``: its code.
            rooms: the buffers that the code reads and writes.
        """
        codes = candidates(make)
        key = self._key(codes, rooms)
        found = self._known(key, codes)
        if found is None:
            self.progress.start()
            found = self._measured(codes, rooms)
            if self.cache is not None:
                self.cache.store(key, json.dumps(astuple(found)).encode())
        self.progress.advance(self.task)
        self.chosen.append(found)
        return found

    def finish(self) -> None:
        """No more kernels come."""
        self.progress.stop()

    def _measured(self, codes: Mapping[Tuning, Code], rooms: Mapping[str, Room]) -> Tuning:
        if len(codes) == 1:
            return USUAL
        times = dict(zip(codes, self.measure(list(codes.values()), rooms), strict=True))
        usual = times[USUAL]
        rest = {tuning: t for tuning, t in times.items() if t is not None}
        if usual is None or not rest:
            return USUAL
        fastest = min(rest, key=lambda tuning: rest[tuning])
        return fastest if rest[fastest] < usual * BETTER else USUAL

    def _key(self, codes: Mapping[Tuning, Code], rooms: Mapping[str, Room]) -> str:
        sizes = {name: (str(room.dtype), room.extent) for name, room in rooms.items()}
        told = [self.about, repr(sizes), *(described(code) for code in codes.values())]
        return hashlib.sha256("\n\n".join(told).encode()).hexdigest()

    def _known(self, key: str, codes: Mapping[Tuning, Code]) -> Tuning | None:
        data = self.cache.load(key) if self.cache is not None else None
        if data is None:
            return None
        try:
            x, r, warps, many = json.loads(data)
            found = Tuning(x, r, warps, many)
        except (ValueError, TypeError):
            return None
        return found if found in codes else None


def candidates(make: Make) -> dict[Tuning, Code]:
    """The codes that differ, the usual one first."""
    made = {USUAL: make(USUAL, "t0")}
    seen = {_plain(made[USUAL], "t0")}
    for number, tuning in enumerate(OTHERS, 1):
        try:
            code = make(tuning, f"t{number}")
        except NotLowered:
            continue
        shown = _plain(code, f"t{number}")
        if shown not in seen:
            seen.add(shown)
            made[tuning] = code
    return made


def described(code: Code) -> str:
    """All that there is to a code, as text."""
    parts = [f"{f.text}{sorted(f.blocks.items())} {f.programs} {f.warps}" for f in code.functions]
    return "\n".join([*parts, *map(str, code.workspaces)])


def _plain(code: Code, name: str) -> str:
    return described(code).replace(f"def {name}", "def t")
