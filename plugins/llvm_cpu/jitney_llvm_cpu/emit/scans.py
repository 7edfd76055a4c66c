"""Scans: the running results in the lanes of one vector after the other."""

from __future__ import annotations

from jitney_llvm_cpu.emit.builder import Function, Reg, literal, typed
from jitney_llvm_cpu.emit.dtypes import REGISTER
from jitney_llvm_cpu.emit.reductions import Reduction, State


class Running(Reduction):
    """What a scan has come to: one number, whatever the vectors' width."""

    @property
    def loses(self) -> bool:
        """Its chain is one that nobody may cut."""
        return False

    def begin(self, width: int) -> State:
        """The state before the first value."""
        return super().begin(1)

    def results(self, f: Function, before: State, value: Reg, mask: Reg | None) -> tuple[Reg, State]:
        """(the running result in each lane, the state after the last one); lanes without ``mask`` count for nothing.

        Lanes are put together in steps of 1, 2, 4, ...; the chain from vector to vector is one operation long.
        """
        width = value.type.width
        neutral = literal(self.identity, typed(REGISTER[self.dtype], width))
        if mask is not None:
            value = f.select(mask, value, neutral)
        if width == 1:
            after = self.merge(f, before, [value])
            return after[0], after
        shift = 1
        while shift < width:
            moved = f.shuffle(value, neutral, [*range(width, width + shift), *range(width - shift)])
            value = self.merge(f, [moved], [value])[0]
            shift *= 2
        after = self.merge(f, before, [f.extract(value, width - 1)])
        return self.merge(f, [f.splat(before[0], width)], [value])[0], after
