"""What one element of a tensor is: a small DAG of loads, constants and scalar operations over index variables.

Values are made through the functions of this module, which make equal values one object. So common subexpressions are
shared by construction, and an emitter that remembers what it has computed computes each once.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch

from jitney_lowering.index import Index, Opaque, Var
from jitney_lowering.index import index as to_index
from jitney_lowering.ir.operations import COMPLEX, FLOAT8, FLOATS, OPERATIONS

LINE = 4  # cost, as of ``OPERATIONS``, of each line of a cache beyond the first that neighbours lie in
FARTHEST = 8  # elements that are as far apart as that, or farther, come one by one
FEW_LINES = 1 << 10  # bytes of a table of which all lines are at hand


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Value:
    """One element: ``dtype`` is what it is rounded to. Equal values are the same object."""

    dtype: torch.dtype

    @property
    def parts(self) -> tuple[Value, ...]:
        """The values that this one is computed from."""
        return ()

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text; ``part``: that of a value that it is computed from."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.show(str)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Constant(Value):
    """A number known at compile time: bool, int or float, as ``dtype`` can hold it."""

    value: bool | int | float

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text."""
        return repr(self.value)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Position(Value):
    """An index expression as a number, such as what ``arange`` gives."""

    index: Index

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text."""
        return f"({self.index})"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Load(Value):
    """``buffer[index]``: the element ``index`` places after the buffer's first.

    ``indirect`` says what the ``Opaque`` atoms in the index are: values of integer type, computed first. Where ``mask``
    is false nothing is read, and the value is any.
    """

    buffer: str
    index: Index
    indirect: tuple[tuple[Opaque, Value], ...] = ()
    mask: Value | None = None

    @property
    def parts(self) -> tuple[Value, ...]:
        """The values of the indirect indices, and the mask."""
        values = tuple(value for _, value in self.indirect)
        return values if self.mask is None else (*values, self.mask)

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text."""
        where = "".join(f", {atom}={part(value)}" for atom, value in self.indirect)
        return f"{self.buffer}[{self.index}{where}{'' if self.mask is None else f' if {part(self.mask)}'}]"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Apply(Value):
    """A scalar operation of ``operations.OPERATIONS``. In float16 and bfloat16: computed in float32, then rounded."""

    op: str
    args: tuple[Value, ...]

    @property
    def parts(self) -> tuple[Value, ...]:
        """The operands."""
        return self.args

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text."""
        infix = OPERATIONS[self.op].infix
        if infix:
            return f"({part(self.args[0])} {infix} {part(self.args[1])})"
        name = f"to_{str(self.dtype).removeprefix('torch.')}" if self.op in ("cast", "bitcast") else self.op
        return f"{name}({', '.join(map(part, self.args))})"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Checked(Value):
    """``value``, if ``condition`` is true; else the program stops with ``exception(message)``.

    Only for emitters whose policy has ``Policy.asserts``.
    """

    value: Value
    condition: Value
    message: str
    exception: type[Exception]

    @property
    def parts(self) -> tuple[Value, ...]:
        """The value and the condition."""
        return (self.value, self.condition)

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text."""
        return f"checked({part(self.value)}, {part(self.condition)})"


