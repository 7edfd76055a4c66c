"""Kernels that differ only in names, and in where they begin, are one: twelve layers or steps need the code of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from jitney_lowering.index import Index, Var, index
from jitney_lowering.ir.kernel import Accumulate, Kernel, Nest, Reduce, Scan, Scatter, Statement, Store
from jitney_lowering.ir.values import Load, Put, Ref, Value, rebuild, ref, walk

_CANONICAL = "_canonical"  # where a kernel keeps what it was found to be
_PLACED = "_placed"


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


def placed(kernel: Kernel, alignment: int, fixed: frozenset[str] = frozenset()) -> tuple[Kernel, dict[str, int]]:
    """The kernel as if each buffer began where it first reads or writes it, and how many elements later that is.

    Kernels that do the same to other rows of a buffer, such as a step's, are equal then.

    Args:
        kernel: as ``canonical`` gives it.
        alignment: in bytes, of where a buffer may be said to begin.
        fixed: buffers that begin where they do.
    """
    known: dict[frozenset[str], tuple[Kernel, dict[str, int]]] = kernel.__dict__.setdefault(_PLACED, {})
    if fixed not in known:
        begins: dict[str, int] = {}
        for name, at in _places(kernel):
            if name in kernel.buffers and name not in fixed:
                begins[name] = min(begins.get(name, at), at)
        steps = {name: max(1, alignment // kernel.buffers[name].itemsize) for name in begins}
        later = {name: at - at % steps[name] for name, at in begins.items() if at >= steps[name]}
        known[fixed] = (_moved(kernel, later) if later else kernel, later)
    return known[fixed]


def _places(kernel: Kernel) -> Iterator[tuple[str, int]]:
    """Buffers as they are mentioned, and what is before all that is touched there; 0 where that is not known."""
    for nest in (*kernel.body, *kernel.finish):
        for statement in nest.statements:
            for value in walk(statement.value):
                if isinstance(value, (Load, Put)):
                    yield value.buffer, value.index.bounds()[0] or 0
            if isinstance(statement, (Store, Accumulate)):
                yield statement.buffer, statement.index.bounds()[0] or 0


def _moved(kernel: Kernel, later: Mapping[str, int]) -> Kernel:
    """The kernel with buffers that begin so many elements later."""
    places = {name: (name, index(-at)) for name, at in later.items()}
    memo: dict[Any, Value] = {}

    def statement(old: Statement) -> Statement:
        value: Any = rebuild(old.value, memo=memo, places=places)
        if isinstance(old, (Store, Accumulate)):
            return replace(old, value=value, index=old.index - later.get(old.buffer, 0))
        return replace(old, value=value)  # a Put stays one

    def nests(old: tuple[Nest, ...]) -> tuple[Nest, ...]:
        return tuple(Nest(nest.loops, tuple(map(statement, nest.statements))) for nest in old)

    return replace(kernel, body=nests(kernel.body), finish=nests(kernel.finish))


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
