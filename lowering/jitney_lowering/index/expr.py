"""The integer language of index arithmetic: sums of products over loop variables, sizes and run-time values.

Every expression is kept in one canonical form: a sum of integer coefficients times products of *factors*, plus a
constant. A factor is an atom (``Var``, ``Size``, ``Opaque``) or a ``FloorDiv``, ``Mod``, ``Min`` or ``Max`` of
expressions. Equal canonical forms are the same object, so comparing and hashing are by identity. ``division.py`` has
the rules of ``//`` and ``%``, ``ranges.py`` what is known of an expression's values.

All arithmetic is of mathematical integers; ``//`` and ``%`` round to minus infinity, as Python's do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

# The nodes' operators need these, and these need the nodes: hence modules, not names.
from jitney_lowering.index import division, polynomial, ranges, text

Product = tuple["Factor", ...]
Term = tuple[int, Product]


class Index:
    """An immutable integer expression. Made with ``+ - * // %`` from atoms, ints and each other.

    A divisor must be positive wherever the expression is evaluated: a loop over an empty dimension never is.
    ``==`` to an int asks whether it is that constant; to another expression, whether it is the same one.
    """

    __slots__ = ("__weakref__", "_atoms", "_bounds", "_divided", "_order")
    kind: ClassVar[str]
    rank: ClassVar[int]  # sorts the kinds: i0*s0 + i1//4

    _atoms: frozenset[Atom] | None
    _bounds: tuple[int | None, int | None] | None
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
    def order(self) -> tuple[Any, ...]:
        """Sorts expressions by structure, the same in every process."""
        if self._order is None:
            self._order = self._structure()
        return self._order

    def _structure(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def bounds(self) -> tuple[int | None, int | None]:
        """The lowest and the highest value (both inclusive) that it may have; None: unknown."""
        if self._bounds is None:
            self._bounds = ranges.bounds(self)
        return self._bounds

    def substitute(self, table: Mapping[Any, Index | int]) -> Index:
        """The expression with atoms replaced, simplified again.

        The expression holds only for values in the atoms' ranges, so what replaces an atom must be in its range
        wherever the result is used.
        """
        return polynomial.substitute(self, table, {})

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
        return polynomial.from_terms(steps)

    def verify(self) -> None:
        """Is it in canonical form, and what is inside too? Raises ``BackendFailed``."""
        ranges.verify(self)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return polynomial.node(self.terms, self.constant + other) if other else index(self)
        if not isinstance(other, Index):
            return NotImplemented
        return polynomial.plus(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return self + -other
        return polynomial.plus(self, other, -1) if isinstance(other, Index) else NotImplemented

    def __rsub__(self, other: int) -> Index:
        return -self + other

    def __neg__(self) -> Index:
        return self * -1

    def __mul__(self, other: Index | int) -> Index:
        if not isinstance(other, Index):
            if not isinstance(other, int):
                return NotImplemented
            return polynomial.scaled(self, other)
        if not other.terms:
            return polynomial.scaled(self, other.constant)
        if not self.terms:
            return polynomial.scaled(other, self.constant)
        return polynomial.times(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Index | int) -> Index:
        return division.divide(self, index(other))[0]

    def __rfloordiv__(self, other: int) -> Index:
        return division.divide(index(other), self)[0]

    def __mod__(self, other: Index | int) -> Index:
        return division.divide(self, index(other))[1]

    def __rmod__(self, other: int) -> Index:
        return division.divide(index(other), self)[1]

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
        return text.text(self)

    def __repr__(self) -> str:
        return f"<{text.text(self)}>"


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
        return polynomial.rebuilt, (self.terms, self.constant)


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
        return polynomial.interned(cls, (name, id(size)), (("name", name), ("size", size), ("fixed", fixed)))

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
        return polynomial.interned(cls, (name, low, high), slots)

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


def min_(*items: Index | int) -> Index:
    """The least of one or more expressions."""
    return ranges.extremum(Min, [index(item) for item in items])


def max_(*items: Index | int) -> Index:
    """The greatest of one or more expressions."""
    return ranges.extremum(Max, [index(item) for item in items])


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
    """Makes variables of new names, numbered from 0 for each prefix."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def name(self, prefix: str) -> str:
        """``prefix`` with the next number."""
        number = self._next.get(prefix, 0)
        self._next[prefix] = number + 1
        return f"{prefix}{number}"

    def var(self, size: Index | int, prefix: str = "i") -> Var:
        """A variable from 0 to ``size - 1`` of a name not given before."""
        return Var(self.name(prefix), size)


def index(x: Index | int) -> Index:
    """An expression as it is, an int as a constant; raises ``TypeError`` for all else (symbolic ints of torch too)."""
    if isinstance(x, Index):
        return x if not isinstance(x, Atom) or x.fixed is None else polynomial.node((), x.fixed)
    if isinstance(x, int):
        return polynomial.node((), int(x))
    raise TypeError(f"an index is made of ints and Index, not {type(x).__name__}")


def from_terms(table: Mapping[Product, int], constant: int = 0) -> Index:
    """The sum of coefficients times products of factors (each in order, as in ``terms``), and of a constant."""
    return polynomial.from_terms(table, constant)


def is_zero(x: Index | int) -> bool:
    """Is it proven to be 0?"""
    return index(x).bounds() == (0, 0)


def equal(a: Index | int, b: Index | int) -> bool:
    """Are they proven to be equal?"""
    return a is b or is_zero(index(a) - b)


def less(a: Index | int, b: Index | int) -> bool:
    """Is ``a < b`` proven for all values in the atoms' ranges?"""
    return ranges.nonnegative(index(b) - a - 1)


def at_most(a: Index | int, b: Index | int) -> bool:
    """Is ``a <= b`` proven for all values in the atoms' ranges?"""
    return ranges.nonnegative(index(b) - a)


def fits_int32(x: Index) -> bool:
    """Is every intermediate value, in whatever order the sums are done, known to fit into 32 bits?"""
    return ranges.fits(x, 2**31 - 1)


def render(x: Index, spell: Callable[[Atom], str]) -> str:
    """Text with explicit parentheses: infix ``+ - *``, and ``floordiv(a, b)``, ``mod``, ``min``, ``max``.

    ``spell`` gives the text of an atom.
    """
    return text.render(x, spell)


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