# Kind of ``Put`` that is a reduction -> what torch's ``scatter_reduce`` calls it.
SCATTERED = {"sum": "sum", "max": "amax", "min": "amin"}


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Put(Value):
    """What a scatter does with one element: ``value`` goes to ``buffer[index]``, where that may be computed.

    Args:
        buffer: what is changed.
        index, indirect: the place, as in ``Load``.
        value: of the buffer's dtype.
        kind: ``"store"``, or a reduction: what is there, and the value, are put together at once.
        mask: where it is false nothing is done.
    """

    buffer: str
    index: Index
    indirect: tuple[tuple[Opaque, Value], ...]
    value: Value
    kind: str
    mask: Value | None = None

    @property
    def parts(self) -> tuple[Value, ...]:
        """The value, those of the indirect indices, and the mask."""
        values = (self.value, *(value for _, value in self.indirect))
        return values if self.mask is None else (*values, self.mask)

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text."""
        where = "".join(f", {atom}={part(value)}" for atom, value in self.indirect)
        sign = "=" if self.kind == "store" else f"{self.kind}="
        mask = "" if self.mask is None else f" if {part(self.mask)}"
        return f"{self.buffer}[{self.index}{where}] {sign} {part(self.value)}{mask}"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Ref(Value):
    """The result of a reduction of an earlier nest of the same kernel."""

    name: str

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text."""
        return self.name


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Pair(Value):
    """A complex number, as its real and its imaginary part; ``dtype`` is complex.

    Only while a graph is lowered: steps compute the parts.
    """

    re: Value
    im: Value

    @property
    def parts(self) -> tuple[Value, ...]:
        """Both parts."""
        return (self.re, self.im)

    def show(self, part: Callable[[Value], str]) -> str:
        """Readable text."""
        return f"({part(self.re)} + i {part(self.im)})"


# Of positions that are known: what loops that were written out choose by.
_TRUTHS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_NEUTRAL = {"and": True, "or": False}  # truth values that do not matter

ZERO = to_index(0)

_known: WeakValueDictionary[Any, Value] = WeakValueDictionary()


def _same(made: Value, key: Any) -> Any:
    found = _known.setdefault(key, made)
    return found


def pair(re: Value, im: Value) -> Pair:
    """A complex number of its parts, which have one dtype."""
    return _same(Pair(re.dtype.to_complex(), re, im), (Pair, re, im))


def constant(value: bool | int | float | complex, dtype: torch.dtype) -> Value:
    """A number, converted to ``dtype`` as torch converts a Python scalar."""
    if dtype.is_complex:
        real = dtype.to_real()
        return pair(constant(complex(value).real, real), constant(complex(value).imag, real))
    if isinstance(value, complex):
        raise TypeError(f"{value} as {dtype}")
    if dtype is torch.bool:
        value = bool(value)
    elif dtype.is_floating_point:
        value = torch.tensor(value, dtype=dtype).item()
    else:
        value = int(value)
    key = (Constant, type(value), repr(value), dtype)  # the text tells -0.0 from 0.0, and nan is itself
    return _same(Constant(dtype, value), key)


def position(index: Index, dtype: torch.dtype = torch.int64) -> Value:
    """An index expression as a number."""
    if index.value is not None:
        return constant(index.value, dtype)
    return _same(Position(dtype, index), (Position, dtype, index))


def load(
    buffer: str,
    index: Index,
    dtype: torch.dtype,
    indirect: tuple[tuple[Opaque, Value], ...] = (),
    mask: Value | None = None,
) -> Value:
    """One element of a buffer."""
    used = index.atoms
    indirect = tuple((atom, value) for atom, value in indirect if atom in used)
    if isinstance(mask, Constant) and mask.value:
        mask = None
    return _same(Load(dtype, buffer, index, indirect, mask), (Load, dtype, buffer, index, indirect, mask))


def checked(value: Value, condition: Value, message: str, exception: type[Exception]) -> Value:
    """A value that is used only if a condition is true."""
    if isinstance(condition, Constant) and condition.value:
        return value
    made = Checked(value.dtype, value, condition, message, exception)
    return _same(made, (Checked, value, condition, message, exception))


def put(
    buffer: str,
    index: Index,
    indirect: tuple[tuple[Opaque, Value], ...],
    value: Value,
    kind: str = "store",
    mask: Value | None = None,
) -> Put:
    """A value that goes to a place which may be computed."""
    used = index.atoms
    indirect = tuple((atom, v) for atom, v in indirect if atom in used)
    made = Put(value.dtype, buffer, index, indirect, value, kind, mask)
    return _same(made, (Put, buffer, index, indirect, value, kind, mask))


def ref(name: str, dtype: torch.dtype) -> Value:
    """The result of a reduction."""
    return _same(Ref(dtype, name), (Ref, name, dtype))


