"""What a schedule does, in numbers and text: for logs, debug folders and reports, and only if somebody asks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney import events
from jitney_lowering.index import Index, Size, Var
from jitney_lowering.ir.kernel import Kernel, Nest, Scatter, Store
from jitney_lowering.ir.loops import Buffer, Extern, Reading, Strided
from jitney_lowering.ir.values import Load, walk
from jitney_lowering.labels import Label, labels
from jitney_lowering.scheduler import Schedule
from jitney_lowering.scheduler.memory.in_place import root

UNKNOWN = 4096  # a size of which nothing is known
# Operators that read some elements of what they are given, as many as they return.
_aten = torch.ops.aten
GATHERS = {_aten.embedding.default, _aten.index.Tensor, _aten.index_select.default, _aten.gather.default}


@dataclass(frozen=True)
class Description:
    """See ``events.Scheduled``."""

    launches: tuple[events.Launch, ...]
    arena: int
    before: str
    after: str


def describe(schedule: Schedule, inputs: Sequence[Any]) -> Description:
    """What runs, how many bytes it moves, what is alive meanwhile.

    Args:
        schedule: of the graph.
        inputs: FakeTensors and symbols of the graph, which say what symbolic sizes were.
    """
    facts = _Facts(schedule, inputs)
    named = zip(labels(schedule.items), schedule.items, strict=True)
    launches = tuple(facts.launch(number, label, item) for number, (label, item) in enumerate(named))
    return Description(launches, facts.count(schedule.memory.size), str(schedule.program), str(schedule))


class _Facts:
    """Numbers of one schedule."""

    def __init__(self, schedule: Schedule, inputs: Sequence[Any]) -> None:
        self.schedule = schedule
        self.program = schedule.program
        self.sizes: Mapping[Size, int] = {size: _read(inputs, way) for size, way in self.program.sizes.items()}
        self.alive = self._alive()

    def count(self, expression: Index) -> int:
        """An index expression as a number."""
        if expression.value is not None:
            return expression.value
        return expression.evaluate({atom: self.sizes.get(atom, UNKNOWN) for atom in expression.atoms})  # type: ignore[call-overload]

    def launch(self, number: int, label: Label, item: Kernel | Extern) -> events.Launch:
        """One item of the schedule."""
        extern = isinstance(item, Extern)
        reason = ("called from native code" if item.launched else item.reason) if isinstance(item, Extern) else ""
        return events.Launch(
            name=label.name,
            kind="extern" if extern else "kernel",
            operators=label.operators,
            places=label.places,
            read=self._moved(item, item.reads, writing=False),
            written=self._moved(item, item.writes, writing=True),
            alive=self.alive[number],
            text=str(item),
            reason=reason,
        )

    def _moved(self, item: Kernel | Extern, names: frozenset[str], *, writing: bool) -> int:
        """Bytes of those buffers that it reads or writes."""
        total = 0
        for name in names:
            buffer = self.program.buffers[name]
            whole = self._elements(buffer)
            touched = whole
            if isinstance(item, Kernel):
                touched = self._touched(item, name, writing)
            elif item.target in GATHERS and not writing:
                touched = sum(self._elements(self.program.buffers[b]) for b in item.buffers if b is not None)
            total += min(whole, touched) * buffer.dtype.itemsize
        return total

    def _elements(self, buffer: Buffer) -> int:
        sizes = [self.count(size) for size in buffer.size]
        return 0 if 0 in sizes else self.count(buffer.extent)

    def _touched(self, kernel: Kernel, name: str, writing: bool) -> int:
        """At most how many elements of a buffer a kernel reads or writes."""
        found: dict[tuple[Index, ...], int] = {}
        for nest in (*kernel.body, *kernel.finish):
            for statement in nest.statements:
                if writing and isinstance(statement, (Store, Scatter)) and statement.buffer == name:
                    found[(statement.index,)] = self._distinct(statement.index, kernel, nest)
                if writing:
                    continue
                for value in walk(statement.value):
                    if isinstance(value, Load) and value.buffer == name:
                        found[(value.index,)] = self._distinct(value.index, kernel, nest)
        return sum(found.values())

    def _distinct(self, place: Index, kernel: Kernel, nest: Nest) -> int:
        """How many values an index takes, if no two iterations have the same by chance."""
        loops = (*kernel.outer, *nest.loops)
        own = [atom for atom in place.atoms if isinstance(atom, Var)]
        gathered = any(not isinstance(atom, (Var, Size)) for atom in place.atoms)
        return math.prod(self.count(var.size) for var in (loops if gathered else own))

    def _alive(self) -> list[int]:
        """For each item, the bytes of inputs, outputs and temporaries that are needed while it runs or later."""
        buffers = self.program.buffers
        inputs = {name for name in self.program.inputs if isinstance(name, str)} | self.program.constants.keys()
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for number, item in enumerate(self.schedule.items):
            for name in {root(n, buffers) for n in item.writes | item.reads} - inputs:
                if name not in self.schedule.filled:
                    first.setdefault(name, number)
                    last[name] = number
        for name in {*self.schedule.successors.values(), *self.schedule.memory.instead_of.values()} & last.keys():
            last[name] -= 1  # in its last item it is counted as what takes over its memory
        end = len(self.schedule.items)
        for output in self.program.outputs:
            if isinstance(output, Strided):
                last[root(output.buffer, buffers)] = end
        always = sum(self._bytes(name) for name in inputs)
        spans = [(begin, last[name], self._bytes(name)) for name, begin in first.items()]
        return [always + sum(b for begin, until, b in spans if begin <= n <= until) for n in range(end)]

    def _bytes(self, name: str) -> int:
        buffer = self.program.buffers[name]
        return self._elements(buffer) * buffer.dtype.itemsize


def _read(inputs: Sequence[Any], way: Reading) -> int:
    """What a symbolic size was while compiling."""
    value = inputs[way.input]
    if way.what == "size":
        value = value.shape[way.dim]
    elif way.what == "stride":
        value = value.stride()[way.dim]
    if isinstance(value, torch.SymInt):
        known = value.node.hint
        return int(known) if known is not None else UNKNOWN
    return int(value)
