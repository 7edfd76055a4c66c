"""A score as emitters need it: one value for each query and key, and one for the gradient of their product."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.aten.lower import lower
from jitney_lowering.attention.narrow import narrowed
from jitney_lowering.attention.score import Score
from jitney_lowering.index import Index, Var, index, linear
from jitney_lowering.ir import Computed, Load, Value, apply, load, rebuild, walk
from jitney_lowering.ir.loops import Program
from jitney_lowering.policy import Policy
from jitney_lowering.signals import NotLowered

PRODUCTS, GRADIENT = "products", "gradient"  # buffers that are nowhere: an emitter has their elements in registers


@dataclass(frozen=True)
class Tile:
    """A score over matrices of products.

    Args:
        batch: goes through the matrices.
        row: through the queries.
        column: through the keys.
        scored: what the softmax is taken of, float32.
        gradient: of the product of a query and a key, float32; None if nobody asks for it.
        products: the element of ``PRODUCTS`` there: queries by keys.
        given: that of ``GRADIENT``: the gradient of ``scored``.
        others: buffer -> the position among the operator's other tensors.
        dtypes: of these buffers.
        safe: see ``Score``.
    """

    batch: Var
    row: Var
    column: Var
    scored: Value
    gradient: Value | None
    products: Value
    given: Value
    others: dict[str, int]
    dtypes: dict[str, torch.dtype]
    safe: bool = False

    @staticmethod
    def of(score: Score, size: Sequence[int], others: Sequence[Tensor], device: torch.device, policy: Policy) -> Tile:
        """The score, lowered.

        Args:
            score: what is done.
            size: of the products.
            others: tensors such as its other inputs.
            device: where.
            policy: what suits the machine.

        Raises:
            NotLowered: it does not go element by element.
        """
        products = torch.empty(tuple(size), dtype=torch.float32, device="meta")
        tangents = [score.result] if score.gradient else []
        module = score.filled([products, *others, *tangents], device)
        stands = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]
        program = lower(module, stands, relaxed_math=False, policy=policy, inlined=True)
        return replace(_Tiles(program, products, len(others), score.size).tile(score.gradient), safe=score.safe)

    def of_groups(self, count: int) -> Tile:
        """The same with so many matrices of one query each as one matrix: they look at the same keys."""
        batch, row = Var("z", self.batch.size // count), Var("y", count)
        table: dict[Any, Index] = {self.batch: batch * count + row, self.row: index(0)}
        there: Callable[[Index], Index] = functools.partial(_substituted, table)
        scored, products = rebuild(self.scored, index=there), rebuild(self.products, index=there)
        return replace(self, batch=batch, row=row, scored=scored, products=products, given=products, gradient=None)


class _Tiles:
    def __init__(self, program: Program, products: Tensor, others: int, size: Sequence[int]) -> None:
        self.program = program
        self.products_size, self.size = tuple(products.shape), tuple(size)
        rows, columns = products.shape[-2:]
        self.batch = Var("z", products.shape[:-2].numel())
        self.row, self.column = Var("y", rows), Var("x", columns)
        self.place = (self.batch * rows + self.row) * columns + self.column
        names = program.inputs
        self.others = {str(names[1 + n]): n for n in range(others)}
        self.own: dict[str, Value] = {str(names[0]): load(PRODUCTS, self.place, torch.float32)}
        self.computed = {step.buffer: step for step in program.steps if isinstance(step, Computed)}

    def tile(self, gradient: bool) -> Tile:
        program = self.program
        if program.checks or program.constants or len(self.computed) != len(program.steps):
            raise NotLowered("a score that is more than values")
        products = next(iter(self.own.values()))
        given: Value = products
        if gradient:
            name = str(program.inputs[1 + len(self.others)])
            given = self.own[name] = load(GRADIENT, self.place, program.buffers[name].dtype)
        sizes = (self.size, self.products_size)
        values = [self._result(output, size) for output, size in zip(program.outputs, sizes, strict=False)]
        read = {v.buffer for value in values for v in walk(value) if isinstance(v, Load)}
        others = {name: n for name, n in self.others.items() if name in read}
        dtypes = {name: program.buffers[name].dtype for name in others}
        second = values[1] if gradient else None
        return Tile(self.batch, self.row, self.column, values[0], second, products, given, others, dtypes)

    def _result(self, output: Any, size: Sequence[int]) -> Value:
        """One result, of that size, as a value of ours, float32."""
        name = output.buffer
        strides = torch.empty(tuple(size), device="meta").stride()
        if (*output.size,) != tuple(map(index, size)) or (*output.stride,) != tuple(map(index, strides)):
            raise NotLowered("a score that lies in memory in another order")
        if name in self.own:
            return self._wide(self.own[name])
        step = self.computed.get(name)
        if step is None or step.kind != "pointwise" or step.reduced:
            raise NotLowered("a score that is no value of an element")
        loops = step.vars
        sizes = [v.size.value for v in loops]
        if None in sizes or step.place != linear(loops) or output.offset != 0:
            raise NotLowered("a score that lies in memory in another order")
        table, leaf = self._variables(step), {}
        whole = self._whole(step.value)
        for v in walk(whole):
            if isinstance(v, Load) and v.buffer in self.own:
                if v.index != linear(loops) or v.indirect or v.mask is not None:
                    raise NotLowered("a score that reads other products")
                leaf[v] = self.own[v.buffer]
        return self._wide(rebuild(whole, leaf, functools.partial(_substituted, table)))

    def _whole(self, value: Value) -> Value:
        """The value without loads of what other steps compute."""
        leaf = {}
        for v in walk(value):
            if isinstance(v, Load) and v.buffer in self.computed:
                step = self.computed[v.buffer]
                if step.kind != "pointwise" or step.place != linear(step.vars) or v.indirect or v.mask is not None:
                    raise NotLowered("a score that reads what it has computed")
                place, table = v.index, {}
                for var in reversed(step.vars):
                    table[var] = place if var is step.vars[0] else place % var.size
                    place = place // var.size
                there: Callable[[Index], Index] = functools.partial(_substituted, table)
                leaf[v] = rebuild(self._whole(step.value), index=there)
        return rebuild(value, leaf) if leaf else value

    def _variables(self, step: Computed) -> dict[Any, Index]:
        """The loops of a step in terms of ours."""
        batch = list(step.vars)
        table: dict[Any, Index] = {}
        for own in (self.column, self.row):
            if own.size == 1:  # there is no loop, then
                continue
            if not batch or batch[-1].size != own.size:
                raise NotLowered("a score of other rows and columns")
            table[batch.pop()] = index(own)
        inner = index(1)
        for var in reversed(batch):
            outer = self.batch // inner
            table[var] = outer if var is batch[0] else outer % var.size
            inner = inner * var.size
        if inner != self.batch.size:
            raise NotLowered("a score of another batch")
        return table

    @staticmethod
    def _wide(value: Value) -> Value:
        value = value if value.dtype is torch.float32 else apply("cast", value, dtype=torch.float32)
        return narrowed(value)


def _substituted(table: dict[Any, Index], place: Index) -> Index:
    return place.substitute(table)
