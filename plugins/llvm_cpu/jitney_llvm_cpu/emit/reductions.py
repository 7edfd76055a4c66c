"""Reductions in registers: how each kind begins, takes one more value, merges, and ends.

A state is a list of registers: the accumulator, and for ``argmax`` and ``argmin`` the position. float16 and bfloat16
accumulate in float32 and are rounded at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jitney_llvm_cpu.emit import scalars
from jitney_llvm_cpu.emit.dtypes import HALVES, REGISTER, rounded
from jitney_llvm_cpu.emit.scalars import Machine
from jitney_llvm_cpu.emit.text import Function, Reg, literal, typed

State = list[Reg]

# kind -> the operation that merges two
MERGE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
_LAST = 2**63 - 1


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """The number that changes nothing; also what an empty reduction gives."""
    if kind in ("sum", "any"):
        return False if dtype is torch.bool else 0
    if kind in ("prod", "all"):
        return True if dtype is torch.bool else 1
    least = kind.endswith("max")
    if dtype.is_floating_point:
        return -math.inf if least else math.inf
    if dtype is torch.bool:
        return not least
    limits = torch.iinfo(dtype)
    return limits.min if least else limits.max


@dataclass(frozen=True)
class Reduction:
    """One reduction of values of ``dtype``."""

    kind: str
    dtype: torch.dtype
    machine: Machine

    @property
    def positional(self) -> bool:
        """Is the result a position?"""
        return self.kind.startswith("arg")

    @property
    def loses(self) -> bool:
        """Does a long chain of it lose more to rounding than a short one?"""
        return self.kind == "sum" and self.dtype.is_floating_point

    @property
    def held(self) -> torch.dtype:
        """The accumulator's dtype."""
        return torch.float32 if self.dtype in HALVES else self.dtype

    def begin(self, width: int) -> State:
        """The state before the first value."""
        first = literal(identity(self.kind, self.dtype), typed(REGISTER[self.dtype], width))
        return [first, literal(_LAST, typed("i64", width))] if self.positional else [first]

    def step(self, f: Function, state: State, value: Reg, position: Reg | None, mask: Reg | None) -> State:
        """One value more in each lane that the mask names (None: in all)."""
        if mask is not None:
            neutral = self.begin(value.type.width)
            value = f.select(mask, value, neutral[0])
            if position is not None:
                position = f.select(mask, position, neutral[1])
        return self.merge(f, state, [value] if position is None else [value, position])

    def merge(self, f: Function, a: State, b: State) -> State:
        """Two states of equal width as one."""
        if self.positional:
            return self._better(f, a, b)
        dtypes = [self.held, self.held]
        # The operation lets a nan through whichever side it is on; the later value comes first, it is the shorter way.
        return [scalars.apply(f, self.machine, MERGE[self.kind], [b[0], a[0]], dtypes, self.held)]

    def _better(self, f: Function, a: State, b: State) -> State:
        """The greater (or lesser) one, a nan before all; of equals the one with the lower position."""
        (best, at), (new, there) = a, b
        earlier = f.compare("icmp ult", there, at)
        sign = "gt" if self.kind == "argmax" else "lt"
        if self.dtype.is_floating_point:
            new_nan, best_nan = f.compare("fcmp uno", new, new), f.compare("fcmp uno", best, best)
            wins = f.binary("or", f.compare(f"fcmp o{sign}", new, best), _and_not(f, new_nan, best_nan))
            ties = f.binary("or", f.compare("fcmp oeq", new, best), f.binary("and", new_nan, best_nan))
        else:
            unsigned = self.dtype in (torch.uint8, torch.bool)
            wins = f.compare(f"icmp {'u' if unsigned else 's'}{sign}", new, best)
            ties = f.compare("icmp eq", new, best)
        takes = f.binary("or", wins, f.binary("and", ties, earlier))
        return [f.select(takes, new, best), f.select(takes, there, at)]

    def across(self, f: Function, states: Sequence[State]) -> State:
        """All lanes of several accumulators as one scalar state."""
        parts = list(states)
        while len(parts) > 1:
            odd = parts[len(parts) & ~1 :]
            parts = [self.merge(f, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)] + odd
        state = parts[0]
        width = state[0].type.width
        while width > 1:
            width //= 2
            low, high = ([_half(f, r, start, width) for r in state] for start in (0, width))
            state = self.merge(f, low, high)
        return state

    def result(self, f: Function, state: State) -> Reg:
        """What a scalar state comes to, as the result's dtype is held."""
        if self.positional:
            return state[1]
        value = state[0]
        return rounded(f, value, self.dtype) if self.dtype in HALVES else value

    def empty(self) -> Reg:
        """The result of no iterations."""
        if self.positional:
            return literal(0, typed("i64"))
        return literal(identity(self.kind, self.dtype), typed(REGISTER[self.dtype]))


def _and_not(f: Function, a: Reg, b: Reg) -> Reg:
    return f.binary("and", a, f.binary("xor", b, literal(1, b.type)))


def _half(f: Function, a: Reg, start: int, width: int) -> Reg:
    return f.extract(a, start) if width == 1 else f.shuffle(a, None, range(start, start + width))
