"""One kernel as one C function: loops around statements, in the order in which the schedule has put them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from jitney_c_loops.dtypes import MEMORY, SUM, VARIABLE, from_memory, literal, rounded, to_memory
from jitney_c_loops.scalars import applied
from jitney_lowering.index import Atom, Compound, Index, Opaque, Size, Var, render
from jitney_lowering.ir import (
    Accumulate,
    Apply,
    Constant,
    Kernel,
    Load,
    Nest,
    Position,
    Reduce,
    Ref,
    Scan,
    Scatter,
    Statement,
    Store,
    Value,
    identity,
    ref,
    walk,
)


def emit(kernel: Kernel, name: str, sizes: Sequence[Size]) -> str:
    """The text of ``void name(const int64_t *pointers, const int64_t *sizes)``.

    Args:
        kernel: with its buffers in the order of ``pointers``.
        name: the function's.
        sizes: symbolic sizes in the order of the array.
    """
    return _Function(kernel, sizes).text(name)


@dataclass(frozen=True)
class _Accumulator:
    """What a reduction or scan of one kind has come to: the variable's type, and how a value is added to it."""

    kind: str
    dtype: torch.dtype

    @property
    def type(self) -> str:
        """In C."""
        return SUM.get(self.dtype, VARIABLE[self.dtype]) if self.kind == "sum" else VARIABLE[self.dtype]

    @property
    def start(self) -> str:
        """Before the first value."""
        return literal(identity(self.kind, self.dtype), self.dtype)

    def combined(self, old: str, new: str) -> str:
        """The text of both together."""
        if self.kind in ("max", "min"):
            kind = VARIABLE[self.dtype] if self.dtype.is_floating_point else "int"
            return f"{self.kind}{'imum' if kind != 'int' else ''}_{kind}({old}, {new})"
        return f"{old} {INFIX[self.kind]} {new}"

    def result(self, text: str) -> str:
        """What the accumulator holds, as a value of the dtype."""
        return rounded(f"({VARIABLE[self.dtype]}){text}", self.dtype)


INFIX = {"sum": "+", "prod": "*", "any": "|", "all": "&"}


