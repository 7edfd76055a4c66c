"""Puts steps and buffers together while a graph is lowered."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import fx

from jitney_lowering.aten.complex_memory import ComplexView, Numbers, RealView, of_parts, parts_of
from jitney_lowering.aten.one_hot import only_one
from jitney_lowering.aten.row_order import MUCH_SMALLER, RowOrder
from jitney_lowering.aten.tensor import (
    ZERO,
    Shape,
    Tensor,
    are_packed,
    chosen,
    contiguous,
    corner,
    count,
    dense,
    variables,
)
from jitney_lowering.aten.torch_sizes import Sizes
from jitney_lowering.index import Index, Names, Opaque, Var, index, product
from jitney_lowering.ir.fold import folded
from jitney_lowering.ir.loops import LAST, Buffer, Computed, Extern, Step, Strided
from jitney_lowering.ir.operations import ALL, HALVES, OPERATIONS
from jitney_lowering.ir.values import (
    FEW_LINES,
    LINE,
    Apply,
    Constant,
    Load,
    Position,
    Value,
    apply,
    checked,
    constant,
    holds,
    indirect,
    masked,
    position,
    rebuild,
    spacing,
    walk,
)
from jitney_lowering.policy import CPU, Policy

# A value is computed anew for each of its readers only if it is as cheap as this.
CHEAP_OPERATION = 4  # cost
CHEAP_OPERATIONS = 2
FLAGS = 8  # truth values put together in one step
# What one loop body may grow to before a part of it becomes a step of its own.
MANY_OPERATIONS = 60
MANY_LOADS = 12
WINDOW_LOADS = 64  # of a window that is written out


class Builder:
    """The program under construction.

    Args:
        sizes: the graph's symbolic sizes.
        relaxed: may results be kept in float32 between operations of lower precision?
        policy: what suits the machine.
        shown: nodes whose results somebody else sees, or writes to: each has memory of its own.
    """

    def __init__(
        self,
        sizes: Sizes,
        relaxed: bool = False,
        policy: Policy = CPU,
        shown: frozenset[fx.Node] = frozenset(),
    ) -> None:
        self.sizes = sizes
        self.policy = policy
        self.relaxed = relaxed
        self.shown = shown
        self.buffers: dict[str, Buffer] = {}
        self.rows = RowOrder(sizes.hint, self.buffers, policy)
        self.given: set[str] = set()  # those of inputs and constants, and what may share memory with them
        self.steps: list[Step] = []
        self.checks: list[tuple[str, str, type[Exception]]] = []
        self._last: list[tuple[Tensor, Tensor]] = []  # writes at the end
        self._wrong: dict[tuple[str, type[Exception]], list[Value]] = {}
        self.atoms: dict[Opaque, Value] = {}  # indices that are computed
        self.limits: dict[str, Index] = {}  # buffer -> a number that its elements are below, and none is negative
        self._refused: set[tuple[Value, Shape, str]] = set()
        self.asserts_caught = 0  # ``Checked`` values of kernels that raise an exception, which are the CPU's
        self.numbers = Numbers(self)
        self.lazy: set[str] = set()  # buffers that others fill with what is conjugated or negated lazily
        self.node: fx.Node | None = None  # what is being lowered
        self._names = Names()

    # ------------------------------------------------------------------ memory

    def buffer(
        self,
        dtype: torch.dtype,
        size: Sequence[Index],
        stride: Sequence[Index],
        device: torch.device,
        prefix: str,
        home: tuple[str, Index] | None = None,
    ) -> Buffer:
        """New memory, or a part of another buffer's."""
        made = Buffer(self._names.name(prefix), dtype, tuple(size), tuple(stride), device, home)
        self.buffers[made.name] = made
        return made

    def tensor(self, buffer: Buffer) -> Tensor:
        """All of a buffer."""
        strided = Strided(buffer.name, buffer.dtype, buffer.size, buffer.stride, ZERO)
        element = self.numbers.element(buffer.name) if buffer.dtype.is_complex else None
        return Tensor(
            buffer.size, buffer.dtype, buffer.device, element, strided=strided, wanted=buffer.stride, atoms=self.atoms
        )

    def filled(self, buffer: Buffer, fake: torch.Tensor) -> Tensor:
        """All of a buffer that somebody else fills, who may conjugate or negate it lazily."""
        made = self.tensor(buffer)
        if fake.is_conj() or fake.is_neg():
            self.lazy.add(buffer.name)
        if fake.is_conj():
            self.numbers.conjugated.add(buffer.name)
        if not fake.is_neg():
            return made
        return Tensor(
            made.size, made.dtype, made.device, lambda at: apply("neg", made.load(at)), strided=made.strided,
            wanted=made.wanted, atoms=made.atoms, paired=True,
        )  # fmt: skip

    def strides_for(self, tensor: Tensor) -> Shape:
        """The strides that a buffer of this tensor should have: eager's, unless these overlap or leave holes."""
        found = None if tensor.wanted is None else dense(tensor.size, tensor.wanted, self.sizes.hint)
        return contiguous(tensor.size) if found is None else found

    def is_own(self, tensor: Tensor, size: Shape, stride: Shape) -> bool:
        """Is it all of a buffer of these sizes and strides that the graph has made?"""
        lies = tensor.strided
        if lies is None or lies.buffer in self.given or lies.offset is not ZERO:
            return False
        buffer = self.buffers[lies.buffer]
        return (lies.size, lies.stride) == (buffer.size, buffer.stride) == (tuple(size), tuple(stride))

    def realise(self, tensor: Tensor, *, apart: bool = False) -> Strided:
        """Where the tensor lies; if nowhere yet, it is computed into a buffer, in a kernel of its own if wanted."""
        found = tensor.strided
        below = tensor.of if isinstance(tensor, RealView) else tensor.base if tensor.whole else None
        if found is None and below is not None:
            self.realise(below, apart=apart)
            found = tensor.strided
        if found is None:
            view = tensor.realised(self) if isinstance(tensor, ComplexView) else None
            found = view or self.stored(tensor, self.strides_for(tensor), apart=apart)
            paired = self.numbers.element(found.buffer) if tensor.dtype.is_complex else None
            tensor.lies(found, self.atoms, paired if view is None else tensor.element)
        return found

    def keep(self, tensor: Tensor) -> None:
        """Compute the tensor once for all who read it in loops. Of a widened one the narrow values are kept."""
        value = tensor.load(corner(tensor.size)) if tensor.base is None and tensor.strided is None else None
        if not (isinstance(value, Apply) and value.op == "cast" and holds(value.dtype, value.args[0].dtype)):
            self.realise(tensor)
            return
        dtype = value.args[0].dtype
        narrow = Tensor(tensor.size, dtype, tensor.device, _before_cast(tensor, dtype), wanted=tensor.wanted)
        self.realise(narrow)
        tensor.becomes(lambda at: apply("cast", narrow.load(at), dtype=tensor.dtype))

    def stored(
        self, tensor: Tensor, stride: Sequence[Index], home: tuple[str, Index] | None = None, *, apart: bool = False
    ) -> Strided:
        """A new buffer with these strides and the tensor's elements."""
        if tensor.dtype.is_complex:
            return self.numbers.stored(tensor, stride, home, apart)
        buffer = self.buffer(tensor.dtype, tensor.size, stride, tensor.device, "b", home)
        every = variables(tensor.size)
        self._computed(
            buffer, [v for v in every if v.size != 1], corner(tensor.size), tensor.load(corner(tensor.size)), apart
        )
        return Strided(buffer.name, buffer.dtype, buffer.size, buffer.stride, ZERO)

    def _computed(self, buffer: Buffer, own: Sequence[Var], at: Shape, value: Value, apart: bool = False) -> None:
        steps = dict(zip(variables(buffer.size), buffer.stride, strict=True))
        order = tuple(sorted(own, key=lambda v: -self.sizes.hint(steps[v])))
        self.steps.append(
            Computed(buffer.name, tuple(own), buffer.place(at), value, order=order, nodes=self.nodes(), apart=apart)
        )

    def nodes(self) -> tuple[fx.Node, ...]:
        """What steps are made for now."""
        return () if self.node is None else (self.node,)

    # ------------------------------------------------------------------ reductions

    def reduce(self, kind: str, source: Tensor, dims: Sequence[int], wanted: Shape | None = None) -> Tensor:
        """A reduction of ``loops.REDUCTIONS``, in the source's dtype, over these dimensions, which go.

        Args:
            kind: which; of complex numbers a sum.
            source: its elements.
            dims: numbers from 0, ascending; the position that ``argmax`` gives counts in this order.
            wanted: eager's strides of the result.
        """
        if source.dtype.is_complex:
            return of_parts(*(self.reduce(kind, part, dims, wanted) for part in parts_of(source)))
        every = variables(source.size)
        kept = [d for d in range(len(every)) if d not in dims]
        size = [source.size[d] for d in kept]
        dtype = torch.int64 if kind.startswith("arg") else source.dtype
        reduced = tuple(every[d] for d in dims if source.size[d] != 1)
        if not reduced:
            return self._unreduced(kind, source, kept, dtype)
        single = only_one(source.load(corner(source.size)), reduced) if kind == "sum" else None
        if single is not None:
            mine = [every[d] for d in kept]

            def element(at: Shape) -> Value:
                table = dict(zip(mine, at, strict=True))
                return rebuild(single, index=lambda i: i.substitute(table))

            return Tensor(size, dtype, source.device, element, wanted=wanted)
        if self.is_unrolled(source.size, dims) or self._slides(source, dims):
            return self._unrolled(kind, source, dims, dtype, wanted)
        if self.rows.is_scattered(source, every, dims):
            self.realise(source, apart=True)
        result = Tensor(size, dtype, source.device, wanted=wanted)
        buffer = self.buffer(dtype, size, self.strides_for(result), source.device, "r")
        own = tuple(every[d] for d in kept if source.size[d] != 1)
        value = source.load(corner(source.size))
        at = buffer.place([index(every[d]) for d in kept])
        order = self.rows.loops(source, every, reduced, kind)
        self.steps.append(Computed(buffer.name, own, at, value, reduced, kind, order, self.nodes()))
        if kind.startswith("arg"):
            self.limits[buffer.name] = product(reduced)
        return self.tensor(buffer)

    def is_unrolled(self, size: Shape, dims: Sequence[int]) -> bool:
        """Are these dimensions so short that a reduction over them is written out?"""
        number = count([size[d] for d in dims]).value
        if number is None or not 0 < number <= self.policy.unrolled_row:
            return False
        results = count([size[d] for d in range(len(size)) if d not in dims]).value
        return results is None or results >= self.policy.unrolled_results

    def _slides(self, source: Tensor, dims: Sequence[int]) -> bool:
        """Are these dimensions a short window over what neighbours read too, in windows of their own?"""
        number = count([source.size[d] for d in dims]).value
        if number is None or not 0 < number <= self.policy.unrolled_window:
            return False
        every = variables(source.size)
        own = {every[d] for d in dims}
        loads = [v for v in walk(source.load(corner(source.size))) if isinstance(v, Load)]
        inside = [read for read in loads if own & read.index.atoms]
        return bool(inside) and len(loads) * number <= WINDOW_LOADS and all(map(self._is_read_again, inside))

    def _is_read_again(self, read: Load) -> bool:
        """Do iterations at different places read the same elements, each at least twice?"""
        size = self.sizes.hint(count(self.buffers[read.buffer].size))
        loops = product(a for a in read.index.atoms if isinstance(a, Var))
        return not read.indirect and self.sizes.hint(loops) >= 2 * size

    def _unrolled(
        self, kind: str, source: Tensor, dims: Sequence[int], dtype: torch.dtype, wanted: Shape | None
    ) -> Tensor:
        kept = [d for d in range(len(source.size)) if d not in dims]
        places = list(itertools.product(*(range(source.size[d].value or 0) for d in dims)))

        def element(at: Shape) -> Value:
            full = dict(zip(kept, at, strict=True))
            rows = (full | dict(zip(dims, map(index, place), strict=True)) for place in places)
            return folded(kind, [source.load(tuple(row[d] for d in range(len(row)))) for row in rows])

        return Tensor([source.size[d] for d in kept], dtype, source.device, element, wanted=wanted)

    def scan(self, kind: str, source: Tensor, dim: int, dtype: torch.dtype, stride: Shape) -> Tensor:
        """A scan of ``loops.SCANS`` along a dimension, accumulated in the source's dtype.

        Args:
            kind: which.
            source: its elements.
            dim: along which; there are other dimensions.
            dtype: of the results.
            stride: of the results.
        """
        every = variables(source.size)
        buffer = self.buffer(dtype, source.size, stride, source.device, "c")
        hints = [self.sizes.hint(s) for s in stride]
        rows = sorted((d for d in range(len(every)) if d != dim), key=lambda d: -hints[d])
        own = tuple(every[d] for d in rows if source.size[d] != 1)
        along = (every[dim],)
        at = buffer.place([index(v) for v in every])
        value = source.load(corner(source.size))
        self.steps.append(Computed(buffer.name, own, at, value, along, kind, (*own, *along), self.nodes()))
        return self.tensor(buffer)

    def _unreduced(self, kind: str, source: Tensor, kept: Sequence[int], dtype: torch.dtype) -> Tensor:
        def element(at: Shape) -> Value:
            if kind.startswith("arg"):
                return constant(0, torch.int64)
            full = [ZERO] * len(source.size)
            for d, i in zip(kept, at, strict=True):
                full[d] = i
            value = source.load(tuple(full))
            if kind == "sum" and dtype.is_floating_point:  # it begins with 0, which makes 0.0 of -0.0
                return apply("add", value, constant(0.0, dtype))
            return value

        return Tensor([source.size[d] for d in kept], dtype, source.device, element)

    # ------------------------------------------------------------------ what is worth a step

    def is_trivial(self, tensor: Tensor) -> bool:
        """May each reader compute it anew? What is the same for many elements, such as a row's mean, hardly counts.

        What lies apart in memory, as one coordinate of points does, costs lines of the cache.
        """
        if tensor.strided is not None:
            return True
        own = self.sizes.hint(count(tensor.size))
        loads, lines, costs = 0, 0, []
        varies: dict[Value, frozenset[Var]] = {}
        every = variables(tensor.size)
        for v in walk(tensor.load(corner(tensor.size))):
            here = frozenset().union(*(varies[p] for p in v.parts))
            if isinstance(v, (Load, Position)):
                here |= {a for a in v.index.atoms if isinstance(a, Var)}
            varies[v] = here
            if isinstance(v, Load) and every and every[-1] in here and self._bytes(v.buffer) > FEW_LINES:
                lines += spacing(v, every, self.sizes.hint) - 1
            if math.prod(self.sizes.hint(var.size) for var in here) * MUCH_SMALLER <= own:
                continue
            if isinstance(v, Load):
                # A gather may go anywhere; else what is read is no more than the buffer.
                loads += bool(v.indirect) or self.sizes.hint(count(self.buffers[v.buffer].size)) * MUCH_SMALLER > own
            elif isinstance(v, Apply) and v.op != "cast":
                costs.append(OPERATIONS[v.op].cost)
        if not loads and sum(costs) + LINE * lines <= self.policy.positions:
            return True
        return loads <= 1 and len(costs) <= CHEAP_OPERATIONS and all(c <= CHEAP_OPERATION for c in costs)

    def _bytes(self, name: str) -> int:
        return self.sizes.hint(count(self.buffers[name].size)) * self.buffers[name].dtype.itemsize

    def is_large(self, tensor: Tensor) -> bool:
        """Has what is computed for one element grown too much?"""
        if tensor.strided is not None:
            return False
        values = [*walk(tensor.load(corner(tensor.size)))]
        operations = sum(isinstance(v, Apply) and v.op != "cast" for v in values)
        return operations > MANY_OPERATIONS or sum(isinstance(v, Load) for v in values) > MANY_LOADS

    def spread(self, tensor: Tensor) -> Tensor:
        """The tensor, before elements of it are read several times: computed once if that is worth it."""
        if not self.is_trivial(tensor):
            self.keep(tensor)
        return tensor

    # ------------------------------------------------------------------ computed indices

    def within(self, value: Value, size: Index) -> Index:
        """An index that is computed, forced to be one of a dimension of ``size``, so that no load leaves the memory."""
        last = position(size - 1, value.dtype)
        safe = apply("minimum", apply("maximum", value, constant(0, value.dtype)), last)
        if isinstance(safe, Constant):
            return index(int(safe.value))
        high = size.bounds()[1]
        atom, _ = indirect(safe, 0, None if high is None else high - 1)
        self.atoms[atom] = safe
        return atom

    def guarded(
        self,
        tensor: Tensor,
        wrong: Callable[[Value], Value],
        message: str,
        exception: type[Exception],
        used: bool = True,
    ) -> Callable[[Shape], Value]:
        """The elements of a tensor, for whose use it is an error if ``wrong`` is true of one.

        ``used``: is something computed with each? Else they are looked at by a step of its own.
        """
        if not self.policy.asserts or not used:
            self.refuse(
                Tensor(tensor.size, torch.bool, tensor.device, lambda at: wrong(tensor.load(at))), message, exception
            )
            return tensor.load

        self.asserts_caught += tensor.device.type == "cpu"

        def element(at: Shape) -> Value:
            value = tensor.load(at)
            return checked(value, apply("not", wrong(value)), f"{exception.__name__}: {message}", exception)

        return element

    def refuse(self, wrong: Tensor, message: str, exception: type[Exception]) -> None:
        """Raise when the graph has run, if one of these truth values is true."""
        key = (wrong.load(corner(wrong.size)), wrong.size, message)
        if key in self._refused:
            return
        self._refused.add(key)
        flag = self.reduce("any", wrong, range(len(wrong.size)))
        self.checks.append((self.realise(flag).buffer, message, exception))

    def refuse_number(self, wrong: Value, message: str, exception: type[Exception]) -> None:
        """Raise when the graph has run, if this truth value, of no loop, is true. See ``end``."""
        self._wrong.setdefault((message, exception), []).append(wrong)

    @property
    def caught(self) -> int:
        """How many checks so far raise an exception: those of the CPU, for on a GPU they stop the process."""
        steps = sum(self.buffers[name].device.type == "cpu" for name, *_ in self.checks)
        return steps + sum(map(len, self._wrong.values())) + self.asserts_caught

    def end(self) -> None:
        """Do what was put off: checks of numbers, and writes."""
        for _, value in self._last:
            self.realise(value)
        for target, value in self._last:
            self._copy(target, value, LAST)
        self._check_numbers()

    def put_off(self) -> tuple[int, ...]:
        """How many writes and checks there are that come after all else."""
        return len(self._last), len(self.checks), sum(map(len, self._wrong.values())), self.asserts_caught

    def checks_so_far(self) -> frozenset[str]:
        """The buffers of the CPU's checks of all that comes before what is lowered now."""
        self._check_numbers()
        return frozenset(name for name, *_ in self.checks if self.buffers[name].device.type == "cpu")

    def _check_numbers(self) -> None:
        """One check for each exception of ``refuse_number``."""
        cpu = torch.device("cpu")
        for (message, exception), wrong in self._wrong.items():
            while len(wrong) > FLAGS:
                groups = [wrong[i : i + FLAGS] for i in range(0, len(wrong), FLAGS)]
                wrong = [self.kept_number(_any(group), cpu) for group in groups]
            self.refuse(_single(_any(wrong), cpu), message, exception)
        self._wrong.clear()

    def kept_number(self, value: Value, device: torch.device) -> Value:
        """A value of no loop, computed once: a load of it."""
        made = _single(value, device)
        self.realise(made)
        return made.load(())

    # ------------------------------------------------------------------ conversions

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """The value converted; with relaxed rounding the way through a narrower float type and back is skipped."""
        if self.relaxed and dtype is torch.float32 and isinstance(value, Apply) and value.op == "cast":
            if value.dtype in HALVES and value.args[0].dtype is torch.float32:
                return value.args[0]
        return apply("cast", value, dtype=dtype)

    # ------------------------------------------------------------------ operators as a whole

    def extern(self, step: Extern) -> None:
        """Append an extern call."""
        self.steps.append(step)
        if step.aliases:
            self.given.update(b for b in step.buffers if b is not None)

    def assign(self, target: Tensor, value: Tensor, *, last: bool = False, after: frozenset[str] = frozenset()) -> None:
        """Write to a tensor that lies in memory. Whoever reads what it was must have been given a buffer before.

        Args:
            target: what is written to.
            value: what it becomes.
            last: may it be done at the end, since nobody reads it in the graph any more?
            after: see ``Extern``.
        """
        if last:
            self._last.append((target, value))
            return
        self._copy(target, value, "writes", after)

    def _copy(self, target: Tensor, value: Tensor, reason: str, after: frozenset[str] = frozenset()) -> None:
        place = target.strided
        assert place is not None
        self.extern(Extern((None,), torch.ops.aten.copy_.default, (place, self.realise(value)), {},
                           frozenset({place.buffer}), reason, self.nodes(), after=after))  # fmt: skip

    def joined(self, parts: Sequence[Tensor], dim: int, size: Sequence[Index], stride: Sequence[Index]) -> Tensor:
        """Parts one after another along ``dim``.

        A few are chosen from, if that suits the machine. Many are each computed to where it belongs, so that the call
        has no work.
        """
        if len(parts) <= self.policy.chosen_parts or are_packed(parts, dim, size, self.policy.packed):
            return chosen([self.spread(part) for part in parts], dim, size, stride)
        buffer = self.buffer(parts[0].dtype, size, stride, parts[0].device, "x")
        given, first = [], ZERO
        for part in parts:
            given.append(self.stored(part, stride, (buffer.name, first * stride[dim])))
            first = first + part.size[dim]
        self._join(buffer, given, dim)
        return self.tensor(buffer)

    def _join(self, buffer: Buffer, parts: list[Strided], dim: int) -> None:
        self.extern(Extern((buffer.name,), torch.ops.aten.cat.default, (parts, dim), {}, reason="joined",
                           nodes=self.nodes()))  # fmt: skip

    def padded(
        self, x: Tensor, edges: Sequence[tuple[Index, Index]], fill: Value, stride: Sequence[Index] | None = None
    ) -> Tensor:
        """The tensor with edges of one value: for each dimension their widths before and after it.

        Its elements are chosen from the two, if that suits the machine, or else put into memory.
        """
        size = [before + n + after for n, (before, after) in zip(x.size, edges, strict=True)]
        stride = contiguous(size) if stride is None else tuple(stride)
        if self.policy.chooses:
            return self._surrounded(self.spread(x), edges, fill, size, stride)

        def part(sizes: Sequence[Index], home: tuple[str, Index]) -> Strided:
            return self.stored(Tensor(sizes, x.dtype, x.device, lambda at: fill), stride, home)

        def region(dim: int, home: tuple[str, Index] | None) -> Strided:
            """What is at ``home``: the dimensions before ``dim`` without edges, the others with them."""
            if dim == len(size):
                return self.stored(x, stride, home)
            before, after = edges[dim]
            if before == 0 and after == 0:
                return region(dim + 1, home)
            sizes = [*x.size[:dim], *size[dim:]]
            buffer = self.buffer(x.dtype, sizes, stride, x.device, "x", home)
            base, first = home or (buffer.name, ZERO)
            parts, done = [], ZERO
            for is_edge, width in ((True, before), (False, x.size[dim]), (True, after)):
                place = (base, first + done * stride[dim])
                if not is_edge:
                    parts.append(region(dim + 1, place))
                elif width != 0:
                    parts.append(part([*sizes[:dim], width, *sizes[dim + 1 :]], place))
                done = done + width
            self._join(buffer, parts, dim)
            return Strided(buffer.name, buffer.dtype, buffer.size, buffer.stride, ZERO)

        return self.tensor(self.buffers[region(0, None).buffer])

    def _surrounded(
        self, x: Tensor, edges: Sequence[tuple[Index, Index]], fill: Value, size: Sequence[Index], stride: Shape
    ) -> Tensor:
        """Each element is one of the tensor, or the fill; nothing is read there."""

        def element(at: Shape) -> Value:
            inside: list[Value] = []
            for d, (before, after) in enumerate(edges):
                here = position(at[d])
                if before != 0:
                    inside.append(apply("ge", here, position(before)))
                if after != 0:
                    inside.append(apply("lt", here, position(before + x.size[d])))
            value = x.load(tuple(i - before for i, (before, _) in zip(at, edges, strict=True)))
            if not inside:
                return value
            truth = functools.reduce(lambda a, b: apply("and", a, b), inside)
            return apply("where", truth, masked(value, truth), fill)

        return Tensor(size, x.dtype, x.device, element, wanted=tuple(stride))


def _single(value: Value, device: torch.device) -> Tensor:
    """A tensor without dimensions."""
    return Tensor((), value.dtype, device, lambda at: value)


def _any(truths: Sequence[Value]) -> Value:
    return functools.reduce(lambda a, b: apply("or", a, b), truths)


def _before_cast(tensor: Tensor, dtype: torch.dtype) -> Callable[[Shape], Value]:
    """The elements, each of which is a converted one of ``dtype``, before that conversion."""
    element = tensor.element  # as it is now: it will be another

    def narrow(at: Shape) -> Value:
        value = element(at)
        if isinstance(value, Apply) and value.op == "cast" and value.args[0].dtype is dtype:
            return value.args[0]
        return apply("cast", value, dtype=dtype)

    return narrow


def computable(dtype: torch.dtype, device: torch.device) -> bool:
    """Can loops handle such elements?"""
    return dtype in ALL and device.type in ("cpu", "cuda")
