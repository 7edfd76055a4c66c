"""What the value of a node is while a graph is lowered: how to get one element of it, and where it lies."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence

import torch

from jitney_lowering.index import Index, Opaque, Var, at_most, index, max_
from jitney_lowering.ir.loops import Strided
from jitney_lowering.ir.values import Load, Value, apply, load, masked, position, walk

Shape = tuple[Index, ...]
ZERO, ONE = index(0), index(1)


class Tensor:
    """A tensor that may not exist in memory.

    Either it lies in a buffer (``strided`` says how), or it is a view of another tensor (``base``, ``remap``), or each
    element is computed when it is asked for (``element``). A tensor that was computed may be put into a buffer later:
    everybody who asks from then on, views included, reads the buffer.

    Args:
        size: one index expression per dimension.
        dtype: of the elements.
        device: where it would lie in eager.
        element: from one index per dimension to the value there.
        strided: where it lies.
        base: what it is a view of.
        remap: from an index of this tensor to one of the base.
        whole: does a view show every element of its base?
        wanted: the strides that eager gives it, for the day when it gets a buffer.
        atoms: what computed indices are, for a tensor in memory that may be read at such.
        paired: is an element made of two loads, as a complex one, or one of such a pair? Then ``element`` says how,
            of a tensor in memory too.
    """

    def __init__(
        self,
        size: Sequence[Index],
        dtype: torch.dtype,
        device: torch.device,
        element: Callable[[Shape], Value] | None = None,
        *,
        strided: Strided | None = None,
        base: Tensor | None = None,
        remap: Callable[[Shape], Sequence[Index]] | None = None,
        whole: bool = True,
        wanted: Shape | None = None,
        atoms: Mapping[Opaque, Value] | None = None,
        paired: bool = False,
    ) -> None:
        self.paired = paired or dtype.is_complex
        self.size = tuple(size)
        self.dtype = dtype
        self.device = device
        self.base = base
        self.whole = whole
        self.wanted = wanted
        self.atoms = atoms
        self._element = element
        self._remap = remap
        self._strided = strided
        self._no_strides = False  # asked before, in vain
        self._memo: dict[Shape, Value] = {}

    @property
    def strided(self) -> Strided | None:
        """Where it lies, or None: it is computed, or no strides express the view."""
        if self._strided is None and self.base is not None and not self._no_strides:
            below = self.base.strided
            if below is not None and self._remap is not None:
                self._strided = restrided(below, self.size, self._remap)
                self._no_strides = self._strided is None
        return self._strided

    def load(self, at: Shape) -> Value:
        """The element at one index per dimension."""
        if self.base is not None:  # which remembers by itself, and may get a buffer at any time
            return self._load(at)
        found = self._memo.get(at)
        if found is None:
            found = self._memo[at] = self._load(at)
        return found

    def _load(self, at: Shape) -> Value:
        strided = None if self.paired else self.strided
        if strided is not None:
            where = place(strided, at)
            computed = tuple([(a, self._atom(a)) for a in where.sorted_atoms if isinstance(a, Opaque)])
            return load(strided.buffer, where, self.dtype, computed)
        if self.base is not None and self._remap is not None:
            return self.base.load(tuple(self._remap(at)))
        assert self._element is not None
        return self._element(at)

    def _atom(self, atom: Opaque) -> Value:
        """The value of a computed index."""
        below: Tensor | None = self
        while below is not None:
            if below.atoms is not None:
                return below.atoms[atom]
            below = below.base
        raise KeyError(atom)

    def lies(
        self, strided: Strided, atoms: Mapping[Opaque, Value], element: Callable[[Shape], Value] | None = None
    ) -> None:
        """From now on it is there, in memory; ``element``: how complex ones are put together."""
        self._strided, self.atoms = strided, atoms
        self.base = self._remap = None
        self._element, self.paired = element, element is not None
        self._memo.clear()

    @property
    def element(self) -> Callable[[Shape], Value]:
        """How an element is computed."""
        assert self._element is not None
        return self._element

    def becomes(self, element: Callable[[Shape], Value]) -> None:
        """From now on an element is computed so."""
        self._element = element
        self._memo.clear()

    def view(self, size: Sequence[Index], remap: Callable[[Shape], Sequence[Index]], *, whole: bool = True) -> Tensor:
        """The same elements, seen otherwise."""
        return Tensor(size, self.dtype, self.device, base=self, remap=remap, whole=whole, paired=self.paired)

    def __repr__(self) -> str:
        where = self._strided.buffer if self._strided else "a view" if self.base else "computed"
        return f"Tensor({self.dtype}, [{', '.join(map(str, self.size))}], {where})"


class Float(Tensor):
    """A symbolic float: a tensor without dimensions in float64 that promotes types as a number does."""

    def __init__(self, element: Callable[[Shape], Value]) -> None:
        super().__init__((), torch.float64, torch.device("cpu"), element)


def place(strided: Strided, at: Sequence[Index]) -> Index:
    """Where an element is, in elements from the buffer's first."""
    total = strided.offset
    for i, stride in zip(at, strided.stride, strict=True):
        total = total + i * stride
    return total


