"""Kernels that differ in names only are one: twelve layers of a model need the code of one layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from jitney_lowering.index import Index, Var
from jitney_lowering.ir.kernel import Accumulate, Kernel, Nest, Reduce, Scan, Scatter, Statement, Store
from jitney_lowering.ir.values import Load, Put, Ref, Value, rebuild, ref, walk

_CANONICAL = "_canonical"  # where a kernel keeps what it was found to be


def canonical(kernel: Kernel) -> tuple[Kernel, tuple[str, ...]]:
    """The kernel with names that its structure gives, and its buffers in the order of those names.

    Kernels that do the same to other buffers are equal then: ``canonical(a)[0] == canonical(b)[0]``.
    """
    if _CANONICAL not in kernel.__dict__:
        kernel.__dict__[_CANONICAL] = _Renaming(kernel).result()
    found: tuple[Kernel, tuple[str, ...]] = kernel.__dict__[_CANONICAL]
    return found


def is_canonical(kernel: Kernel, plain: Kernel, names: tuple[str, ...]) -> None:
    """This is what ``canonical`` gives for a kernel: it is the copy of one of which it is known, with other buffers."""
    kernel.__dict__[_CANONICAL] = plain, names


class _Renaming:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers: dict[str, str] = {}
        self.refs: dict[str, str] = {}
        self.vars: dict[Any, Index] = {}
        own = {m.name: f"m{n}" for n, m in enumerate(kernel.memory)}
        self.memory = dict(own)
        for loops in (kernel.outer, *(nest.loops for nest in (*kernel.body, *kernel.finish))):
            for var in loops:
                self.vars.setdefault(var, Var(f"c{len(self.vars)}", var.size))
        for name in _mentioned(kernel):
            if name in kernel.buffers:
                self.buffers.setdefault(name, f"b{len(self.buffers)}")
        self.memory |= self.buffers
        for nest in (*kernel.body, *kernel.finish):
            for statement in nest.statements:
                if isinstance(statement, (Reduce, Scan)):
                    self.refs[statement.name] = f"r{len(self.refs)}"
        self.memo: dict[Any, Value] = {}

    def result(self) -> tuple[Kernel, tuple[str, ...]]:
        """The renamed kernel and its buffers."""
        kernel = self.kernel
        made = Kernel(
            "kernel",
            self._loops(kernel.outer),
            tuple(map(self._nest, kernel.body)),
            {self.buffers[name]: kernel.buffers[name] for name in self.buffers},
            tuple(map(self._nest, kernel.finish)),
            tuple(replace(m, name=self.memory[m.name]) for m in kernel.scratch),
            tuple(replace(m, name=self.memory[m.name]) for m in kernel.partials),
        )
        return made, tuple(self.buffers)

    def _loops(self, loops: tuple[Var, ...]) -> tuple[Var, ...]:
        renamed = tuple(self.vars[v] for v in loops)
        return renamed  # type: ignore[return-value] # variables, all of them

    def _nest(self, nest: Nest) -> Nest:
        return Nest(self._loops(nest.loops), tuple(map(self._statement, nest.statements)))

    def _statement(self, statement: Statement) -> Statement:
        value = self._value(statement.value)
        if isinstance(statement, Store):
            return Store(self.memory[statement.buffer], self._index(statement.index), value)
        if isinstance(statement, Scatter):
            assert isinstance(value, Put)
            return Scatter(self.memory[statement.buffer], value)
        if isinstance(statement, Accumulate):
            return Accumulate(self.memory[statement.buffer], self._index(statement.index), statement.kind, value)
        if isinstance(statement, Scan):
            return Scan(self.refs[statement.name], statement.kind, value)
        position = statement.position
        at = None if position is None else self._index(position)
        return Reduce(self.refs[statement.name], statement.kind, value, at)

    def _index(self, index: Index) -> Index:
        return index.substitute(self.vars)

    def _value(self, value: Value) -> Value:
        leaf = {v: ref(self.refs[v.name], v.dtype) for v in walk(value) if isinstance(v, Ref)}
        return rebuild(value, leaf, self._index, self.memory, self.memo)


def _mentioned(kernel: Kernel) -> Iterator[str]:
    """Buffers as they are mentioned."""
    for nest in (*kernel.body, *kernel.finish):
        for statement in nest.statements:
            for value in walk(statement.value):
                if isinstance(value, (Load, Put)):
                    yield value.buffer
            if not isinstance(statement, (Reduce, Scan)):
                yield statement.buffer
