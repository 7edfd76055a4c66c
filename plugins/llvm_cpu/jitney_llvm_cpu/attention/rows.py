"""What happens to a block of products between two matrix products: kernels, made of a score as the emitter has it.

A block is some rows of some matrices, with as many columns as any of its queries sees. Where it begins is an argument.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from jitney_llvm_cpu.attention.blocks import Block
from jitney_llvm_cpu.launch import Native
from jitney_llvm_cpu.memory_pool import memory
from jitney_llvm_cpu.options import LlvmCpuOptions
from jitney_llvm_cpu.policy import POLICY
from jitney_llvm_cpu.serialization import entries_of
from jitney_lowering import Wrapper, schedule
from jitney_lowering.attention import GRADIENT, PRODUCTS, Tile
from jitney_lowering.index import Index, Size, Var, index
from jitney_lowering.ir import Buffer, Computed, Program, Reading, Strided, Value, apply, constant, load, rebuild

WIDE = torch.float32


class Rows:
    """A program over a block under construction.

    Args:
        tile: the score.
        others: tensors such as it reads.
        block: how many matrices and rows.
        matrices: what else it is given of the size of products.
        numbers: what it is given of each row.
    """

    def __init__(
        self, tile: Tile, others: Sequence[Tensor], block: Block, matrices: Sequence[str], numbers: Sequence[str] = ()
    ) -> None:
        rows, columns = tile.row.size.value, tile.column.size.value
        batch = tile.batch.size.value
        assert rows is not None and columns is not None and batch is not None
        self.tile = tile
        self.width = Size("width", 1, columns)
        begins = (
            Size("first_matrix", 0, batch - block.matrices),
            Size("first_row", 0, rows - block.rows),
            Size("first_column", 0, columns - 1),
        )
        self.matrix, self.row = Var("c0", block.matrices), Var("r0", block.rows)
        self.column = Var("k0", self.width)
        whole = (self.matrix, self.row, self.column)
        own = (tile.batch, tile.row, tile.column)
        self.table = {old: begin + new for old, begin, new in zip(own, begins, whole, strict=True)}
        self.at_row = self.matrix * block.rows + self.row
        self.at = self.at_row * self.width + self.column
        self.size = (index(block.matrices), index(block.rows), self.width)
        names = {at: name for name, at in tile.others.items()}
        self.buffers: dict[str, Buffer] = {}
        self.inputs: list[str | Size | None] = []
        for name in matrices:
            self._given(self.matrices(name))
        for name in numbers:
            self._given(self.numbers(name))
        for at, tensor in enumerate(others):
            size, stride = (tuple(map(index, numbers)) for numbers in (tensor.shape, tensor.stride()))
            self._given(Buffer(names.get(at, f"unread{at}"), tensor.dtype, size, stride))
        self.sizes = {self.width: Reading(0, "size", 2)}
        for begin in begins:
            self.sizes |= {begin: Reading(len(self.inputs), "value")} if begin.fixed is None else {}
            self.inputs.append(begin if begin.fixed is None else None)
        self.steps: list[Computed] = []
        self.outputs: list[Strided] = []

    def matrices(self, name: str) -> Buffer:
        """A buffer such as the products."""
        rows = self.size[1]
        return Buffer(name, WIDE, self.size, (rows * self.width, self.width, index(1)))

    def numbers(self, name: str) -> Buffer:
        """A buffer of a number for each row."""
        return Buffer(name, WIDE, self.size[:2], (self.size[1], index(1)))

    def _given(self, buffer: Buffer) -> None:
        self.buffers[buffer.name] = buffer
        self.inputs.append(buffer.name)

    def element(self, name: str) -> Value:
        """Of a buffer such as the products."""
        return load(name, self.at, WIDE)

    def number(self, name: str) -> Value:
        """That of the row."""
        return load(name, self.at_row, WIDE)

    def scored(self, value: Value, gradient: str = "") -> Value:
        """A value of the tile, here."""
        leaf = {self.tile.products: self.element(PRODUCTS)}
        leaf |= {self.tile.given: self.element(gradient)} if gradient else {}
        return rebuild(value, leaf, functools.partial(_substituted, self.table))

    def fill(self, name: str, value: Value) -> Value:
        """A buffer of the value for each element; its element."""
        self.buffers[name] = self.matrices(name)
        whole = (self.matrix, self.row, self.column)
        self.steps.append(Computed(name, whole, self.at, value))
        return self.element(name)

    def fill_row(self, name: str, value: Value, kind: str = "pointwise") -> Value:
        """A buffer of the value for each row, or of what a reduction makes of those in the row; its element."""
        self.buffers[name] = self.numbers(name)
        reduced = () if kind == "pointwise" else (self.column,)
        self.steps.append(Computed(name, (self.matrix, self.row), self.at_row, value, reduced, kind))
        return self.number(name)

    def built(self, results: Sequence[str], options: LlvmCpuOptions) -> Callable[..., tuple[Tensor, ...]]:
        """From matrices, numbers, others, and the first matrix, row and column to these buffers."""
        outputs = []
        for name in results:
            buffer = self.buffers[name]
            outputs.append(Strided(name, buffer.dtype, buffer.size, buffer.stride, index(0)))
        program = Program(self.buffers, self.inputs, list(self.steps), list(outputs), self.sizes)
        program.verify()
        native = Native(options)
        wrapper = Wrapper(schedule(program, policy=POLICY), native, "attention", memory)
        run = wrapper.build()
        library = native.link(native.text(), None)
        if library is not None:
            wrapper.namespace.update(entries_of(library, [entry.name for entry in native.entries]))
        return run


def _substituted(table: Mapping[Any, Index], place: Index) -> Index:
    return place.substitute(table)


def weights(tile: Tile, others: Sequence[Tensor], block: Block, options: LlvmCpuOptions) -> Callable[..., Any]:
    """From products to weights, and for each row the largest score and the sum, as ``attention`` gives them."""
    rows = Rows(tile, others, block, [PRODUCTS])
    scores = rows.fill("scores", rows.scored(tile.scored))
    highest = rows.fill_row("highest", scores, "max")
    low, zero, one = (constant(n, WIDE) for n in (-math.inf, 0.0, 1.0))
    largest = rows.fill_row("largest", apply("where", apply("eq", highest, low), zero, highest))
    powers = rows.fill("powers", apply("exp", apply("sub", scores, largest)))
    summed = rows.fill_row("summed", powers, "sum")
    total = apply("where", apply("eq", summed, zero), one, summed) if tile.safe else summed
    total = rows.fill_row("total", total)
    rows.fill("weights", apply("div", powers, total))
    return rows.built(["weights", "largest", "total"], options)


def gradients(tile: Tile, others: Sequence[Tensor], block: Block, options: LlvmCpuOptions) -> Callable[..., Any]:
    """From products, gradients of weights, and of each row the largest score, the sum and what is subtracted: to
    weights and gradients of products.
    """
    rows = Rows(tile, others, block, [PRODUCTS, "of_weights"], ["largest", "total", "minus"])
    scores = rows.scored(tile.scored)
    powers = apply("exp", apply("sub", scores, rows.number("largest")))
    made = rows.fill("weights", apply("div", powers, rows.number("total")))
    differences = apply("sub", rows.element("of_weights"), rows.number("minus"))
    rows.fill(GRADIENT, apply("mul", made, differences))
    assert tile.gradient is not None
    rows.fill("of_products", rows.scored(tile.gradient, GRADIENT))
    return rows.built(["weights", "of_products"], options)