class _Function:
    """The function being written."""

    def __init__(self, kernel: Kernel, sizes: Sequence[Size]) -> None:
        self.kernel = kernel
        self.sizes = {size: f"n{number}" for number, size in enumerate(sizes)}
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.refs: dict[str, str] = {}
        self.running: dict[str, _Accumulator] = {}
        self.opaque: dict[Atom, str] = {}
        # Own memory holds what variables do, or, where something is added up, what that is added up in.
        self.own = {s.name: _Accumulator("", s.dtype) for s in kernel.scratch}
        self.own |= {p.name: _Accumulator(p.kind, p.dtype) for p in kernel.partials}
        for nest in kernel.body:
            for s in nest.statements:
                if isinstance(s, Accumulate):
                    self.own[s.buffer] = _Accumulator(s.kind, s.value.dtype)

    def text(self, name: str) -> str:
        """All of it."""
        kernel = self.kernel
        for number, (buffer, dtype) in enumerate(kernel.buffers.items()):
            self.line(f"{MEMORY[dtype]} *{buffer} = ({MEMORY[dtype]} *)pointers[{number}];")
        for number, size in enumerate(self.sizes.values()):
            self.line(f"const int64_t {size} = sizes[{number}];")
        for own in kernel.memory:
            type_ = self.own[own.name].type
            self.line(f"{type_} *{own.name} = malloc(({self.index(own.extent)} + 1) * sizeof({type_}));")
        for partial in kernel.partials:
            start = self.own[partial.name].start
            at = self.name("i")
            with self.block(f"for (int64_t {at} = 0; {at} < {self.index(partial.extent)}; {at}++)"):
                self.line(f"{partial.name}[{at}] = {start};")
        with self.loops(kernel.outer):
            for nest in kernel.body:
                self.nest(nest)
        for nest in kernel.finish:
            self.nest(nest)
        for own in kernel.memory:
            self.line(f"free({own.name});")
        body = "\n".join(self.lines)
        return f"void {name}(const int64_t *pointers, const int64_t *sizes) {{\n{body}\n}}\n"

    # ------------------------------------------------------------------ lines

    def line(self, text: str) -> None:
        """One line."""
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        """A new name; no buffer or loop variable has an underscore."""
        self.count += 1
        return f"{prefix}_{self.count}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces."""
        self.line(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def loops(self, loops: Sequence[Var]) -> Iterator[None]:
        """Lines in these loops, or none."""
        for var in loops:
            self.line(f"for (int64_t {var.name} = 0; {var.name} < {self.index(var.size)}; {var.name}++) {{")
            self.depth += 1
        yield
        for _ in loops:
            self.depth -= 1
            self.line("}")

    # ------------------------------------------------------------------ indices

    def index(self, x: Index) -> str:
        """The text of an integer."""
        return render(x, self._atom, _compound)

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Size):
            return self.sizes[atom]
        return self.opaque[atom] if isinstance(atom, Opaque) else atom.name

    # ------------------------------------------------------------------ nests

    def nest(self, nest: Nest) -> None:
        """Its loops, with accumulators before and results after them."""
        steps = [self._step(s) for s in nest.statements]
        with self.loops(nest.loops):
            values = self.values(nest.statements)
            for step, value in zip(steps, values, strict=True):  # all values are known before anything is stored
                step(value)
        for s in nest.statements:
            if isinstance(s, Reduce):
                accumulator = _Accumulator(s.kind, s.value.dtype)
                name = self.refs[s.name]
                self.refs[s.name] = self.declared(
                    s.dtype, f"{name}_at" if s.position is not None else accumulator.result(name)
                )

    def _step(self, s: Statement) -> Callable[[str], None]:
        """Lines before the loops; what writes the lines of an iteration, given the value."""
        if isinstance(s, Store):
            return lambda value: self.store(s.buffer, s.index, value)
        if isinstance(s, Accumulate):
            return lambda value: self._accumulate(s, value)
        assert not isinstance(s, Scatter)  # its policy has none
        accumulator = _Accumulator(s.kind, s.value.dtype)
        name = self.name("a")
        self.line(f"{accumulator.type} {name} = {accumulator.start};")
        self.refs[s.name] = name
        if isinstance(s, Scan):
            self.running[s.name] = accumulator
            return lambda value: None  # what there is to do has been done among the values
        if s.position is None:
            return lambda value: self.line(f"{name} = {accumulator.combined(name, value)};")
        self.line(f"int64_t {name}_at = 0; int {name}_any = 0;")
        return lambda value: self._extreme(s, name, value)

    def _accumulate(self, s: Accumulate, value: str) -> None:
        place = f"{s.buffer}[{self.index(s.index)}]"
        self.line(f"{place} = {self.own[s.buffer].combined(place, value)};")

    def _extreme(self, s: Reduce, name: str, value: str) -> None:
        """The first of the greatest or least; a nan is beyond all."""
        assert s.position is not None
        at = self.declared(torch.int64, self.index(s.position))
        wins = f"{value} {'>' if s.kind == 'argmax' else '<'} {name}"
        ties = f"{value} == {name}"
        if s.value.dtype.is_floating_point:
            wins = f"{name} == {name} && ({wins} || {value} != {value})"
            ties = f"({ties} || ({value} != {value} && {name} != {name}))"
        with self.block(f"if (!{name}_any || ({wins}) || ({ties} && {at} < {name}_at))"):
            self.line(f"{name} = {value}; {name}_at = {at}; {name}_any = 1;")

    # ------------------------------------------------------------------ values

    def declared(self, dtype: torch.dtype, text: str) -> str:
        """A new variable with this value."""
        name = self.name("v")
        self.line(f"const {VARIABLE[dtype]} {name} = {text};")
        return name

    def values(self, statements: Sequence[Statement]) -> list[str]:
        """Variables with the values of all statements, each part computed once."""
        known: dict[Value, str] = {}
        stored: dict[tuple[str, Index], str] = {}  # what later statements read of earlier ones
        names = []
        for s in statements:
            for v in walk(s.value):
                if v not in known:
                    known[v] = self._value(v, known, stored)
            names.append(known[s.value])
            if isinstance(s, Store):
                stored[s.buffer, s.index] = known[s.value]
            elif isinstance(s, Scan):  # for the statements after it
                name, accumulator = self.refs[s.name], self.running[s.name]
                self.line(f"{name} = {accumulator.combined(name, known[s.value])};")
                known[ref(s.name, s.value.dtype)] = self.declared(s.value.dtype, accumulator.result(name))
        return names

    def _value(self, v: Value, known: dict[Value, str], stored: dict[tuple[str, Index], str]) -> str:
        if isinstance(v, Constant):
            return self.declared(v.dtype, literal(v.value, v.dtype))
        if isinstance(v, Ref):
            return self.refs[v.name]
        if isinstance(v, Position):
            return self.declared(v.dtype, rounded(self.index(v.index), v.dtype))
        if isinstance(v, Apply):
            return self.declared(v.dtype, applied(v, [known[a] for a in v.args]))
        assert isinstance(v, Load)
        if (v.buffer, v.index) in stored:
            return stored[v.buffer, v.index]
        for atom, value in v.indirect:
            self.opaque[atom] = known[value]
        text = self.load(v.buffer, v.index, v.dtype)
        return self.declared(v.dtype, text if v.mask is None else f"{known[v.mask]} ? {text} : 0")

    def load(self, buffer: str, place: Index, dtype: torch.dtype) -> str:
        """What is there, as a variable holds it."""
        text = f"{buffer}[{self.index(place)}]"
        return self.own[buffer].result(text) if buffer in self.own else from_memory(text, dtype)

    def store(self, buffer: str, place: Index, value: str) -> None:
        """``buffer[place] = value``."""
        text = value if buffer in self.own else to_memory(value, self.kernel.buffers[buffer])
        self.line(f"{buffer}[{self.index(place)}] = {text};")


def _compound(x: Compound, a: str, b: str) -> str:
    if x.kind in ("min", "max"):
        return f"{x.kind}_int({a}, {b})"
    low = x.a.bounds()[0]
    if low is not None and low >= 0:  # C rounds towards zero
        return f"({a} {'/' if x.kind == 'floordiv' else '%'} {b})"
    return f"{x.kind}_int({a}, {b})"
