"""How long kernels take on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from triton.testing import do_bench

from jitney.devices import raw_stream
from jitney_triton_gpu.code import Code, Function
from jitney_triton_gpu.failures import NotCompiled
from jitney_triton_gpu.module import load
from jitney_triton_gpu.tuning import Room

WARMUP_MS, MEASURE_MS = 3, 15


def on_device(device: torch.device, header: str, relaxed: bool) -> Callable[..., Sequence[float | None]]:
    """``measure(codes, rooms)``; see ``tuning.Measure``.

    Args:
        device: where.
        header: the imports of a module of Triton code.
        relaxed: may a product and a sum be rounded once?
    """

    def measure(codes: Sequence[Code], rooms: Mapping[str, Room]) -> Sequence[float | None]:
        made = compiled(codes, header, device, relaxed)
        try:
            memory = {name: torch.zeros(room.extent, dtype=room.dtype, device=device) for name, room in rooms.items()}
            return [None if code is None else seconds(code, made, memory, device) for code in _those(codes, made)]
        except torch.OutOfMemoryError:  # the program itself may have room enough
            return [None] * len(codes)

    return measure


def compiled(
    codes: Sequence[Code], header: str, device: torch.device, relaxed: bool
) -> Mapping[str, Callable[..., None]]:
    """Launchers by function name, without those of codes that do not compile."""
    functions = {f.name: f for code in codes for f in code.functions}
    while functions:
        try:
            return load(_source(header, functions), "kernels that are measured", functions, device, relaxed)
        except NotCompiled as refusal:
            functions = {name: f for name, f in functions.items() if name not in refusal.errors}
    return {}


def _source(header: str, functions: Mapping[str, Function]) -> str:
    return header + "".join(f"\n\n{f.text}" for f in functions.values())


def _those(codes: Sequence[Code], made: Mapping[str, Callable[..., None]]) -> list[Code | None]:
    return [code if all(f.name in made for f in code.functions) else None for code in codes]


def seconds(
    code: Code, made: Mapping[str, Callable[..., None]], memory: Mapping[str, torch.Tensor], device: torch.device
) -> float:
    """The median time of a code, with an empty cache each time."""
    works = {w.name: torch.empty(w.count.value or 0, dtype=w.dtype, device=device) for w in code.workspaces}
    places = {name: x.data_ptr() for name, x in {**memory, **works}.items()}
    stream = raw_stream(device.index)
    calls = []
    for f in code.functions:
        given = [places[p.name if p.kind == "workspace" else str(p.of)] for p in f.parameters]
        calls.append((made[f.name], (f.programs.value or 0, stream, *given)))

    def run() -> None:
        for launch, arguments in calls:
            launch(*arguments)

    with torch.cuda.device(device):
        found: float = do_bench(run, warmup=WARMUP_MS, rep=MEASURE_MS, return_mode="median")
    return found / 1000
