"""The integer language of index arithmetic: sums of products over loop variables, sizes and run-time values.

Every expression is kept in one canonical form: a sum of integer coefficients times products of *factors*, plus a
constant. A factor is an atom (``Var``, ``Size``, ``Opaque``) or a ``FloorDiv``, ``Mod``, ``Min`` or ``Max`` of
expressions. Equal canonical forms are the same object, so comparing and hashing are by identity.

The nodes stand below the rules by which their operators simplify, since the rules are made of nodes: ``division.py``
has those of ``//`` and ``%``, ``ranges.py`` what is known of an expression's values, and ``arithmetic.py`` puts them
together. The package passes them in (``simplify_with``).

All arithmetic is of mathematical integers; ``//`` and ``%`` round to minus infinity, as Python's do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol
from weakref import WeakValueDictionary

from jitney._util.forks import reentrant_lock

Product = tuple["Factor", ...]  # factors in their order, a square is the factor twice
Term = tuple[int, Product]
Interval = tuple[int | None, int | None]  # the lowest and the highest value, None where unknown


class Arithmetic(Protocol):
    """What operators make of their operands: results in canonical form."""

    def plus(self, a: Index, b: Index, sign: int) -> Index:
        """``a + sign * b``."""

    def times(self, a: Index, b: Index) -> Index:
        """``a * b``."""

    def divide(self, x: Index, by: Index) -> tuple[Index, Index]:
        """``(x // by, x % by)``."""

    def extremum(self, cls: type[Compound], items: list[Index]) -> Index:
        """The minimum or maximum of the items."""

    def from_terms(self, table: Mapping[Product, int], constant: int = 0) -> Index:
        """The sum of coefficients times products and of a constant."""

    def substitute(self, x: Index, atoms: Mapping[Any, Index | int]) -> Index:
        """See ``Index.substitute``."""

    def bounds(self, x: Index) -> Interval:
        """See ``Index.bounds``."""

    def verify(self, x: Index) -> None:
        """See ``Index.verify``."""


_arithmetic: Arithmetic


def simplify_with(arithmetic: Arithmetic) -> None:
    """Say what operators make of their operands; ``jitney_lowering.index`` does, before anybody has a node."""
    global _arithmetic
    _arithmetic = arithmetic


class Index:
    """An immutable integer expression. Made with ``+ - * // %`` from atoms, ints and each other.

    A divisor must be positive wherever the expression is evaluated: a loop over an empty dimension never is.
    ``==`` to an int asks whether it is that constant; to another expression, whether it is the same one.
    """

    __slots__ = ("__weakref__", "_atoms", "_bounds", "_divided", "_order")
    kind: ClassVar[str]
    rank: ClassVar[int]  # sorts the kinds: i0*s0 + i1//4

    _atoms: frozenset[Atom] | None
    _bounds: Interval | None
    _divided: dict[Index | int, tuple[Index, Index]] | None
    _order: tuple[Any, ...] | None

    @property
    def terms(self) -> tuple[Term, ...]:
        """Coefficients and their products of factors, in order; without the constant."""
        raise NotImplementedError

    @property
    def constant(self) -> int:
        """What is added to the terms."""
        raise NotImplementedError

    @property
    def children(self) -> tuple[Index, ...]:
        """The expressions that this one is made of: factors of a sum, operands of the other kinds."""
        return ()

    @property
    def value(self) -> int | None:
        """The integer, if the expression is a constant."""
        return None

    @property
    def atoms(self) -> frozenset[Atom]:
        """Every ``Var``, ``Size`` and ``Opaque`` anywhere inside; not those in the sizes of variables."""
        if self._atoms is None:
            self._atoms = frozenset().union(*(child.atoms for child in self.children))
        return self._atoms

    @property
    def sorted_atoms(self) -> list[Atom]:
        """The same, in an order that is the same in every process."""
        return sorted(self.atoms, key=lambda atom: atom.order)

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts expressions by structure, the same in every process."""
        if self._order is None:
            self._order = self._structure()
        return self._order

    def _structure(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def bounds(self) -> Interval:
        """The lowest and the highest value (both inclusive) that it may have; None: unknown."""
        if self._bounds is None:
            self._bounds = _arithmetic.bounds(self)
        return self._bounds

    def substitute(self, table: Mapping[Any, Index | int]) -> Index:
        """The expression with atoms replaced, simplified again.

        The expression holds only for values in the atoms' ranges, so what replaces an atom must be in its range
        wherever the result is used.
        """
        return _arithmetic.substitute(self, table)

    def evaluate(self, table: Mapping[Any, int]) -> int:
        """The value for these values of the atoms; raises ``KeyError`` for one that lacks."""
        total = self.constant
        for coef, product in self.terms:
            for factor in product:
                coef *= factor.evaluate(table)
            total += coef
        return total

    def stride(self, var: Atom) -> Index | None:
        """``d`` such that the expression is ``d * var + rest``, both free of ``var``; None if there is none.

        A variable that has one value only is never in a sum: its stride is 0.
        """
        steps: dict[Product, int] = {}
        for coef, product in self.terms:
            rest = tuple([f for f in product if f is not var])
            if any(var in f.atoms for f in rest) or len(product) - len(rest) > 1:
                return None
            if len(rest) < len(product):
                steps[rest] = coef
        return _arithmetic.from_terms(steps)

    def verify(self) -> None:
        """Is it in canonical form, and what is inside too? Raises ``BackendFailed``."""
        _arithmetic.verify(self)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return node(self.terms, self.constant + other) if other else index(self)
        if not isinstance(other, Index):
            return NotImplemented
        return _arithmetic.plus(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return self + -other
        return _arithmetic.plus(self, other, -1) if isinstance(other, Index) else NotImplemented

    def __rsub__(self, other: int) -> Index:
        return -self + other

    def __neg__(self) -> Index:
        return self * -1

    def __mul__(self, other: Index | int) -> Index:
        if not isinstance(other, Index):
            if not isinstance(other, int):
                return NotImplemented
            return scaled(self, other)
        if not other.terms:
            return scaled(self, other.constant)
        if not self.terms:
            return scaled(other, self.constant)
        return _arithmetic.times(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Index | int) -> Index:
        return _arithmetic.divide(self, index(other))[0]

    def __rfloordiv__(self, other: int) -> Index:
        return _arithmetic.divide(index(other), self)[0]

    def __mod__(self, other: Index | int) -> Index:
        return _arithmetic.divide(self, index(other))[1]

    def __rmod__(self, other: int) -> Index:
        return _arithmetic.divide(index(other), self)[1]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.value == other
        return self is other

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(f"an Index has no truth value: compare {self}.value, or ask is_zero")

    def __copy__(self) -> Index:
        return self

    def __deepcopy__(self, memo: Any) -> Index:
        return self

    def __str__(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self}>"


class Sum(Index):
    """Terms and a constant; a lone factor is never wrapped in one. Made by arithmetic only."""

    __slots__ = ("constant", "terms")
    __match_args__ = ("terms", "constant")
    kind = "sum"
    rank = 7

    terms: tuple[Term, ...]
    constant: int

    def __init__(self) -> None:
        raise TypeError("a Sum is made by arithmetic")

    @property
    def children(self) -> tuple[Index, ...]:
        """The factors of all terms, in order."""
        return tuple(factor for _, product in self.terms for factor in product)

    @property
    def value(self) -> int | None:
        """The integer, if there are no terms."""
        return None if self.terms else self.constant

    def _structure(self) -> tuple[Any, ...]:
        return (
            self.rank,
            "",
            self.constant,
            tuple((coef, tuple(factor.order for factor in p)) for coef, p in self.terms),
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and not self.terms and self.constant == other)

    def __hash__(self) -> int:  # equal to an int: same hash
        return object.__hash__(self) if self.terms else hash(self.constant)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.terms, self.constant)

    def __str__(self) -> str:  # Python's own notation with few parentheses: (i0*3 + i1)//7 % 5
        parts = [_term(coef, product) for coef, product in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


def _rebuilt(terms: Iterable[Term], constant: int) -> Index:
    """A sum that was pickled."""
    return _arithmetic.from_terms({product: coef for coef, product in terms}, constant)


def _term(coef: int, product: Product) -> str:
    lone = len(product) == 1 and coef == 1
    shown = "*".join(str(f) if lone or isinstance(f, (Atom, Min, Max)) else f"({f})" for f in product)
    return {1: shown, -1: f"-{shown}"}.get(coef, f"{shown}*{coef}" if coef > 0 else f"-{shown}*{-coef}")


class Factor(Index):
    """What products are made of: everything but a sum."""

    __slots__ = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The factor, once."""
        return ((1, (self,)),)

    @property
    def constant(self) -> int:
        """Zero."""
        return 0


class Atom(Factor):
    """What expressions are built from: a name. ``fixed`` is its value if there is only one."""

    __slots__ = ("fixed", "name")
    name: str
    fixed: int | None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The atom once, or nothing if its value is known."""
        return ((1, (self,)),) if self.fixed is None else ()

    @property
    def constant(self) -> int:
        """The atom's value if it is known, or zero."""
        return self.fixed or 0

    @property
    def atoms(self) -> frozenset[Atom]:
        """Itself."""
        if self._atoms is None:
            self._atoms = frozenset((self,))
        return self._atoms

    def evaluate(self, table: Mapping[Any, int]) -> int:
        """Its value in the table, or the only one that it has."""
        return table[self] if self.fixed is None else self.fixed

    def __str__(self) -> str:
        return self.name

    def _named(self, *more: Any) -> tuple[Any, ...]:
        stem = self.name.rstrip("0123456789")
        return (self.rank, stem, int(self.name[len(stem) :] or -1), more)  # i2 before i10


class Var(Atom):
    """A loop variable: ``0 <= var < size``. Same name and size: same variable."""

    __slots__ = ("size",)
    __match_args__ = ("name", "size")
    kind = "var"
    rank = 0
    size: Index

    def __new__(cls, name: str, size: Index | int) -> Var:
        """The variable of that name and size."""
        size = index(size)
        if size.value is not None and size.value < 0:
            raise ValueError(f"the variable {name} has the negative size {size}")
        fixed = 0 if not size.terms and size.constant <= 1 else None
        return interned(cls, (name, id(size)), (("name", name), ("size", size), ("fixed", fixed)))

    def _structure(self) -> tuple[Any, ...]:
        return self._named(self.size.order)

    def __reduce__(self) -> tuple[Any, ...]:
        return Var, (self.name, self.size)


class _Ranged(Atom):
    """An atom with its own numeric bounds, both inclusive; None: unknown."""

    __slots__ = ("high", "low")
    __match_args__ = ("name", "low", "high")
    low: int | None
    high: int | None

    def __new__(cls, name: str, low: int | None = None, high: int | None = None) -> Any:
        """The atom of that name and these bounds."""
        if low is not None and high is not None and low > high:
            raise ValueError(f"{name} has no value between {low} and {high}")
        fixed = low if low == high else None
        slots = (("name", name), ("low", low), ("high", high), ("fixed", fixed))
        return interned(cls, (name, low, high), slots)

    def _structure(self) -> tuple[Any, ...]:
        return self._named(*((bound is None, bound or 0) for bound in (self.low, self.high)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.low, self.high)


class Size(_Ranged):
    """A symbolic size: an integer that is known when the graph runs, between ``low`` and ``high``."""

    __slots__ = ()
    kind = "size"
    rank = 1

    def __new__(cls, name: str, low: int | None = 2, high: int | None = None) -> Size:
        """The size of that name and these bounds; sizes 0 and 1 are constants unless ``low`` says so."""
        return super().__new__(cls, name, low, high)


class Opaque(_Ranged):
    """A value computed while the loops run, such as an index to gather at."""

    __slots__ = ()
    kind = "opaque"
    rank = 2


class Compound(Factor):
    """An operation with two operands, ``a`` and ``b``. Made by arithmetic only."""

    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    a: Index
    b: Index

    of_ints: ClassVar[Callable[..., int]]
    of_indices: ClassVar[Callable[..., Index]]

    def __init__(self) -> None:
        raise TypeError(f"a {type(self).__name__} is made by arithmetic")

    @property
    def children(self) -> tuple[Index, ...]:
        """The operands."""
        return (self.a, self.b)

    def evaluate(self, table: Mapping[Any, int]) -> int:
        """The operation on the operands' values."""
        return type(self).of_ints(self.a.evaluate(table), self.b.evaluate(table))

    def _structure(self) -> tuple[Any, ...]:
        return (self.rank, "", 0, (self.a.order, self.b.order))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of_indices, (self.a, self.b)

    def __str__(self) -> str:
        if isinstance(self, (Min, Max)):
            return f"{self.kind}({self.a}, {self.b})"
        first = str(self.a)
        if not isinstance(self.a, (Atom, FloorDiv, Min, Max)) and not first.isdecimal():
            first = f"({first})"
        second = str(self.b) if isinstance(self.b, Atom) or self.b.value is not None else f"({self.b})"
        return f"{first}//{second}" if isinstance(self, FloorDiv) else f"{first} % {second}"


def min_(*items: Index | int) -> Index:
    """The least of one or more expressions."""
    return _arithmetic.extremum(Min, [index(item) for item in items])


def max_(*items: Index | int) -> Index:
    """The greatest of one or more expressions."""
    return _arithmetic.extremum(Max, [index(item) for item in items])


class FloorDiv(Compound):
    """``a // b``, rounded to minus infinity."""

    __slots__ = ()
    kind = "floordiv"
    rank = 3
    of_ints = operator.floordiv
    of_indices = operator.floordiv


class Mod(Compound):
    """``a % b``: from 0 to ``b - 1``."""

    __slots__ = ()
    kind = "mod"
    rank = 4
    of_ints = operator.mod
    of_indices = operator.mod


class Min(Compound):
    """The lesser of ``a`` and ``b``; more than two nest in ``a``."""

    __slots__ = ()
    kind = "min"
    rank = 5
    of_ints: ClassVar[Callable[..., int]] = min
    of_indices = min_


class Max(Compound):
    """The greater of ``a`` and ``b``; more than two nest in ``a``."""

    __slots__ = ()
    kind = "max"
    rank = 6
    of_ints: ClassVar[Callable[..., int]] = max
    of_indices = max_


class Names:
    """Makes new names, numbered from 0 for each prefix.

    Args:
        taken: names that others have given.
    """

    def __init__(self, taken: Container[str] = ()) -> None:
        self._taken = taken
        self._next: dict[str, int] = {}

    def name(self, prefix: str) -> str:
        """``prefix`` with the next number."""
        while True:
            number = self._next.get(prefix, 0)
            self._next[prefix] = number + 1
            if (name := f"{prefix}{number}") not in self._taken:
                return name

    def var(self, size: Index | int, prefix: str = "i") -> Var:
        """A variable from 0 to ``size - 1`` of a name not given before."""
        return Var(self.name(prefix), size)


# --- one object for each expression ---------------------------------------------------------------------------------

_NODES: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
_LOCK = reentrant_lock()


def interned(cls: type[Any], key: tuple[Any, ...], slots: tuple[tuple[str, Any], ...]) -> Any:
    """The node of that class and key: the one there is, or a new one with these slots.

    Keys name other nodes by ``id``: the node holds them as long as its entry is there. A reference from the table
    would keep every node alive, since nodes remember their quotients.
    """
    key = (cls, *key)
    found = _NODES.get(key)
    if found is None:
        with _LOCK:
            found = _NODES.get(key)
            if found is None:
                found = object.__new__(cls)
                found._atoms = found._bounds = found._divided = found._order = None
                for name, value in slots:
                    setattr(found, name, value)
                _NODES[key] = found
    return found


def compound(cls: type[Compound], a: Index, b: Index) -> Compound:
    """The operation as it is, without simplifying: for the rules."""
    return interned(cls, (id(a), id(b)), (("a", a), ("b", b)))


def node(terms: tuple[Term, ...], constant: int) -> Index:
    """The sum of terms that are in canonical form, or the lone factor."""
    if not constant and len(terms) == 1 and terms[0][0] == 1 and len(terms[0][1]) == 1:
        return terms[0][1][0]
    key = [constant]
    for coef, product in terms:
        key += (coef, len(product), *map(id, product))
    return interned(Sum, tuple(key), (("terms", terms), ("constant", constant)))


def scaled(a: Index, by: int) -> Index:
    """``a * by``."""
    if by == 0:
        return node((), 0)
    return node(tuple([(by * coef, product) for coef, product in a.terms]), by * a.constant)


def index(x: Index | int) -> Index:
    """An expression as it is, an int as a constant; raises ``TypeError`` for all else (symbolic ints of torch too)."""
    if isinstance(x, Index):
        return x if not isinstance(x, Atom) or x.fixed is None else node((), x.fixed)
    if isinstance(x, int):
        return node((), int(x))
    raise TypeError(f"an index is made of ints and Index, not {type(x).__name__}")


def from_terms(table: Mapping[Product, int], constant: int = 0) -> Index:
    """The sum of coefficients times products of factors (each in order, as in ``terms``), and of a constant."""
    return _arithmetic.from_terms(table, constant)


def visit(x: Index) -> Iterator[Index]:
    """Every expression inside, each once, what it is made of before itself."""
    seen: set[int] = set()
    stack = [(x, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.children))
