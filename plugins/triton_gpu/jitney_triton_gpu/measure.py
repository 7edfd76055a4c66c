"""How long kernels and operators take on a device."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from triton.testing import do_bench

from jitney.backends.devices import raw_stream
from jitney_lowering.ir import FLOAT8, Extern, Strided
from jitney_triton_gpu.code import Code, Function
from jitney_triton_gpu.failures import NotCompiled
from jitney_triton_gpu.module import load
from jitney_triton_gpu.tuning import Room

WARMUP_MS, MEASURE_MS = 3, 15
Launchers = Mapping[str, Callable[..., None]]


class Device:
    """A ``tuning.Measure``.

    Args:
        device: where.
        header: the imports of a module of Triton code.
        relaxed: may a product and a sum be rounded once?
    """

    def __init__(self, device: torch.device, header: str, relaxed: bool) -> None:
        self.device = device
        self.header = header
        self.relaxed = relaxed

    def codes(self, codes: Sequence[Code], rooms: Mapping[str, Room]) -> Sequence[float | None]:
        """Seconds that each of these takes."""
        made = self._compiled(codes)
        try:
            memory = self._memory(rooms)
            runs = [self._launches(code, made, memory) for code in codes]
            return [None if run is None else self._seconds(run) for run in runs]
        except torch.OutOfMemoryError:  # the program itself may have room enough
            return [None] * len(codes)

    def operator(self, call: Extern, codes: Sequence[Code], rooms: Mapping[str, Room]) -> float | None:
        """Seconds of an operator of torch's and of codes after it."""
        made = self._compiled(codes)
        try:
            memory = self._memory(rooms)
            args, kwargs = _tensors((call.args, dict(call.kwargs)), memory)
            runs = [self._launches(code, made, memory) for code in codes]
            if None in runs:
                return None
            return self._seconds(lambda: (call.target(*args, **kwargs), *(run() for run in runs if run)))
        except torch.OutOfMemoryError:
            return None

    def _compiled(self, codes: Sequence[Code]) -> Launchers:
        """Launchers by function name, without those that do not compile. Random numbers are no wrong indices."""
        functions = {f.name: replace(f, asserts=False) for code in codes for f in code.functions}
        while functions:
            try:
                source = _source(self.header, functions)
                with contextlib.redirect_stdout(io.StringIO()):  # Triton prints code that its assembler refuses
                    return load(source, "kernels that are measured", functions, self.device, self.relaxed)
            except NotCompiled as refusal:
                functions = {name: f for name, f in functions.items() if name not in refusal.errors}
        return {}

    def _memory(self, rooms: Mapping[str, Room]) -> dict[str, torch.Tensor]:
        """Random numbers, for a product of zeros takes less power and so less time; integers are places: zeros.

        They are a generator's own: the program's random numbers stay what they are.
        """
        made = {}
        own = torch.Generator(self.device).manual_seed(0)
        for name, room in rooms.items():
            made[name] = torch.zeros(room.extent, dtype=room.dtype, device=self.device)
            if room.dtype in FLOAT8:
                made[name].view(torch.uint8).random_(0x40, generator=own)
            elif room.dtype.is_floating_point:
                made[name].uniform_(generator=own)
        return made

    def _launches(self, code: Code, made: Launchers, memory: Mapping[str, torch.Tensor]) -> Callable[[], None] | None:
        if any(f.name not in made for f in code.functions):
            return None
        works = {w.name: torch.empty(w.count.value or 0, dtype=w.dtype, device=self.device) for w in code.workspaces}
        places = {name: x.data_ptr() for name, x in {**memory, **works}.items()}
        stream = raw_stream(self.device.index)
        calls = []
        for f in code.functions:
            given = [places[p.name if p.kind == "workspace" else str(p.of)] for p in f.parameters]
            calls.append((made[f.name], (f.programs.value or 0, stream, *given)))

        def run(works: Any = works) -> None:
            for launch, arguments in calls:
                launch(*arguments)

        return run

    def _seconds(self, run: Callable[[], Any]) -> float:
        """The median time, with an empty cache each time."""
        with torch.cuda.device(self.device):
            found: float = do_bench(run, warmup=WARMUP_MS, rep=MEASURE_MS, return_mode="median")
        return found / 1000


def _source(header: str, functions: Mapping[str, Function]) -> str:
    return header + "".join(f"\n\n{f.text}" for f in functions.values())


def _tensors(value: Any, memory: Mapping[str, torch.Tensor]) -> Any:
    """Arguments of an operator, with tensors in this memory."""
    if isinstance(value, Strided):
        sizes, strides = ([n.value or 0 for n in numbers] for numbers in (value.size, value.stride))
        return memory[value.buffer].as_strided(sizes, strides, value.offset.value or 0)
    if isinstance(value, dict):
        return {key: _tensors(item, memory) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_tensors(item, memory) for item in value)
    return value