def apply(op: str, *args: Value, dtype: torch.dtype | None = None) -> Value:
    """A scalar operation; ``dtype`` is needed by casts only.

    Raises:
        TypeError: the number or the dtypes of the operands do not fit the operation.
    """
    if dtype in COMPLEX or any(isinstance(a, Pair) for a in args):
        return complex_operation(op, args, dtype)
    row = OPERATIONS[op]
    if len(args) != row.arity:
        raise TypeError(f"{op} takes {row.arity} operands, got {len(args)}")
    result = row.result(tuple(a.dtype for a in args), dtype)
    if op == "cast":
        inner = args[0]
        if isinstance(inner, Apply) and inner.op == "cast" and holds(inner.dtype, inner.args[0].dtype):
            first = inner.args[0].dtype
            if first.is_floating_point or first in (torch.bool, result):  # integers may be rounded twice on the way
                args = inner.args  # through a type that holds every value of the first one
        if args[0].dtype is result:
            return args[0]
    if op == "where":
        args = (args[0], *_chosen(*args))
        if isinstance(args[0], Constant):
            return args[1] if args[0].value else args[2]
    if op in _TRUTHS and all(isinstance(a, Constant) and not a.dtype.is_floating_point for a in args):
        return constant(_TRUTHS[op](*(a.value for a in args)), result)  # type: ignore[attr-defined]
    if op in _NEUTRAL and result is torch.bool:
        for one, other in (args, args[::-1]):
            if isinstance(one, Constant):
                return other if one.value is _NEUTRAL[op] else one
    if op == "cast" and isinstance(args[0], Constant) and _casts_cleanly(args[0].value, result):
        return constant(args[0].value, result)
    return _same(Apply(result, op, args), (Apply, op, args, result))


def _chosen(condition: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """What a choice is made between: of choices by the same condition, what that one chooses.

    What may stop the program stays where it is: nobody may need its value, but the error is wanted.
    """
    if isinstance(a, Apply) and a.op == "where" and a.args[0] is condition and not _stops(a.args[2]):
        a = a.args[1]
    if isinstance(b, Apply) and b.op == "where" and b.args[0] is condition and not _stops(b.args[1]):
        b = b.args[2]
    return a, b


def _stops(value: Value) -> bool:
    return any(isinstance(v, Checked) for v in walk(value))


def complex_operation(op: str, args: tuple[Value, ...], dtype: torch.dtype | None = None) -> Value:
    """An operation on complex numbers as operations on their parts, by the formulas of eager's ``c10::complex``.

    Raises:
        TypeError: there is no such formula.
    """
    if op == "cast" and dtype is not None:
        (x,) = args
        if not isinstance(x, Pair):
            real = apply("cast", x, dtype=dtype.to_real())
            return pair(real, constant(0, real.dtype))
        if dtype not in COMPLEX:
            raise TypeError(f"a complex number as {dtype}")
        return pair(*(apply("cast", part, dtype=dtype.to_real()) for part in x.parts))
    if op == "where":
        condition, a, b = args
        if isinstance(a, Pair) and isinstance(b, Pair):
            return pair(apply("where", condition, a.re, b.re), apply("where", condition, a.im, b.im))
    elif op in _OF_COMPLEX and all(isinstance(a, Pair) and a.dtype is args[0].dtype for a in args):
        return _OF_COMPLEX[op](*args)
    raise TypeError(f"{op} of {', '.join(str(a.dtype) for a in args)}")


def _complex_product(a: Pair, b: Pair) -> Value:
    """All four products, whatever is 0: one with an infinity is nan."""
    re = apply("sub", apply("mul", a.re, b.re), apply("mul", a.im, b.im))
    return pair(re, apply("add", apply("mul", a.re, b.im), apply("mul", a.im, b.re)))


_OF_COMPLEX: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: pair(apply("add", a.re, b.re), apply("add", a.im, b.im)),
    "sub": lambda a, b: pair(apply("sub", a.re, b.re), apply("sub", a.im, b.im)),
    "mul": _complex_product,
    "neg": lambda a: pair(apply("neg", a.re), apply("neg", a.im)),
    "eq": lambda a, b: apply("and", apply("eq", a.re, b.re), apply("eq", a.im, b.im)),
    "ne": lambda a, b: apply("or", apply("ne", a.re, b.re), apply("ne", a.im, b.im)),
    "isnan": lambda a: apply("or", apply("isnan", a.re), apply("isnan", a.im)),
}


def holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Does a conversion to ``wide`` keep every value of ``narrow``?"""
    if wide is narrow or narrow is torch.bool:
        return True
    if narrow in FLOAT8 or wide in FLOAT8:
        return wide in FLOATS
    if narrow.is_floating_point:
        return wide.is_floating_point and torch.promote_types(wide, narrow) is wide
    if wide.is_floating_point:
        digits = {torch.float64: 53, torch.float32: 24, torch.float16: 11}.get(wide, 8)
        return torch.iinfo(narrow).bits - narrow.is_signed <= digits
    return wide is not torch.bool and torch.promote_types(wide, narrow) is wide


def _casts_cleanly(value: bool | int | float, dtype: torch.dtype) -> bool:
    """Is the converted constant the same in every implementation? Not so for floats that an integer cannot hold."""
    if dtype is torch.bool or dtype.is_floating_point:
        return True
    limits = torch.iinfo(dtype)
    return math.isfinite(value) and limits.min <= value <= limits.max


_below: WeakKeyDictionary[Value, tuple[Value, ...]] = WeakKeyDictionary()  # what ``walk`` gives before the value


def walk(*roots: Value) -> Iterator[Value]:
    """Every value below, operands first, each once."""
    if len(roots) != 1:
        return _walked(reversed(roots))
    (root,) = roots
    if not root.parts:
        return iter(roots)
    below = _below.get(root)
    if below is None:
        below = _below[root] = (*_walked(reversed(root.parts)),)
    return itertools.chain(below, roots)


def _walked(roots: Iterable[Value]) -> Iterator[Value]:
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(r, False) for r in roots]
    while stack:
        value, ready = stack.pop()
        if ready:
            yield value
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        stack.append((value, True))
        stack.extend((p, False) for p in reversed(value.parts))


def cost(*roots: Value) -> int:
    """Of all operations below, each once, as of ``OPERATIONS``."""
    return sum(OPERATIONS[v.op].cost for v in walk(*roots) if isinstance(v, Apply))


def cost_inside(loops: Collection[Any], *roots: Value) -> int:
    """Of those operations that depend on one of these loops' variables."""
    inside: dict[Value, bool] = {}
    total = 0
    for v in walk(*roots):
        own = isinstance(v, (Load, Position)) and not v.index.atoms.isdisjoint(loops)
        inside[v] = own or any(inside[part] for part in v.parts)
        if isinstance(v, Apply) and inside[v]:
            total += OPERATIONS[v.op].cost
    return total


def spacing(load: Load, loops: Collection[Var], hint: Callable[[Index], int]) -> int:
    """How many elements there are from one that is loaded to the next, along the loop that has them closest.

    Args:
        load: at places that may depend on the loops.
        loops: those that go from one to the next.
        hint: what a size may be.
    """
    strides = [load.index.stride(var) for var in loops if var in load.index.atoms]
    return min((1 if s is None else min(abs(hint(s)), FARTHEST) for s in strides), default=1) or 1


