"""How far apart neighbouring lanes are in an index expression, also where divisions stay the same within a vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jitney_llvm_cpu.emit.builder import Reg, number
from jitney_llvm_cpu.emit.scope import Scope, multiply, plus
from jitney_lowering.index import Index, Var
from jitney_lowering.ir import Value


@dataclass(frozen=True)
class Step:
    """Neighbouring lanes are ``size`` apart.

    ``rest`` is the expression where the loop's variable is 0, without its constant. None: there are divisions by which
    the expression moves otherwise from one vector to the next.
    """

    size: int
    rest: Index | None


class Strides:
    """Finds steps, each once. Vectors begin at multiples of their width.

    Args:
        scope: the levels around the loop.
        scalar: the register of a value that is the same in all lanes.
    """

    def __init__(self, scope: Scope, scalar: Callable[[Value], Reg]) -> None:
        self.scope = scope
        self.scalar = scalar
        self._steps: dict[Index, Step | None] = {}

    def step(self, x: Index, var: Var, width: int) -> Step | None:
        """The constant distance between lanes, if all else in the expression is the same in all of them."""
        if x not in self._steps:
            self._steps[x] = self._affine(x, var) or self._within_vectors(x, var, width)
        return self._steps[x]

    def first(self, x: Index, step: Step, var: Var, start: Reg, offset: int) -> Reg:
        """The expression in the first lane, as i64: ``offset`` iterations after ``start``."""
        f = self.scope.f
        if step.rest is None:
            return self.scope.number(moved(x, var, offset), self.scalar)
        moving = multiply(f, plus(f, start, number(offset)), number(step.size))
        return plus(f, self.scope.number(step.rest + x.constant, self.scalar), moving)

    def _affine(self, x: Index, var: Var) -> Step | None:
        stride = x.stride(var)
        if stride is None or stride.value is None:
            return None
        rest = x - var * stride.value
        return Step(stride.value, rest - rest.constant) if self._still(rest) else None

    def _within_vectors(self, x: Index, var: Var, width: int) -> Step | None:
        """With the variable as a vector's number and a lane, the lane may come out of all divisions."""
        lane = Var("lane", width)
        vector = Var("vector", (var.size + (width - 1)) // width)
        parts = x.substitute({var: vector * width + lane})
        stride = parts.stride(lane)
        if stride is None or stride.value is None or any(a is not var and not self._still(a) for a in x.atoms):
            return None
        return Step(stride.value, None)

    def _still(self, x: Index) -> bool:
        return self.scope.level(x) < self.scope.depth


def moved(x: Index, var: Var, offset: int) -> Index:
    """The expression some iterations later."""
    return x.substitute({var: var + offset}) if offset else x
