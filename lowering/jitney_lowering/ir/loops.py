"""What a graph is lowered to: buffers, and in order the loop nests and extern calls that fill them.

A ``Computed`` buffer is one nest: for every value of ``vars`` one element is stored, computed from one value
(pointwise) or reduced from the values for all ``reduced``. An ``Extern`` is an operator that runs as a whole. Nothing
is said yet about fusion, order of loops or memory: that is the schedule's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import fx

from jitney.errors import BackendFailed
from jitney.torch_compat import operator_effects
from jitney_lowering.index import Index, Opaque, Size, Var, index
from jitney_lowering.ir.values import Load, Position, Put, Ref, Value, walk
from jitney_lowering.repeats.repetition import Repetition

# kind of reduction -> how many results it has
REDUCTIONS: dict[str, int] = {"sum": 1, "prod": 1, "max": 1, "min": 1, "any": 1, "all": 1, "argmax": 1, "argmin": 1}
"""``sum``/``prod`` in the value's dtype; ``max``/``min`` give nan if one is nan; ``any``/``all`` of bool; ``argmax``
and ``argmin`` give the int64 linear position in ``reduced`` (row-major) of the first extreme, or of the first nan."""

SCATTER = "scatter"
SORT = "sort"  # the scan whose results depend on later values, too
POINTWISE = frozenset({"pointwise", SCATTER})  # each iteration does something of its own

# kind of scan -> the reduction whose running results it stores
SCANS: dict[str, str] = {
    "cumsum": "sum",
    "cumprod": "prod",
    "cummax": "max",
    "cummin": "min",
    "logcumsumexp": "logsumexp",
    SORT: SORT,
}
"""One result for each iteration of ``reduced``, in row-major order: of the values up to this one. The exception is
``sort``: integers, all of them in ascending order. The values are in the dtype in which they are accumulated; the
buffer may have another one, to which each result is converted. Which of the values before are put together first is the
emitter's choice. ``logsumexp`` is a logarithm of a sum of powers of e, as ``torch.logcumsumexp`` has it: of floats, and
of scans only."""


_IDENTITIES: dict[str, Callable[[torch.dtype], bool | int | float]] = {
    "sum": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "max": lambda dtype: -float("inf") if dtype.is_floating_point else _least(dtype),
    "min": lambda dtype: float("inf") if dtype.is_floating_point else _most(dtype),
    "any": lambda dtype: False,
    "all": lambda dtype: True,
    "logsumexp": lambda dtype: -float("inf"),
    SORT: lambda dtype: _most(dtype),
}
_IDENTITIES |= {"argmax": _IDENTITIES["max"], "argmin": _IDENTITIES["min"]}


def _least(dtype: torch.dtype) -> int:
    return 0 if dtype is torch.bool else torch.iinfo(dtype).min


def _most(dtype: torch.dtype) -> int:
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What a reduction begins with, and what it gives for no values; of ``argmax`` and ``argmin`` the extreme."""
    return _IDENTITIES[kind](dtype)


@dataclass(frozen=True)
class Buffer:
    """A piece of memory that holds a strided tensor.

    Args:
        name: unique in the graph.
        dtype: of its elements.
        size: of the tensor.
        stride: in elements; an element's place is the sum of index times stride, plus ``offset``.
        offset: in elements, from the first byte that the buffer's pointer names (inputs: always 0).
        device: where.
        home: the buffer in whose memory it lies, as a part of that, and how many elements after the first.
    """

    name: str
    dtype: torch.dtype
    size: tuple[Index, ...]
    stride: tuple[Index, ...]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    home: tuple[str, Index] | None = None

    def place(self, at: Sequence[Index]) -> Index:
        """The element's place, in elements from the buffer's first."""
        total = index(0)
        for i, stride in zip(at, self.stride, strict=True):
            total = total + i * stride
        return total

    @functools.cached_property
    def extent(self) -> Index:
        """How many elements its memory spans, if none of its sizes is 0."""
        total = index(1)
        for size, stride in zip(self.size, self.stride, strict=True):
            total = total + (size - 1) * stride
        return total

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.size))
        return f"{self.name}: {str(self.dtype).removeprefix('torch.')}[{sizes}]"