def rebuild(
    value: Value,
    leaf: Mapping[Any, Value] | None = None,
    index: Callable[[Index], Index] | None = None,
    buffers: Mapping[str, str] = MappingProxyType({}),
    memo: dict[Any, Value] | None = None,
    places: Mapping[str, tuple[str, Index]] = MappingProxyType({}),
    atoms: Mapping[Opaque, Value] = MappingProxyType({}),
) -> Value:
    """The same computation with other leaves.

    Args:
        value: what to rewrite.
        leaf: values to be put in place of others (looked up before anything below is).
        index: a function over index expressions, such as one that substitutes variables.
        buffers: other names of buffers; or, in ``places``, the names of others and where these begin there.
        memo: a dict shared between calls with equal arguments.
        places: see ``buffers``.
        atoms: what those are that ``index`` brings into the places of loads.
    """
    if buffers:
        places = {old: (new, ZERO) for old, new in buffers.items()}
    memo = {} if memo is None else memo
    leaf = leaf or {}
    for v in walk(value):
        if v in memo:
            continue
        if v in leaf:
            memo[v] = leaf[v]
        elif isinstance(v, Apply):
            memo[v] = apply(v.op, *(memo[a] for a in v.args), dtype=v.dtype)
        elif isinstance(v, Pair):
            memo[v] = pair(memo[v.re], memo[v.im])
        elif isinstance(v, Position):
            memo[v] = position(index(v.index), v.dtype) if index else v
        elif isinstance(v, (Load, Put)):
            memo[v] = _rebuilt_access(v, index, places, memo, atoms)
        elif isinstance(v, Checked):
            memo[v] = checked(memo[v.value], memo[v.condition], v.message, v.exception)
        else:
            memo[v] = v
    return memo[value]


def _rebuilt_access(
    v: Load | Put,
    index: Callable[[Index], Index] | None,
    places: Mapping[str, tuple[str, Index]],
    memo: Mapping[Any, Value],
    atoms: Mapping[Opaque, Value],
) -> Value:
    new = {atom: indirect(memo[value], *atom.bounds()) for atom, value in v.indirect}
    place = v.index.substitute({a: n[0] for a, n in new.items()}) if new else v.index
    mask = None if v.mask is None else memo[v.mask]
    name, start = places.get(v.buffer, (v.buffer, ZERO))
    place, computed = index(place) if index else place, tuple({**dict(new.values()), **atoms}.items())
    place = place if start is ZERO else place + start
    if isinstance(v, Put):
        return put(name, place, computed, memo[v.value], v.kind, mask)
    return load(name, place, v.dtype, computed, mask)


def conjuncts(mask: Value) -> Iterator[Value]:
    """What must be true for a mask to be: itself, if it is not several conditions at once."""
    if isinstance(mask, Apply) and mask.op == "and" and mask.dtype is torch.bool:
        for part in mask.args:
            yield from conjuncts(part)
    yield mask


def masked(value: Value, mask: Value, free: Container[Value] = ()) -> Value:
    """The same value for those that read it only where ``mask`` is true: nothing else is loaded or checked elsewhere.

    What the mask is computed of is there anyway, and what it demands is true.

    Args:
        value: what to rewrite.
        mask: where it is read.
        free: loads that may be done anywhere.
    """
    memo: dict[Value, Value] = {v: v for v in walk(mask)}
    if not _stops(value):
        memo |= dict.fromkeys(conjuncts(mask), constant(True, torch.bool))
    for v in walk(value):
        if v in memo:
            continue
        if v in free:
            memo[v] = v
        elif isinstance(v, Load):
            new = tuple(indirect(memo[i], *atom.bounds()) for atom, i in v.indirect)
            place = v.index.substitute({old: atom for (old, _), (atom, _) in zip(v.indirect, new, strict=True)})
            both = mask if v.mask is None else apply("and", memo[v.mask], mask)
            memo[v] = load(v.buffer, place, v.dtype, new, both)
        elif isinstance(v, Apply):
            memo[v] = apply(v.op, *(memo[a] for a in v.args), dtype=v.dtype)
        elif isinstance(v, Pair):
            memo[v] = pair(memo[v.re], memo[v.im])
        elif isinstance(v, Checked):
            fine = apply("or", memo[v.condition], apply("not", mask))
            memo[v] = checked(memo[v.value], fine, v.message, v.exception)
        else:
            memo[v] = v
    return memo[value]


_numbers = itertools.count()
_atoms: WeakKeyDictionary[Value, dict[tuple[int | None, int | None], Opaque]] = WeakKeyDictionary()


def indirect(value: Value, low: int | None, high: int | None) -> tuple[Opaque, Value]:
    """An atom for an index that is computed, with its bounds, and the value; the same atom for the same value."""
    atoms = _atoms.setdefault(value, {})
    if (low, high) not in atoms:
        atoms[low, high] = Opaque(f"at{next(_numbers)}", low, high)
    return atoms[low, high], value
