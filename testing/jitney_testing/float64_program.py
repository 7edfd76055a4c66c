"""Is a number of a program wrong, or rounded otherwise? Its run in float64 tells, and runs with roundings shaken."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from jitney_tools.compare.float64_oracle import InDoubles, too_far
from jitney_tools.compare.rounding_noise import RUNS, InShaken, within

Paths = dict[str, torch.Tensor]


class Truth:
    """The numbers of a program in float64, by path, made when they are first asked for.

    Args:
        run: ``run(mode)`` runs the program eagerly under a block, and returns its numbers by path.
        record: the same run as eager's, returning what random operators drew.
    """

    def __init__(self, run: Callable[[Any], Paths | None], record: Callable[[], list[Any]]) -> None:
        self.run, self.record = run, record

    @functools.cached_property
    def draws(self) -> list[Any]:
        """What random operators drew in eager."""
        return self.record()

    @functools.cached_property
    def exact(self) -> Paths:
        """The numbers in float64; none if the program does not run so."""
        return self.run(InDoubles(self.draws)) or {}

    @functools.cached_property
    def shaken(self) -> list[Paths]:
        """The numbers of the runs with other roundings; one that does not end has none."""
        return [self.run(InShaken(self.draws, seed)) or {} for seed in range(RUNS)]

    def wrong(self, path: str, found: torch.Tensor, eager: torch.Tensor) -> str:
        """Why a number is wrong; empty if rounding explains it."""
        exact = self.exact.get(path)
        reason = too_far(found, eager, exact)
        if not reason:
            return ""
        if exact is None or exact.shape != eager.shape:
            return "" if self._is_unsteady(path) else reason
        others = [paths.get(path) for paths in self.shaken]
        if any(other is None or other.shape != exact.shape for other in others):
            return ""  # which way it goes, rounding decides
        return "" if within(found, eager, exact, [o for o in others if o is not None]) else reason

    def has_other_shapes(self, path: str, shape: torch.Size) -> bool:
        """Is what is there of another shape than in eager, in float64 or with other roundings?"""
        return any(path in paths and paths[path].shape != shape for paths in (self.exact, *self.shaken))

    def _is_unsteady(self, path: str) -> bool:
        """Is there something at this place in some runs only?"""
        return 0 < sum(path in paths for paths in self.shaken) < RUNS