@dataclass(frozen=True)
class Computed:
    """One loop nest: ``buffer[place] = value``, or a reduction of ``value`` over ``reduced``, or a scan along these.

    Of the kind ``"scatter"`` the value is a ``Put``, into a buffer that lies in the memory of this one, and that nobody
    else reads.

    The place of a scan's result depends on ``reduced`` too, those are its innermost loops, and it has several rows.
    ``vars`` and ``reduced`` are in the order of the loops that the lowering proposes, ``order`` says how they
    interleave (a permutation of both: what the data's memory order suggests), outermost first. What is ``apart`` is a
    kernel of its own; what is ``late`` goes with others that are.
    """

    buffer: str
    vars: tuple[Var, ...]
    place: Index
    value: Value
    reduced: tuple[Var, ...] = ()
    kind: str = "pointwise"
    order: tuple[Var, ...] = ()
    nodes: tuple[fx.Node, ...] = ()
    apart: bool = False
    late: bool = False

    @property
    def loops(self) -> tuple[Var, ...]:
        """All loop variables, outermost first."""
        return self.order or (*self.vars, *self.reduced)

    def places(self) -> Iterator[Index]:
        """Where it stores, then all that it names by loops: what it loads, positions, where it scatters to."""
        yield self.place
        for value in walk(self.value):
            if isinstance(value, (Load, Position, Put)):
                yield value.index

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """Names of the buffers that it loads from."""
        return frozenset(v.buffer for v in walk(self.value) if isinstance(v, (Load, Put)))

    @property
    def writes(self) -> frozenset[str]:
        """The buffer that it fills."""
        return frozenset({self.buffer})

    def __str__(self) -> str:
        space = ", ".join(f"{v} < {v.size}" for v in self.vars)
        body = str(self.value)
        if self.kind != "pointwise":
            body = f"{self.kind}[{', '.join(f'{v} < {v.size}' for v in self.reduced)}] {body}"
        return f"for {space or '()'}: {self.buffer}[{self.place}] = {body}"


@dataclass(frozen=True)
class Strided:
    """A tensor argument of an extern call: a strided view of a buffer, ``offset`` elements into it."""

    buffer: str
    dtype: torch.dtype
    size: tuple[Index, ...]
    stride: tuple[Index, ...]
    offset: Index


@dataclass(frozen=True)
class Number(Strided):
    """A Python float: the element of a tensor without dimensions, in float64."""


@dataclass(frozen=True)
class Extern:
    """An operator that runs as a whole.

    Args:
        buffers: what it makes, in the order of its tensor results; None for results that nobody reads.
        target: the ATen overload.
        args, kwargs: as in the FX node, with ``Strided`` for tensors, ``Index`` for symbolic sizes and ``Number`` for
            symbolic floats, nested in tuples and lists as there.
        written: names of buffers that it changes in place.
        reason: why it has no loops.
        into: its one result is written to memory that it is given; the backend launches it together with kernels.
        fresh: so does the backend here, but the operator makes its one result, whose address is known only then.
        after: buffers of those of the program's checks that come before it: it writes only if they hold.
    """

    buffers: tuple[str | None, ...]
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    written: frozenset[str] = frozenset()
    reason: str = ""
    nodes: tuple[fx.Node, ...] = ()
    into: bool = False
    fresh: bool = False
    after: frozenset[str] = frozenset()

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """Names of the buffers among its arguments, and of checks."""
        return self.after.union(s.buffer for s in strided((self.args, self.kwargs)))

    @property
    def aliases(self) -> bool:
        """May a result share memory with an argument, or the operator go on reading it, as collectives do?"""
        schema = getattr(self.target, "_schema", None)
        collective = getattr(self.target, "namespace", "") == "_c10d_functional"
        if schema is None or collective or self.target in operator_effects.VIEWS:
            return True
        return any(result.alias_info is not None for result in schema.returns)

    @property
    def has_effect(self) -> bool:
        """Must it run, in its place, whoever reads its result? One that returns nothing is an assertion, say."""
        schema = getattr(self.target, "_schema", None)
        draws = torch.Tag.nondeterministic_seeded in getattr(self.target, "tags", ())
        return bool(self.written) or draws or schema is None or not schema.returns

    @property
    def launched(self) -> bool:
        """Does the backend launch it together with kernels?"""
        return self.into or self.fresh

    @property
    def is_plain(self) -> bool:
        """Does it make one new tensor, and nothing else?"""
        return self.returns_one and not self.aliases and None not in self.buffers and not self.has_effect

    @property
    def returns_one(self) -> bool:
        """Does the operator return one tensor, rather than several or a list?"""
        schema = getattr(self.target, "_schema", None)
        return schema is not None and [str(r.type) for r in schema.returns] == ["Tensor"]

    @functools.cached_property
    def writes(self) -> frozenset[str]:
        """What it fills or changes."""
        return self.written | {b for b in self.buffers if b is not None}

    def __str__(self) -> str:
        return f"{', '.join(b or '_' for b in self.buffers)} = {self.target}({', '.join(sorted(self.reads))})"


def strided(arguments: Any) -> list[Strided]:
    """All tensor arguments in nested arguments."""
    if isinstance(arguments, Strided):
        return [arguments]
    if isinstance(arguments, Mapping):
        arguments = arguments.values()
    if isinstance(arguments, (tuple, list)) or (
        not isinstance(arguments, (str, bytes, int, float)) and hasattr(arguments, "__iter__")
    ):
        return [s for a in arguments for s in strided(a)]
    return []


Step = Computed | Extern

# The reason of copies to inputs that nobody reads any more: they come after all else.
LAST = "writes at the end"


class Reading(NamedTuple):
    """Where a symbolic size is read: the input's number, and its value, or a size or stride of it at ``dim``."""

    input: int
    what: Literal["value", "size", "stride"]
    dim: int = 0


