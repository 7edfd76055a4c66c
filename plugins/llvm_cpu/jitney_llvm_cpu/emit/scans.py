"""Scans: the running results in the lanes of one vector after the other."""

from __future__ import annotations

from jitney_llvm_cpu.emit import scalars
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

    def merge(self, f: Function, a: State, b: State) -> State:
        """Two states of equal width as one."""
        if self.kind != "logsumexp":
            return super().merge(f, a, b)
        return [self._logaddexp(f, a[0], b[0])]

    def _logaddexp(self, f: Function, a: Reg, b: Reg) -> Reg:
        """The greater and what the lesser adds to it; of equal infinities that."""

        def made(op: str, *given: Reg) -> Reg:
            return scalars.apply(f, self.machine, op, list(given), [self.held] * len(given), self.held)

        high, low = made("maximum", a, b), made("minimum", a, b)
        more = made("log1p", made("exp", made("sub", low, high)))
        infinite = f.compare("fcmp uno", made("sub", high, high), made("sub", high, high))
        alike = f.binary("and", infinite, f.compare("fcmp oeq", high, low))
        return f.select(alike, high, made("add", high, more))

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
        if self.kind == "prod" and self.dtype.is_floating_point:
            return self._one_by_one(f, before, value)
        shift = 1
        while shift < width:
            moved = f.shuffle(value, neutral, [*range(width, width + shift), *range(width - shift)])
            value = self.merge(f, [moved], [value])[0]
            shift *= 2
        after = self.merge(f, before, [f.extract(value, width - 1)])
        return self.merge(f, [f.splat(before[0], width)], [value])[0], after

    def _one_by_one(self, f: Function, before: State, value: Reg) -> tuple[Reg, State]:
        """In order: a product of some lanes may leave the range though no result does."""
        state, found = before, value
        for lane in range(value.type.width):
            state = self.merge(f, state, [f.extract(value, lane)])
            found = f.insert(found, state[0], lane, value.type.width)
        return found, state
