"""The schedule of a whole graph, made of that of a shorter one; ``verify`` proves that either does the same.

Each item is the copy of one of the short graph's, some periods later. It must do to its own memory what that one does
to its own: read what as many writes before have put there, the copies of those that did there. If so wherever memory
is touched, what is computed from inputs and constants is the same, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx

from jitney.errors import BackendFailed
from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Computed, Extern, Program, Strided
from jitney_lowering.repeats.renaming import Named
from jitney_lowering.repeats.repetition import Repetition
from jitney_lowering.repeats.runs import described_value

Item = Kernel | Extern
NEAR = 2  # periods: what items after the last period read is not of an earlier one, or of none


@dataclass(frozen=True)
class Copy:
    """An item of the whole graph.

    Args:
        item: what runs.
        template: the number of the short graph's item that it repeats.
        later: how many periods later it does so.
        names: what that one's buffers are called here.
        like: the number of the short graph's item that does what the template does to the next period, or to the one
            before; None if there is none.
    """

    item: Item
    template: int
    later: int
    names: Mapping[str, str]
    like: int | None = None


@dataclass(frozen=True)
class Unrolled:
    """The whole graph's program (but for its steps) and items, and what they were made from.

    Args:
        program: of the whole graph.
        copies: its items in order.
        origins: by output of the whole graph that is a node the one of the short graph that stands for it, as a node of
            the whole graph, and how many periods later it is; None for others.
        short: the program of the short graph.
        templates: its items.
        repetition: what was left out.
    """

    program: Program
    copies: Sequence[Copy]
    origins: Sequence[tuple[fx.Node, int] | None]
    short: Program
    templates: Sequence[Named]
    repetition: Repetition

    @property
    def items(self) -> list[Item]:
        """What runs, in order."""
        return [copy.item for copy in self.copies]

    def verify(self) -> None:
        """What is read was written before by whom it should be, results are what they should be.

        Raises:
            BackendFailed: this is not the schedule of the whole graph.
        """
        proof = _Proof(self)
        proof.inputs()
        for copy in self.copies:
            proof.item(copy)
        proof.effects()
        proof.end()


class _Write(NamedTuple):
    """Who has written: what the item was made from, and which of its results that was."""

    nodes: tuple[fx.Node, ...]
    node: fx.Node | None
    number: int


@dataclass
class _Memory:
    """Who has written to each piece of memory so far, by its root."""

    program: Program
    writes: dict[str, list[_Write]] = field(default_factory=dict)

    def place(self, name: str) -> tuple[str, tuple[Any, ...]]:
        """The memory that a buffer is in, and where it is there: the offsets on the way."""
        offsets: list[Any] = []
        while (home := self.program.buffers[name].home) is not None:
            offsets.append(home[1])
            name = home[0]
        return name, tuple(offsets)

    def version(self, root: str) -> int:
        """How often it was written to."""
        return len(self.writes.get(root, ()))

    def write(self, name: str, by: _Write) -> None:
        """Somebody writes to a buffer."""
        self.writes.setdefault(self.place(name)[0], []).append(by)


class _Proof:
    """Goes through the whole graph's items once."""

    def __init__(self, unrolled: Unrolled) -> None:
        self.unrolled = unrolled
        self.repetition = repetition = unrolled.repetition
        self.short, self.whole = _Memory(unrolled.short), _Memory(unrolled.program)
        self.places = {node: at for at, node in enumerate(repetition.short)}
        self.whole_places = {node: at for at, node in enumerate(repetition.nodes)}
        self.proven: dict[tuple[str, str, int, bool], int] = {}  # of corresponding memory: writes that are alike
        self.versions: list[dict[str, int]] = []  # by item of the short graph: writes before it to what it touches
        self.given = self._placeholders(unrolled.program, range(len(repetition.placeholders)))
        self.short_given = self._placeholders(unrolled.short, repetition.positions)
        self.chains = repetition.chains
        self.origins = _origins(unrolled.short)
        for template in unrolled.templates:
            roots = {self.short.place(name)[0] for name in _touched(template.item)}
            self.versions.append({root: self.short.version(root) for root in roots})
            for name in sorted(template.item.writes):
                self.short.write(name, self._write(template, name))

    def _write(self, template: Named, name: str) -> _Write:
        """Of the short graph."""
        if name in self.origins:
            return _Write(template.nodes, *self.origins[name])
        return _Write(template.nodes, None, template.names.index(name))

    def _placeholders(self, program: Program, positions: Sequence[int]) -> dict[str, fx.Node]:
        """By buffer of an input the placeholder."""
        if len(program.inputs) != len(positions):
            raise BackendFailed(f"repeated layers: {len(program.inputs)} inputs, not {len(positions)}")
        pairs = zip(program.inputs, positions, strict=True)
        return {name: self.repetition.placeholders[number] for name, number in pairs if isinstance(name, str)}

    # ------------------------------------------------------------------ inputs

    def inputs(self) -> None:
        """The short graph's are where they were, and each of the others is like one of those."""
        program, repetition = self.unrolled.program, self.repetition
        for number, value in zip(repetition.positions, self.unrolled.short.inputs, strict=True):
            if program.inputs[number] != value:
                raise BackendFailed(f"repeated layers: input {number} is {program.inputs[number]}, not {value}")
        if len(self.given) != sum(isinstance(name, str) for name in program.inputs):
            raise BackendFailed("repeated layers: one buffer is two inputs")
        before = {y: x for x, y in repetition.following.items()}
        for name, placeholder in self.given.items():
            if name in self.short_given:
                continue
            like = before.get(placeholder)
            if like is None or described_value(like.meta.get("val")) != described_value(placeholder.meta.get("val")):
                raise BackendFailed(f"repeated layers: the input {placeholder} is not like one before")
        for size, reading in program.sizes.items():
            if program.inputs[reading.input] is None:
                raise BackendFailed(f"repeated layers: {size} is read from an input that is not there")

    def _following(self, placeholder: fx.Node, later: int) -> fx.Node | None:
        if placeholder not in self.chains:
            return placeholder
        chain, at = self.chains[placeholder]
        return chain[at + later] if at + later < len(chain) else None

    # ------------------------------------------------------------------ items

    def item(self, copy: Copy) -> None:
        """It does to its own memory what its template does, and comes when it should."""
        named, item, names = self.unrolled.templates[copy.template], copy.item, copy.names
        template = named.item
        pairs = [(template.reads, item.reads), (template.writes, item.writes), (template.after, item.after)]
        if isinstance(item, Kernel) and isinstance(template, Kernel):
            pairs.append((frozenset(template.buffers), frozenset(item.buffers)))
        touched = _touched(template)
        same = type(item) is type(template) and len({names.get(n, n) for n in touched}) == len(touched)
        if not same or any(theirs != {names.get(n, n) for n in own} for own, theirs in pairs):
            raise BackendFailed(f"repeated layers: {item} does not do what {template} does")
        if item.nodes != self._originals(template.nodes, copy.later):
            raise BackendFailed(f"repeated layers: the nodes of {item} are not those {copy.later} periods later")
        like = None if copy.like is None else self.unrolled.templates[copy.like]
        if like is not None and like.key != named.key:
            raise BackendFailed(f"repeated layers: {like.item} is not like {template}")
        others = dict(zip(named.names, named.names if like is None else like.names, strict=True))
        for name in touched:
            moves = None if like is None else others[name] != name
            self._touch(name, copy, moves)
        for name in sorted(template.writes):
            by = self._write(named, name)
            own = by.node and self._originals([by.node], copy.later)[0]
            self.whole.write(names.get(name, name), _Write(item.nodes, own, by.number))

    def _touch(self, name: str, copy: Copy, moves: bool | None) -> None:
        """The buffer has the shape and the place that it has in the short graph, and holds what it should.

        ``moves``: is it another one a period later? None if nothing tells but where it was made.
        """
        other, before = copy.names.get(name, name), self.versions[copy.template]
        own, theirs = self.unrolled.short.buffers[name], self.unrolled.program.buffers.get(other)
        fields = ("dtype", "size", "stride", "device")
        if theirs is None or any(getattr(own, f) != getattr(theirs, f) for f in fields):
            raise BackendFailed(f"repeated layers: {other} is not like {name}, in {copy.item}")
        if isinstance(copy.item, Kernel) and copy.item.buffers.get(other, own.dtype) is not own.dtype:
            raise BackendFailed(f"repeated layers: {other} is of another dtype, in {copy.item}")
        (root, offsets), (other_root, other_offsets) = self.short.place(name), self.whole.place(other)
        if offsets != other_offsets:
            raise BackendFailed(f"repeated layers: {other} is not where {name} is, in {copy.item}")
        if self.whole.version(other_root) != before[root]:
            raise BackendFailed(f"repeated layers: {other} has been written to more or less often, in {copy.item}")
        self._corresponds(root, other_root, copy.later, before[root], moves)
        template = self.unrolled.templates[copy.template].item
        reads = name in template.reads and not (isinstance(template, Kernel) and name in template.writes)
        if reads and not before[root] and other_root not in self.given and other_root not in self._constants:
            raise BackendFailed(f"repeated layers: {other} is read before it is filled, in {copy.item}")

    @property
    def _constants(self) -> Mapping[str, torch.Tensor]:
        return self.unrolled.program.constants

    def _corresponds(self, root: str, other: str, later: int, writes: int, moves: bool | None) -> None:
        """Memory holds at first what it should, and so many writes to it were those that it should get."""
        if not later or moves is None:
            moves = later > 0 and self._is_late(root, writes)
        key = root, other, later, moves
        if key not in self.proven:
            self.proven[key] = 0
            given, other_given = self.short_given.get(root), self.given.get(other)
            if other_given is not (given and self._following(given, later)):
                raise BackendFailed(f"repeated layers: {other} is {other_given}, not {later} after {given}")
            if not _same_constant(self.unrolled.short.constants.get(root), self._constants.get(other)):
                raise BackendFailed(f"repeated layers: {other} is not the constant {root}")
        for number in range(self.proven[key], writes):
            wanted = (
                self._later_write(self.short.writes[root][number], later) if moves else self._write_now(root, number)
            )
            if self.whole.writes[other][number] != wanted:
                raise BackendFailed(f"repeated layers: {other} was written by others than {root} was")
        self.proven[key] = max(writes, self.proven[key])

    def _is_late(self, root: str, writes: int) -> bool:
        """Was memory written to in the last periods before the cut, or after it?"""
        repetition = self.repetition
        least = repetition.cut - NEAR * repetition.period
        made = [by.nodes if by.node is None else [by.node] for by in self.short.writes.get(root, [])[:writes]]
        late = {self.places[node] >= least for nodes in made for node in nodes}
        if len(late) > 1:
            raise BackendFailed(f"repeated layers: {root} was written by several periods")
        return True in late

    def _write_now(self, root: str, number: int) -> _Write:
        """As in the short graph, for what is before all that was left out."""
        by = self.short.writes[root][number]
        return _Write(self._originals(by.nodes, 0), by.node and self._originals([by.node], 0)[0], by.number)

    def _later_write(self, by: _Write, later: int) -> _Write:
        """The same so many periods later; of a node before the first period, too: that period reads it as its own."""
        nodes = by.nodes if by.node is None else (*by.nodes, by.node)
        found = []
        for node in nodes:
            at = self.places[node]
            if later and at < self.repetition.begin:
                found.append(self.repetition.nodes[at + later * self.repetition.period])
                if found[-1].target is not node.target or not _alike(found[-1], node):
                    raise BackendFailed(f"repeated layers: {found[-1]} is not like {node}")
            else:
                found.append(self.repetition.original(at, later))
        return _Write(tuple(found[: len(by.nodes)]), by.node and found[-1], by.number)

    def _originals(self, nodes: Sequence[fx.Node], later: int) -> tuple[fx.Node, ...]:
        return tuple(self.repetition.original(self.places[node], later) for node in nodes)

    # ------------------------------------------------------------------ the end

    def effects(self) -> None:
        """What has effects, such as drawing random numbers, comes in the order of the graph."""
        last = -1
        for item in self.unrolled.items:
            if isinstance(item, Extern) and item.has_effect:
                at = max((self.whole_places[node] for node in item.nodes), default=-1)
                if at < last:
                    raise BackendFailed(f"repeated layers: {item} comes too late")
                last = at

    def end(self) -> None:
        """Results and checks are what they should be, and nobody has written to memory more often than he should."""
        for key in self.proven:
            root, other, *_ = key
            if self.whole.version(other) != self.short.version(root):
                raise BackendFailed(f"repeated layers: {other} was not written to as often as {root}")
        program, short, repetition = self.unrolled.program, self.unrolled.short, self.repetition
        if not len(program.outputs) == len(repetition.results) == len(self.unrolled.origins):
            raise BackendFailed(f"repeated layers: {len(program.outputs)} results")
        for result, output, origin in zip(repetition.results, program.outputs, self.unrolled.origins, strict=True):
            if isinstance(result, fx.Node):
                self._result(result, output, origin)
            elif origin is not None or output is not result:
                raise BackendFailed(f"repeated layers: the result {output} is not {result}")
        if program.checks != short.checks:
            raise BackendFailed("repeated layers: other checks")
        for name, _, _ in program.checks:
            self._holds(name, name, repetition.left_out)

    def _result(self, result: fx.Node, output: Any, origin: tuple[fx.Node, int] | None) -> None:
        if origin is None:
            raise BackendFailed(f"repeated layers: nothing stands for the result {result}")
        node, later = origin
        if self._later(node, later) is not result or not _alike(node, result):
            raise BackendFailed(f"repeated layers: {node} is not the result {result} some periods before")
        own = self.unrolled.short.outputs[self.repetition.shown[node]]
        if not isinstance(own, Strided):
            if output is not own or node is not result:
                raise BackendFailed(f"repeated layers: the number {result} is {output}")
            return
        fields = ("dtype", "size", "stride", "offset")
        if type(output) is not type(own) or any(getattr(output, f) != getattr(own, f) for f in fields):
            raise BackendFailed(f"repeated layers: the result {result} is {output}")
        early = self.whole_places.get(node, 0) < self.repetition.cut
        self._holds(own.buffer, output.buffer, later, True if later and early else None)

    def _later(self, node: fx.Node, later: int) -> fx.Node | None:
        """What is in the place of a node of the whole graph that the short one has, so many periods later."""
        if node.op == "placeholder":
            return self._following(node, later)
        at = self.whole_places[node]
        if at >= self.repetition.cut:
            at -= self.repetition.left_out * self.repetition.period
        return self.repetition.original(at, later)

    def _holds(self, name: str, other: str, later: int, moves: bool | None = None) -> None:
        """A buffer holds in the end what it should; ``moves``: see ``_touch``."""
        (root, offsets), (other_root, other_offsets) = self.short.place(name), self.whole.place(other)
        writes = self.short.version(root)
        if offsets != other_offsets or writes != self.whole.version(other_root):
            raise BackendFailed(f"repeated layers: {other} is not what {name} is")
        if not writes and other_root not in self.given and other_root not in self._constants:
            raise BackendFailed(f"repeated layers: {other} is never filled")
        self._corresponds(root, other_root, later, writes, moves)


def _origins(program: Program) -> dict[str, tuple[fx.Node | None, int]]:
    """By buffer the node for which it was made, and how many of those for that node came before."""
    found: dict[str, tuple[fx.Node | None, int]] = {}
    counts: dict[fx.Node, int] = {}
    for step in program.steps:
        for name in [step.buffer] if isinstance(step, Computed) else step.buffers:
            if name is not None and step.nodes:
                node = step.nodes[0]
                found[name] = node, counts.get(node, 0)
                counts[node] = found[name][1] + 1
    return found


def _same_constant(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.dtype is not other.dtype:
        return one is other
    return one is other or one.is_set_to(other)


def _touched(item: Item) -> frozenset[str]:
    return item.reads | item.writes | item.after


def _alike(node: fx.Node, other: fx.Node) -> bool:
    return described_value(node.meta.get("val")) == described_value(other.meta.get("val"))
