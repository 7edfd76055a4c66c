"""How long calls take, beside each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any


def interleaved(candidates: Sequence[Callable[..., Any]], inputs: tuple[Any, ...], rounds: int) -> list[float]:
    """Seconds per call of each, medians; the candidates take turns, so that noise hits all alike."""
    times: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for samples, candidate in zip(times, candidates, strict=True):
            begin = time.perf_counter()
            candidate(*inputs)
            samples.append(time.perf_counter() - begin)
    return [statistics.median(samples) for samples in times]