@dataclass
class Program:
    """A lowered graph.

    Args:
        buffers: all, by name.
        inputs: per placeholder the name of its buffer, the size that it binds, or None for one that nobody reads.
        steps: in an order in which they may run.
        outputs: per output of the graph a tensor, a size, a ``Number``, a plain number or None.
        sizes: the symbolic sizes that may appear, and where each is read.
        checks: what must not have happened when the graph has run: (a buffer of one bool, the message, the exception).
        constants: tensors that the graph holds, by the name of their buffer: full before the first step.
        floats: the inputs that are Python floats; their buffers are float64 without dimensions.
        numbers: integers made of the sizes that kernels compute with: 64 bits must hold them.
        lazy: buffers that others fill with what is conjugated or negated lazily.
        repetition: what was left out, if this is the program of a graph without most of its equal blocks; all else is
            that graph's then.
    """

    buffers: dict[str, Buffer]
    inputs: list[str | Size | None]
    steps: list[Step]
    outputs: list[Strided | Index | Any]
    sizes: dict[Size, Reading]
    checks: list[tuple[str, str, type[Exception]]] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    floats: frozenset[int] = frozenset()
    numbers: tuple[Index, ...] = ()
    lazy: frozenset[str] = frozenset()
    repetition: Repetition | None = None

    def verify(self) -> None:
        """Every buffer is filled once and before it is read, dtypes agree, loop variables are the nest's own."""
        ready = {name for name in self.inputs if isinstance(name, str)} | self.constants.keys()
        for step in self.steps:
            fresh = {step.buffer} if isinstance(step, Computed) else {b for b in step.buffers if b}
            for name in step.reads - ready:
                raise BackendFailed(f"lowering: {name} is read before it is filled, in {step}")
            for name in fresh & ready:
                raise BackendFailed(f"lowering: {name} is filled twice, in {step}")
            for name in fresh - self.buffers.keys():
                raise BackendFailed(f"lowering: {name} is no buffer, in {step}")
            if isinstance(step, Computed):
                self._verify_nest(step)
            ready |= fresh
        for output in self.outputs:
            if isinstance(output, Strided) and output.buffer not in ready:
                raise BackendFailed(f"lowering: the output {output.buffer} is never filled")
        for name, _, _ in self.checks:
            if name not in ready:
                raise BackendFailed(f"lowering: the check {name} is never filled")

    def _verify_nest(self, step: Computed) -> None:
        own = {*step.vars, *step.reduced}
        if {*step.loops} != own or len(step.loops) != len(own):
            raise BackendFailed(f"lowering: the order of loops is not of its variables, in {step}")
        if step.kind not in POINTWISE and step.kind not in REDUCTIONS and step.kind not in SCANS:
            raise BackendFailed(f"lowering: unknown reduction {step.kind}")
        if isinstance(step.value, Put) != (step.kind == SCATTER):
            raise BackendFailed(f"lowering: {step.value} is no value of {step}")
        if isinstance(step.value, Put) and self.buffers[step.value.buffer].home != (step.buffer, index(0)):
            raise BackendFailed(f"lowering: {step.value.buffer} does not lie where {step.buffer} does, in {step}")
        if step.kind in SCANS:
            self._verify_scan(step)
        wanted = torch.int64 if step.kind.startswith("arg") else step.value.dtype
        if self.buffers[step.buffer].dtype is not wanted and step.kind not in SCANS:
            raise BackendFailed(f"lowering: {self.buffers[step.buffer]} is filled with {wanted}, in {step}")
        places = [step.place]
        bound: set[Opaque] = set()
        for v in walk(step.value):
            if isinstance(v, Ref):
                raise BackendFailed(f"lowering: {v} before there is a kernel, in {step}")
            if isinstance(v, (Load, Put)):
                if v.dtype is not self.buffers[v.buffer].dtype:
                    raise BackendFailed(f"lowering: {v} as {v.dtype}, in {step}")
                places.append(v.index)
                bound |= {atom for atom, _ in v.indirect}
            elif isinstance(v, Position):
                places.append(v.index)
        for place in places:
            for atom in place.atoms:
                known = atom in own or atom in bound or (isinstance(atom, Size) and atom in self.sizes)
                if not known:
                    raise BackendFailed(f"lowering: {atom} in {place} comes from nowhere, in {step}")

    def _verify_scan(self, step: Computed) -> None:
        rows = any(v.size.value != 1 for v in step.vars)
        along = step.reduced and all(v.size.value not in (0, 1) for v in step.reduced)
        if not rows or not along or step.loops != (*step.vars, *step.reduced):
            raise BackendFailed(f"lowering: a scan goes along the innermost loops of several rows, in {step}")

    def __str__(self) -> str:
        lines = [f"inputs {', '.join(str(i) for i in self.inputs)}"]
        lines += [str(step) for step in self.steps]
        lines.append(f"outputs {', '.join(o.buffer if isinstance(o, Strided) else str(o) for o in self.outputs)}")
        return "\n".join(lines)
