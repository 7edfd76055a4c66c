"""A kernel: fused loop nests as an emitter gets them. Everything is decided but how to write a loop.

    for outer in parallel:          # the outer loops, split between the threads
        nest 1                      # each nest: loops of its own (or none: runs once), then statements
        nest 2                      # may use what reductions of nest 1 gave for this iteration
    combine the threads' partials
    finish                          # nests that run once, after all threads

A kernel without outer loops has one nest in its body, whose first loop is split between the threads; what that nest
reduces is combined over the threads and known in ``finish`` only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import fx

from jitney.errors import BackendFailed
from jitney_lowering.index import Index, Opaque, Size, Var
from jitney_lowering.ir.loops import REDUCTIONS, SCANS
from jitney_lowering.ir.shared_text import shared_text
from jitney_lowering.ir.values import Load, Position, Put, Ref, Value, walk


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value``. Stores of one kernel never write one place twice with different values."""

    buffer: str
    index: Index
    value: Value

    def show(self, text: Callable[[Value], str]) -> str:
        """Readable text; ``text``: that of a value."""
        return f"{self.buffer}[{self.index}] = {text(self.value)}"

    def __str__(self) -> str:
        return self.show(str)


@dataclass(frozen=True)
class Reduce:
    """``ref(name) = kind over all iterations of the nest of value``; see ``loops.REDUCTIONS``.

    ``position`` (``argmax`` and ``argmin`` only) is the number of the iteration that is the result.
    """

    name: str
    kind: str
    value: Value
    position: Index | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the result."""
        return torch.int64 if self.position is not None else self.value.dtype

    def show(self, text: Callable[[Value], str]) -> str:
        """Readable text; ``text``: that of a value."""
        at = f" at {self.position}" if self.position is not None else ""
        return f"{self.name} = {self.kind}({text(self.value)}{at})"

    def __str__(self) -> str:
        return self.show(str)


@dataclass(frozen=True)
class Scan:
    """``ref(name) = kind over all iterations of the nest up to this one of value``, in the order of its loops.

    Known to the statements after it in the nest, in the same iteration, and to nobody else. ``kind`` is one of those of
    ``loops.SCANS``; what is accumulated has the value's dtype. Only in a kernel with outer loops.
    """

    name: str
    kind: str
    value: Value

    def show(self, text: Callable[[Value], str]) -> str:
        """Readable text; ``text``: that of a value."""
        return f"{self.name} = running {self.kind}({text(self.value)})"

    def __str__(self) -> str:
        return self.show(str)


@dataclass(frozen=True)
class Accumulate:
    """``buffer[index] = kind(buffer[index], value)`` where the buffer is a ``Scratch`` or a ``Partial`` of the kernel.

    No two iterations of the nest's innermost loop have the same index, or all of them have.
    """

    buffer: str
    index: Index
    kind: str
    value: Value

    def show(self, text: Callable[[Value], str]) -> str:
        """Readable text; ``text``: that of a value."""
        return f"{self.buffer}[{self.index}] {self.kind}= {text(self.value)}"

    def __str__(self) -> str:
        return self.show(str)


@dataclass(frozen=True)
class Scatter:
    """What ``value`` says is done, once for each iteration; ``buffer`` is what is there after all of them.

    Alone in its kernel with others of its kind.
    """

    buffer: str
    value: Put

    @property
    def index(self) -> Index:
        """The place."""
        return self.value.index

    def show(self, text: Callable[[Value], str]) -> str:
        """Readable text; ``text``: that of a value."""
        return f"{self.buffer}: {text(self.value)}"

    def __str__(self) -> str:
        return self.show(str)


Statement = Store | Reduce | Scan | Accumulate | Scatter


@dataclass(frozen=True)
class Nest:
    """Loops, outermost first, and what is done in the innermost, in this order. Vectors go along the innermost."""

    loops: tuple[Var, ...]
    statements: tuple[Statement, ...]

    def lines(self) -> Iterator[str]:
        """Readable text."""
        pad = ""
        for var in self.loops:
            yield f"{pad}for {var} < {var.size}:"
            pad += "    "
        for line in shared_text(self.statements, lambda statement, text: statement.show(text)):
            yield pad + line


@dataclass(frozen=True)
class Scratch:
    """Memory for one iteration of the outer loops, of each thread; not initialised."""

    name: str
    dtype: torch.dtype
    extent: Index  # elements

    def __str__(self) -> str:
        return f"{self.name}: {str(self.dtype).removeprefix('torch.')}[{self.extent}]"


@dataclass(frozen=True)
class Partial:
    """An accumulator of each thread, set to ``kind``'s identity first; after the loops they are combined to one."""

    name: str
    dtype: torch.dtype
    extent: Index
    kind: str

    def __str__(self) -> str:
        return f"{self.name}: {self.kind} of {str(self.dtype).removeprefix('torch.')}[{self.extent}]"


