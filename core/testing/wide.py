"""Is a number wrong, or rounded otherwise? A program's run in float64 tells, and runs with roundings shaken.

Where a number is far from float64's, the program may still be one that magnifies roundings, or that decides by them
(``floor``, ``argmax``, a comparison). Then it is run in float64 some times more, each result of an operator changed by
a random rounding (stochastic arithmetic, as in Parker's Monte Carlo arithmetic): what moves then, nobody can expect to
be eager's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from jitney.debug.doubles import TOLERANCES, Doubles, InDoubles, mapped, too_far

RUNS = 6  # with roundings shaken
SPREAD = 4.0  # how far beyond them a result may be
ULPS = 1.0  # how much one operator's result is changed, in units of its dtype
EXACT, DEFAULT = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps
Paths = dict[str, torch.Tensor]


class Shaken(Doubles):
    """Runs operators in float64, and changes what they return by a random rounding of the dtype that it has in eager.

    That dtype is known of each memory: an operator's result has the finest of its arguments, unless it is told another.
    """

    def __init__(self, draws: list[Any], seed: int) -> None:
        super().__init__(draws)
        self.units: dict[int, float] = {}
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operator."""
        unit = self._unit((args, kwargs or {}))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if any(returned.alias_info is not None for returned in func._schema.returns):
            return result  # a view, or what it wrote to
        return mapped(result, lambda value: self._shaken(value, unit))

    def _unit(self, given: Any) -> float:
        """The rounding of the dtype that the result has in eager."""
        found, asked = [], []

        def look(value: Any) -> None:
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                own = torch.finfo(value.dtype).eps
                known = self.units.get(value.untyped_storage().data_ptr(), DEFAULT)
                found.append(own if value.dtype is not torch.float64 else known)
            elif isinstance(value, torch.dtype) and value.is_floating_point:
                asked.append(torch.finfo(value).eps)

        mapped(given, look)
        finest = min(found, default=None)
        if asked:  # float64 may be asked for since a tensor in float64 is to be like another
            return asked[0] if asked[0] > EXACT or finest is None else finest
        return DEFAULT if finest is None else finest

    def _shaken(self, value: Any, unit: float) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        noise = torch.rand(value.shape, dtype=value.dtype, generator=self.generator).to(value.device)
        moved = torch.where(value.isfinite(), value * (1 + ULPS * unit * (2 * noise - 1)), value)
        self.units[moved.untyped_storage().data_ptr()] = unit
        return moved


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
        return [self.run(_block(Shaken(self.draws, seed))) or {} for seed in range(RUNS)]

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
        return "" if _within(found, eager, exact, [o for o in others if o is not None]) else reason

    def _is_unsteady(self, path: str) -> bool:
        """Is there something at this place in some runs only?"""
        return 0 < sum(path in paths for paths in self.shaken) < RUNS


def _block(mode: Shaken) -> InDoubles:
    block = InDoubles([])
    block.mode = mode
    return block


def _within(found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, shaken: list[torch.Tensor]) -> bool:
    """Is every element among what roundings may make of it?"""
    if not found.is_floating_point():
        if found.is_complex():
            return False
        moves = functools.reduce(torch.logical_or, [other != exact for other in shaken])
        moves |= eager != exact
        return bool(((found == eager) | moves).all())
    result, own, best = found.double(), eager.double(), exact.double()
    spread = functools.reduce(torch.maximum, [(other.double() - best).abs() for other in shaken])
    spread = torch.maximum(spread, (own - best).abs())
    size = best[best.isfinite()].square().mean().sqrt().nan_to_num() if best.numel() else best.sum()
    each = TOLERANCES.get(found.dtype, TOLERANCES[torch.float32]).each
    near = (result - best).abs() <= SPREAD * spread + each * (best.abs() + size) / 4
    same = (result == own) | (result.isnan() & own.isnan())
    odd = functools.reduce(torch.logical_or, [_sort(other) != _sort(best) for other in (own, *shaken)])
    return bool((near | same | odd).all())


def _sort(tensor: torch.Tensor) -> torch.Tensor:
    """0 for what is finite, 1 for NaN, 2 and 3 for infinities: if that differs from run to run, nobody can say."""
    return tensor.isnan() * 1 + tensor.isposinf() * 2 + tensor.isneginf() * 3
