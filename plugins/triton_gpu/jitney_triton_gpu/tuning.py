"""Block sizes chosen by measuring: what ``mode="max-autotune"`` does for each kernel, once for each machine."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from jitney.cache.store import DiskCache
from jitney_lowering import NotLowered
from jitney_lowering.ir import Extern
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.tiles import OTHERS, USUAL, Tuning

if TYPE_CHECKING:
    from rich.progress import Progress

BETTER = 0.97  # of the usual sizes' time: what a choice must reach, for times are not exact
Make = Callable[[Tuning, str], Code]


@dataclass(frozen=True)
class Room:
    """The memory of a buffer: its dtype, and how many elements it spans."""

    dtype: torch.dtype
    extent: int


class Measure(Protocol):
    """Measures on a device, with memory for the buffers by name; None for what does not run there."""

    def codes(self, codes: Sequence[Code], rooms: Mapping[str, Room]) -> Sequence[float | None]:
        """Seconds that each of these takes."""

    def operator(self, call: Extern, codes: Sequence[Code], rooms: Mapping[str, Room]) -> float | None:
        """Seconds of an operator of torch's and of codes after it."""


@dataclass(frozen=True)
class Choice:
    """Block sizes, and how many seconds a kernel takes with them; None if nobody has measured."""

    tuning: Tuning
    seconds: float | None = None


def _progress() -> Progress:
    """A line on the terminal, if there is one; rich is imported late, for that draws one of Python's random numbers."""
    state = random.getstate()
    from rich.console import Console
    from rich.progress import Progress

    random.setstate(state)
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)


class Tuner:
    """Chooses block sizes.

    Args:
        measure: how long codes take.
        about: what choices depend on besides the code: the device, versions.
        cache: where choices are kept; None for nowhere.
        name: the user's function, for the progress that is shown on a terminal.
    """

    def __init__(self, measure: Measure, about: str, cache: DiskCache | None, name: str) -> None:
        self.measure = measure
        self.about = about
        self.cache = cache
        self.progress = _progress()
        self.task = self.progress.add_task(f"triton_gpu measures kernels of {name}", total=None)
        self.chosen: list[Tuning] = []
        self._seen: dict[str, Any] = {}

    def best(self, make: Make, rooms: Mapping[str, Room]) -> Choice:
        """The sizes with which a kernel is fastest.

        Args:
            make: ``make(tuning, name)``: its code.
            rooms: the buffers that the code reads and writes.
        """
        codes = candidates(make)
        key = self._key("sizes", [described(code) for code in codes.values()], rooms)
        found = self._known(key, codes)
        if found is None:
            self.progress.start()
            found = self._measured(codes, rooms)
            self._keep(key, [*astuple(found.tuning), found.seconds], unmeasured=found.seconds is None)
        self.progress.advance(self.task)
        self.chosen.append(found.tuning)
        return found

    def operator(self, call: Extern, codes: Sequence[Code], rooms: Mapping[str, Room]) -> float | None:
        """How many seconds an operator of torch's takes, and codes after it."""
        order = {name: f"#{n}" for n, name in enumerate(rooms)}
        given = [repr((str(call.target), call.args, call.kwargs)), *map(described, codes)]
        texts = [re.sub(r"\w+", lambda word: order.get(word[0], word[0]), text) for text in given]
        key = self._key("operator", [torch.__version__, *texts], {order[name]: room for name, room in rooms.items()})
        found = self._loaded(key)
        if isinstance(found, float):
            return found
        self.progress.start()
        seconds = self.measure.operator(call, codes, rooms)
        self._keep(key, seconds, unmeasured=seconds is None)
        return seconds

    def __enter__(self) -> Tuner:
        """Show progress from the first measurement on."""
        return self

    def __exit__(self, *error: object) -> None:
        """No more kernels come."""
        self.progress.stop()

    def _measured(self, codes: Mapping[Tuning, Code], rooms: Mapping[str, Room]) -> Choice:
        times = dict(zip(codes, self.measure.codes(list(codes.values()), rooms), strict=True))
        usual = times[USUAL]
        rest = {tuning: t for tuning, t in times.items() if t is not None}
        if usual is None or not rest:
            return Choice(USUAL)
        fastest = min(rest, key=lambda tuning: rest[tuning])
        return Choice(fastest, rest[fastest]) if rest[fastest] < usual * BETTER else Choice(USUAL, usual)

    def _key(self, what: str, texts: Sequence[str], rooms: Mapping[str, Room]) -> str:
        sizes = {name: (str(room.dtype), room.extent) for name, room in rooms.items()}
        return hashlib.sha256("\n\n".join([what, self.about, repr(sizes), *texts]).encode()).hexdigest()

    def _known(self, key: str, codes: Mapping[Tuning, Code]) -> Choice | None:
        found = self._loaded(key)
        try:
            *sizes, seconds = found
            tuning = Tuning(*sizes)
        except (ValueError, TypeError):
            return None
        return Choice(tuning, seconds) if tuning in codes and isinstance(seconds, (float, NoneType)) else None

    def _loaded(self, key: str) -> Any:
        """What was measured before, or None."""
        if key in self._seen:
            return self._seen[key]
        data = self.cache.load(key) if self.cache is not None else None
        try:
            return None if data is None else json.loads(data)
        except ValueError:
            return None

    def _keep(self, key: str, value: Any, *, unmeasured: bool) -> None:
        """For this process, and on disk unless nothing could be measured: the next one may have memory enough."""
        self._seen[key] = value
        if self.cache is not None and not unmeasured:
            self.cache.store(key, json.dumps(value).encode())


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