@dataclass(frozen=True)
class Kernel:
    """See the module. ``buffers`` holds the dtype of each buffer that is read or written from outside.

    ``after``: buffers of those of the program's checks that it writes only if they hold; others filled them before.
    """

    name: str
    outer: tuple[Var, ...]
    body: tuple[Nest, ...]
    buffers: dict[str, torch.dtype]
    finish: tuple[Nest, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    partials: tuple[Partial, ...] = ()
    nodes: tuple[fx.Node, ...] = ()
    after: frozenset[str] = frozenset()

    def __hash__(self) -> int:  # a dict has none; kernels with equal code have equal buffers, nearly always
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.name, self.outer, self.body, self.finish, self.scratch, self.partials))

    @property
    def memory(self) -> tuple[Scratch | Partial, ...]:
        """What it has besides the buffers from outside."""
        return (*self.scratch, *self.partials)

    @functools.cached_property
    def sizes(self) -> frozenset[Size]:
        """The symbolic sizes that appear anywhere."""
        found: set[Size] = set()
        for expression in self._indices():
            found |= {a for a in expression.atoms if isinstance(a, Size)}
        return frozenset(found)

    def _indices(self) -> Iterator[Index]:
        yield from (v.size for v in self.outer)
        yield from (m.extent for m in self.memory)
        for nest in (*self.body, *self.finish):
            yield from (v.size for v in nest.loops)
            for statement in nest.statements:
                if isinstance(statement, Reduce):
                    if statement.position is not None:
                        yield statement.position
                elif not isinstance(statement, Scan):
                    yield statement.index
                for value in walk(statement.value):
                    if isinstance(value, (Load, Position)):
                        yield value.index

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """Buffers from outside that it loads from."""
        loads = {v.buffer for n in (*self.body, *self.finish) for s in n.statements for v in walk(s.value)
                 if isinstance(v, (Load, Put))}  # fmt: skip
        return frozenset(loads & self.buffers.keys())

    @functools.cached_property
    def writes(self) -> frozenset[str]:
        """Buffers from outside that it stores to."""
        return frozenset(s.buffer for n in (*self.body, *self.finish) for s in n.statements
                         if isinstance(s, (Store, Scatter)) and s.buffer in self.buffers)  # fmt: skip

    @property
    def unused(self) -> frozenset[str]:
        """Buffers from outside that nothing is done with."""
        return frozenset(self.buffers) - self.reads - self.writes

    def without_unused(self) -> Kernel:
        """The same, given no more buffers than it loads from and stores to."""
        unused = self.unused
        if not unused:
            return self
        return replace(self, buffers={name: dtype for name, dtype in self.buffers.items() if name not in unused})

    def verify(self) -> None:
        """Names, dtypes and scopes fit; raises ``BackendFailed``."""
        memory = dict(self.buffers)
        for own in self.memory:
            if own.name in memory:
                raise BackendFailed(f"kernel {self.name}: {own.name} is two things")
            memory[own.name] = own.dtype
        if not self.outer and len(self.body) != 1:
            raise BackendFailed(f"kernel {self.name}: {len(self.body)} nests without outer loops")
        self._verify_order()
        known: dict[str, torch.dtype] = {}
        for nest in self.body:
            results = self._verify_nest(nest, {*self.outer, *nest.loops}, memory, known)
            if self.outer:
                known |= results
        if self.outer:
            known = {}
        else:
            known = results
        for nest in self.finish:
            known |= self._verify_nest(nest, {*nest.loops}, memory, known)

    def _verify_order(self) -> None:
        """Nothing is read before it is stored, and in the nest that stores it only where it is stored."""
        stored = {
            s.buffer: (at, s) for at, nest in enumerate(self.body) for s in nest.statements if isinstance(s, Store)
        }
        for at, nest in enumerate(self.body):
            for s in nest.statements:
                for v in walk(s.value):
                    if not isinstance(v, Load) or v.buffer not in stored:
                        continue
                    when, store = stored[v.buffer]
                    same = v.index is store.index
                    if when > at or (when == at and not same):
                        raise BackendFailed(f"kernel {self.name}: {v} is read before it is stored, in {s}")

    def _verify_nest(
        self, nest: Nest, scope: set[Var], memory: dict[str, torch.dtype], known: dict[str, torch.dtype]
    ) -> dict[str, torch.dtype]:
        results: dict[str, torch.dtype] = {}
        known = dict(known)
        own = {m.name for m in self.memory}
        for s in nest.statements:
            bound: set[Opaque] = set()
            for v in walk(s.value):
                if isinstance(v, Ref) and known.get(v.name) is not v.dtype:
                    raise BackendFailed(f"kernel {self.name}: {v} ({v.dtype}) is not known in {s}")
                if isinstance(v, (Load, Put)):
                    bound |= {atom for atom, _ in v.indirect}
                    if memory.get(v.buffer) is not v.dtype:
                        raise BackendFailed(f"kernel {self.name}: {v} is not {v.dtype} in {s}")
                if isinstance(v, (Load, Put, Position)):
                    self._verify_scope(v.index, scope, bound, s)
            if isinstance(s, Reduce):
                if s.kind not in REDUCTIONS or (s.position is None) == s.kind.startswith("arg"):
                    raise BackendFailed(f"kernel {self.name}: {s.kind} is no reduction, or its position is wrong")
                results[s.name] = s.dtype
                continue
            if isinstance(s, Scatter):
                continue
            if isinstance(s, Scan):
                if s.kind not in SCANS.values() or s.name in known or not self.outer or not nest.loops:
                    raise BackendFailed(f"kernel {self.name}: no scan of a row is {s}")
                known[s.name] = s.value.dtype
                continue
            self._verify_scope(s.index, scope, set(), s)
            if memory.get(s.buffer) is not s.value.dtype:
                raise BackendFailed(f"kernel {self.name}: {s.buffer} is not {s.value.dtype}, in {s}")
            if isinstance(s, Accumulate) and s.buffer not in own:
                raise BackendFailed(f"kernel {self.name}: {s.buffer} is shared by threads, in {s}")
        return results

    def _verify_scope(self, index: Index, scope: set[Var], bound: set[Opaque], where: Statement) -> None:
        for atom in index.atoms:
            if atom not in scope and atom not in bound and not isinstance(atom, Size):
                raise BackendFailed(f"kernel {self.name}: {atom} is no loop around {where}")

    def __str__(self) -> str:
        lines = [f"kernel {self.name}:"]
        lines += [
            f"  {kind} {m}" for kind, all_ in (("scratch", self.scratch), ("partial", self.partials)) for m in all_
        ]
        pad = "  "
        if self.outer:
            lines.append(f"  parallel for {', '.join(f'{v} < {v.size}' for v in self.outer)}:")
            pad = "    "
        for nest in self.body:
            lines += [pad + line for line in nest.lines()]
        if self.finish:
            lines.append("  finish:")
        for nest in self.finish:
            lines += ["    " + line for line in nest.lines()]
        return "\n".join(lines)