def variables(size: Sequence[Index]) -> tuple[Var, ...]:
    """A loop variable for each dimension; the same for equal number and size, so that values are shared."""
    return tuple([Var(f"d{n}", s) for n, s in enumerate(size)])


def corner(size: Sequence[Index]) -> Shape:
    """The variables as an index."""
    return tuple([index(v) for v in variables(size)])


def restrided(strided: Strided, size: Sequence[Index], remap: Callable[[Shape], Sequence[Index]]) -> Strided | None:
    """A view of something strided, if strides express it."""
    at = variables(size)
    where = place(strided, tuple(remap(tuple([index(v) for v in at]))))
    strides = []
    for var in at:
        stride = where.stride(var)
        if stride is None:
            return None
        strides.append(stride)
        where = where.substitute({var: ZERO})
    return Strided(strided.buffer, strided.dtype, tuple(size), tuple(strides), where)


def contiguous(size: Sequence[Index]) -> Shape:
    """Row-major strides. An empty dimension counts as one element, as in torch."""
    strides = []
    step = ONE
    for extent in reversed(size):
        strides.append(step)
        step = step * (ONE if extent == 0 else extent)
    return tuple(reversed(strides))


def count(size: Sequence[Index]) -> Index:
    """How many elements."""
    total = ONE
    for extent in size:
        total = total * extent
    return total


def dense(size: Sequence[Index], stride: Sequence[Index], hint: Callable[[Index], int]) -> Shape | None:
    """Strides that fill their memory without holes or overlaps, in terms of the sizes alone; None if these do not.

    torch's own count a size that may be 0 as at least 1: there ``max(n - 1, 1)`` stands where here ``n - 1`` does.
    """
    if any(s == 0 for s in size):
        return contiguous(size)
    found = list(stride)
    plain = counted = ONE
    for d in sorted(range(len(size)), key=lambda d: (hint(stride[d]), -d)):
        if size[d] == 1:
            continue
        if stride[d] is not plain and stride[d] is not counted:
            return None
        found[d] = plain
        plain, counted = plain * size[d], counted * max_(size[d], 1)
    return tuple(found)


def overlaps(size: Sequence[Index], stride: Sequence[Index], hint: Callable[[Index], int]) -> bool:
    """May two elements lie in one place?"""
    reach = 0
    for step, extent in sorted((hint(t), hint(s)) for s, t in zip(size, stride, strict=True) if s != 1):
        if step <= reach:
            return True
        reach += step * (extent - 1)
    return False


def unrepeated(size: Sequence[Index], stride: Sequence[Index]) -> list[Index]:
    """The size without what strides of 0 repeat."""
    return [ONE if t == 0 else s for s, t in zip(size, stride, strict=True)]


def are_packed(parts: Sequence[Tensor], dim: int, size: Sequence[Index], most: int) -> bool:
    """Are they bytes side by side, one of each part, as numbers that somebody takes out of an integer?"""
    small = parts[0].dtype in (torch.uint8, torch.int8) and len(parts) <= most
    return small and dim == len(size) - 1 and all(part.size[dim] == 1 for part in parts)


def chosen(parts: Sequence[Tensor], dim: int, size: Sequence[Index], stride: Sequence[Index]) -> Tensor:
    """Each element is that of the part which it is in; nothing is read of the others."""
    ends = list(itertools.accumulate([part.size[dim] for part in parts], operator.add))
    number = torch.int32 if at_most(size[dim], 2**31 - 1) else torch.int64

    def element(at: Shape) -> Value:
        where = position(at[dim], number)
        value: Value | None = None
        starts = [end - part.size[dim] for part, end in zip(parts, ends, strict=True)]
        own = [p.load((*at[:dim], at[dim] - s, *at[dim + 1 :])) for p, s in zip(parts, starts, strict=True)]
        free = frozenset.intersection(*map(_direct, own))  # each part reads it there
        for mine, start, end in reversed([*zip(own, starts, ends, strict=True)]):
            here = apply("lt", where, position(end, number))
            after = apply("ge", where, position(start, number))
            if value is None:
                value = masked(mine, after, free)
            else:
                inside = here if start == 0 else apply("and", here, after)
                value = apply("where", here, masked(mine, inside, free), value)
        assert value is not None
        return value

    return Tensor(size, parts[0].dtype, parts[0].device, element, wanted=tuple(stride))


def _direct(value: Value) -> frozenset[Value]:
    """What is loaded for it at places that are no tensor's, whatever else is so."""
    return frozenset(v for v in walk(value) if isinstance(v, Load) and v.mask is None and not v.indirect)
