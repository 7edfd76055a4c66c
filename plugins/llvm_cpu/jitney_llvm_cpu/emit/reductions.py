"""Reductions in registers: how each kind begins, takes one more value, merges, and ends.

A state is a list of registers: the accumulator, and for ``argmax`` and ``argmin`` the position. float16 and bfloat16
accumulate in float32 and are rounded at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jitney_llvm_cpu.emit import scalars
from jitney_llvm_cpu.emit.builder import Function, Reg, literal, typed
from jitney_llvm_cpu.emit.dtypes import REGISTER, rounded
from jitney_llvm_cpu.emit.scalars import Machine
from jitney_lowering.ir import HALVES, identity

State = list[Reg]

# kind -> the operation that merges two
MERGE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


@dataclass(frozen=True)
class Reduction:
    """One reduction of values of ``dtype``.

    Args:
        kind: see ``loops.REDUCTIONS``.
        dtype: of the values.
        machine: for whom.
        narrow: positions fit into 32 bits.
        rising: each position is greater than the one before it in the same accumulator.
    """

    kind: str
    dtype: torch.dtype
    machine: Machine
    narrow: bool = False
    rising: bool = False

    @property
    def positional(self) -> bool:
        """Is the result a position?"""
        return self.kind.startswith("arg")

    @property
    def position(self) -> str:
        """The type of a position, in LLVM's words."""
        return "i32" if self.narrow else "i64"

    @property
    def loses(self) -> bool:
        """Does a long chain of it lose more to rounding than a short one?"""
        return self.kind == "sum" and self.dtype.is_floating_point

    @property
    def held(self) -> torch.dtype:
        """The accumulator's dtype."""
        return torch.float32 if self.dtype in HALVES else self.dtype

    @property
    def identity(self) -> bool | int | float:
        """The number that changes nothing."""
        return identity(self.kind, self.dtype)

    def begin(self, width: int) -> State:
        """The state before the first value."""
        first = literal(self.identity, typed(REGISTER[self.dtype], width))
        if not self.positional:
            return [first]
        return [first, literal(2**31 - 1 if self.narrow else 2**63 - 1, typed(self.position, width))]

    def step(self, f: Function, state: State, value: Reg, position: Reg | None, mask: Reg | None) -> State:
        """One value more in each lane that the mask names (None: in all)."""
        if mask is not None:
            neutral = self.begin(value.type.width)
            value = f.select(mask, value, neutral[0])
            if position is not None:
                position = f.select(mask, position, neutral[1])
        if position is None:
            return self.merge(f, state, [value])
        takes = self._wins(f, state[0], value) if self.rising else self._wins_or_ties(f, state, [value, position])
        return [f.select(takes, value, state[0]), f.select(takes, position, state[1])]

    def merge(self, f: Function, a: State, b: State) -> State:
        """Two states of equal width as one."""
        if self.positional:
            takes = self._wins_or_ties(f, a, b)
            return [f.select(takes, new, old) for new, old in zip(b, a, strict=True)]
        dtypes = [self.held, self.held]
        # The operation lets a nan through whichever side it is on; the later value comes first, it is the shorter way.
        return [scalars.apply(f, self.machine, MERGE[self.kind], [b[0], a[0]], dtypes, self.held)]

    def _wins(self, f: Function, best: Reg, new: Reg) -> Reg:
        """Is a value greater (or lesser) than the best so far, or a nan where that is none?"""
        sign = "gt" if self.kind == "argmax" else "lt"
        if self.dtype.is_floating_point:
            return f.binary("and", f.compare(f"fcmp u{sign}", new, best), f.compare("fcmp ord", best, best))
        return f.compare(f"icmp {'u' if self.dtype in (torch.uint8, torch.bool) else 's'}{sign}", new, best)

    def _wins_or_ties(self, f: Function, a: State, b: State) -> Reg:
        """The same, or is it equal and at a lower position?"""
        (best, at), (new, there) = a, b
        if self.dtype.is_floating_point:
            neither = f.binary("and", f.compare("fcmp uno", new, new), f.compare("fcmp uno", best, best))
            ties = f.binary("or", f.compare("fcmp oeq", new, best), neither)
        else:
            ties = f.compare("icmp eq", new, best)
        earlier = f.compare("icmp ult", there, at)
        return f.binary("or", self._wins(f, best, new), f.binary("and", ties, earlier))

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
            # Where nothing was greater than the least number of all, the first value is it.
            none = f.compare("icmp eq", state[1], self.begin(1)[1])
            return f.convert("sext", f.select(none, literal(0, state[1].type), state[1]), "i64")
        value = state[0]
        return rounded(f, value, self.dtype) if self.dtype in HALVES else value


def _half(f: Function, a: Reg, start: int, width: int) -> Reg:
    return f.extract(a, start) if width == 1 else f.shuffle(a, None, range(start, start + width))
