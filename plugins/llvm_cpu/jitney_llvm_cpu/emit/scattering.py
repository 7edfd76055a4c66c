"""Stores and sums at computed places, in the order in which eager does them.

Each thread goes through all of it and does what goes to its own part of memory: parts are dealt out by a hash of that
share of a place which is known before the innermost loop. So no two threads write to one place, and sums come to the
same however many threads there are. Where equal places may differ in that share, one thread does it all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jitney_llvm_cpu.emit.accesses import Lanes
from jitney_llvm_cpu.emit.builder import Reg, number
from jitney_llvm_cpu.emit.elements import Elements
from jitney_llvm_cpu.emit.reductions import Reduction
from jitney_lowering.index import Index, Product, Var, from_terms
from jitney_lowering.ir import Kernel, Load, Nest, Position, Put, Scatter, Statement, Value, walk

PARTS = 64  # of memory: a power of two
_HASH = -7046029254386353131  # 2**64 through the golden ratio, as a signed number


def operand(statement: Statement) -> Value:
    """What the statement stores or reduces."""
    return statement.value.value if isinstance(statement, Scatter) else statement.value


def _varies(value: Value, var: Var) -> bool:
    return any(var in v.index.atoms for v in walk(value) if isinstance(v, (Load, Position)))


def along_rows(put: Put, var: Var) -> bool:
    """Do the iterations of this loop go to neighbours in a row, whose place is known before?"""
    computed = [value for _, value in put.indirect] + ([] if put.mask is None else [put.mask])
    return not any(_varies(value, var) for value in computed) and put.index.stride(var) not in (None, 0)


def _owner(put: Put, inner: Var) -> Index | None:
    """The part of the place that is known before the innermost loop; None if equal places may differ in it.

    They cannot where that part is a multiple of something that the rest is less than.
    """
    later = {atom for atom, value in put.indirect if _varies(value, inner)} | {inner}
    known: dict[Product, int] = {}
    rest: dict[Product, int] = {}
    for coefficient, product in put.index.terms:
        inside = any(factor in later or not factor.atoms.isdisjoint(later) for factor in product)
        (rest if inside else known)[product] = coefficient
    low, high = from_terms(rest, 0).bounds()
    step = math.gcd(*known.values())
    if not known or low is None or high is None or low < 0 or high >= step:
        return None
    return from_terms(known, 0)


def is_shared(kernel: Kernel) -> bool:
    """May several threads run the kernel, each for its own part of memory?"""
    puts = [s.value for nest in kernel.body for s in nest.statements if isinstance(s, Scatter)]
    loops = [v for v in kernel.body[0].loops if v.size.value != 1] if len(kernel.body) == 1 else []
    owners = {_owner(put, loops[-1]) for put in puts} if loops else set()
    return len(owners) == 1 and None not in owners


def scatters(kernel: Kernel) -> bool:
    """Does the kernel scatter? Then it does nothing else."""
    return any(isinstance(s, Scatter) for nest in kernel.body for s in nest.statements)


class Scattering:
    """The scatters of one nest.

    Args:
        elements: writes values.
        nest: in which they are.
        loops: those that are written as such.
    """

    def __init__(self, elements: Elements, nest: Nest, loops: Sequence[Var]) -> None:
        self.elements = elements
        self.scope = elements.scope
        self.f = elements.scope.f
        self.puts = [s.value for s in nest.statements if isinstance(s, Scatter)]
        for put in self.puts:
            self.scope.opaque.update(put.indirect)
        self.inner = loops[-1] if loops else None

    def row(self) -> Reg | None:
        """Is what the innermost loop is about to do this thread's? None: all of it is."""
        if not self.puts or self.scope.share is None or self.inner is None:
            return None
        f, (low, high) = self.f, self.scope.share
        owner = _owner(self.puts[0], self.inner)
        assert owner is not None
        place = self.scope.number(owner, self.elements.scalar)
        part = f.binary("lshr", f.binary("mul", place, number(_HASH)), number(65 - PARTS.bit_length()))
        return f.compare("icmp ult", f.binary("sub", part, low), f.binary("sub", high, low))

    def put(self, put: Put, value: Reg, at: Lanes) -> None:
        """Do it, in all lanes."""

        def then() -> list[Reg]:
            self._put(put, value, at)
            return []

        if put.mask is None:
            then()
        else:
            self.f.when(self.elements.scalar(put.mask), [], then)

    def _put(self, put: Put, value: Reg, at: Lanes) -> None:
        if put.kind != "store":
            reduction = Reduction(put.kind, put.value.dtype, self.scope.machine)
            before = self.elements.loaded(put.buffer, put.index, at)
            value = reduction.result(self.f, reduction.merge(self.f, [before], [value]))
        self.elements.store(put.buffer, put.index, value, at)
