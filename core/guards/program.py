"""The guard program: text that walks every source once, checks as it fetches, and leaves the values in variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, WrapperDescriptorType
from typing import Any

from jitney._util.ownership import trusted
from jitney.errors import GuardError
from jitney.guards.checks import FEW, without
from jitney.guards.pool import Pool
from jitney.guards.source import Guard, Source

TERMS = 12  # conditions in one ``if``: more need longer jumps, which bytecode pays for one by one
OFTEN = 12  # uses that make reading a constant into a local variable pay; each makes the frame larger
SEVERAL = 3  # names of one module, class or namespace that are checked together
CODE = (FunctionType, BuiltinFunctionType, ModuleType, WrapperDescriptorType, type)
VALUE = "\0"  # stands for the value in a condition's text; no literal's text contains it
IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: nobody can give such a class attributes
CONSTANT = re.compile(r"\b(?:_c\d+|_type)\b")


class Miss:
    """The class of ``MISS``."""

    def __repr__(self) -> str:
        return "MISS"


MISS = Miss()  # what an emitted function returns when its guards do not hold


def guards_held() -> None:
    """What an emitted function calls once its guards hold, where it does something before it calls its graph."""


class Program:
    """The prologue. A condition that does not hold returns ``MISS``; a fetch that raises does so too.

    Values that the rest of the emitted function uses get a variable of their own. Those on the way to others share one
    for each depth of the tree (``_at3``), since few variables make short bytecode. Within one object, what is only
    checked comes first, then what is fetched, then what leads further.
    """

    def __init__(self, pool: Pool, prefix: str = "_v") -> None:
        self.pool = pool
        self.prefix = prefix
        self.lines: list[str] = []
        self.variables: dict[int, str] = {}
        self._terms: list[str] = []
        self._fixed: dict[int, Any] = {}
        self._elsewhere: set[int] = set()

    def leave_out(self, guards: Iterable[Guard]) -> None:
        """These guards are checked by conditions of the caller's."""
        self._elsewhere.update(map(id, guards))

    def write(self, roots: Iterable[Source]) -> None:
        """Emit fetches and checks for every node that is guarded, wanted, or leads to one."""
        roots = [root for root in roots if self._needed(root)]
        for root in roots:
            self._walk(root)
        for term in _absences(roots, self.pool):
            self.check(term)

    def verify(self, roots: Iterable[Source], guards: Iterable[Guard]) -> None:
        """Check that the sources are trees, each path once, and hold these guards; raises ``GuardError``."""
        seen: set[int] = set()
        paths: set[Any] = set()
        todo: list[tuple[Source, Source | None, Any]] = [(root, None, ()) for root in roots]
        while todo:
            node, base, above = todo.pop()
            key = node.key if type(node.key) in (str, int, bool, type(None)) else id(node.key)
            path = (above, node.kind, type(node.key), key)
            if node.base is not base or id(node) in seen or path in paths:
                raise GuardError(f"the source {node.name} is in the tree twice, or not where it belongs")
            seen.add(id(node))
            paths.add(path)
            todo += [(child, node, id(node)) for child in node.children.values()]
        for guard in guards:
            if id(guard.source) not in seen or guard not in guard.source.guards:
                raise GuardError(f"the guard {guard.text} is on a source that no argument leads to")

    def check(self, term: str) -> None:
        """Emit one condition more."""
        if len(self._terms) == TERMS:
            self._flush()
        self._terms.append(term)

    def fetch(self, name: str, text: str) -> None:
        """Emit an assignment."""
        self._flush()
        self.lines.append(f"{name} = {text}")

    def finish(self) -> list[str]:
        """All lines. Constants that are named often become local variables, which are faster to read."""
        self._flush()
        counts = Counter(name for line in self.lines for name in CONSTANT.findall(line))
        names = [name for name, count in counts.items() if count >= OFTEN and name in self.pool.namespace]
        if not names:
            return self.lines
        self.pool.namespace["_often"] = tuple(self.pool.namespace[name] for name in names)
        return [f"{', '.join(names)}, = _often", *self.lines]

    def expression(self, source: Source) -> str:
        """The variable that holds the source's value once the program has run; asking for it makes it wanted."""
        if source.kind in ("local", "const"):
            return source.expression("", self.pool)
        source.wanted = True
        return self._variable(source)

    def _variable(self, source: Source) -> str:
        found = self.variables.get(id(source))
        if found is None:
            found = self.variables[id(source)] = f"{self.prefix}{len(self.variables)}"
        return found

    def _walk(self, root: Source) -> None:
        todo = [(root, "", 0)]
        while todo:
            node, base, depth = todo.pop()
            children = [c for c in node.children.values() if self._needed(c)]
            if children and len(self._terms) > TERMS // 2:
                self._flush()  # an object's conditions in one piece, where they fit
            value = self._node(node, base, depth, len(children))
            if node.is_const:
                children = self._together(node, value, children)
            children.sort(key=_later)
            todo.extend((c, value, depth + 1) for c in reversed(children))

    def _together(self, node: Source, value: str, children: list[Source]) -> list[Source]:
        """Check the names that code of torch's or the standard library's was read by in one comparison; the others.

        Equal tuples hold the same functions and classes: they are compared by identity first, and equal to no others.
        """
        names = [child for child in children if self._is_name(child)] if trusted(node.key) else []
        if len(names) < SEVERAL:
            return children
        bases = [f"(_at0 := {value})", *["_at0"] * (len(names) - 1)]
        found = ", ".join(c.expression(base, self.pool) for c, base in zip(names, bases, strict=True))
        self.check(f"({found}) == {self.pool.object(tuple(c.guards[0].expected for c in names))}")
        return [child for child in children if child not in names]

    def _node(self, node: Source, base: str, depth: int, children: int) -> str:
        """Emit one node; the expression for its value."""
        if self._is_fixed(node):
            text = self.pool.object(self._fixed[id(node)])
            codes = [g.code(VALUE, self.pool) for g in node.guards if g.kind == "lacks_attr"]  # a cell may be filled
        else:
            text = node.expression(base, self.pool)
            codes = [g.code(VALUE, self.pool) for g in self._guards(node) if not _is_absence(g)]
        uses = children + sum(code.count(VALUE) for code in codes)
        if node.base is None or (not node.wanted and (uses <= 1 or id(node) in self._fixed)):
            value = text
        else:
            value = self._variable(node) if node.wanted else f"_at{depth}"
            if codes:
                codes[0] = codes[0].replace(VALUE, f"({value} := {text})", 1)
            else:
                self.fetch(value, text)
        for code in codes:
            self.check(code.replace(VALUE, value))
        return value

    def _is_fixed(self, node: Source) -> bool:
        """Can nothing change this value, given where it is read? Parts of code objects, and the cells of functions."""
        base = node.base
        if base is None or not (base.is_const or id(base) in self._fixed):
            return False
        owner = base.key if base.is_const else self._fixed[id(base)]
        is_part = type(owner) is CodeType or (type(owner) is FunctionType and node.key == "__closure__")
        if node.kind == "attr" and is_part:
            self._fixed[id(node)] = getattr(owner, node.key)
        elif node.kind == "item" and type(owner) is tuple and type(node.key) is int:
            self._fixed[id(node)] = owner[node.key]
        return id(node) in self._fixed

    def _guards(self, node: Source) -> list[Guard]:
        """Those of a node's guards that are checked here."""
        return [g for g in node.guards if id(g) not in self._elsewhere] if self._elsewhere else node.guards

    def _needed(self, node: Source) -> bool:
        """Is the node or one below it guarded or wanted?"""
        stack = [node]
        while stack:
            at = stack.pop()
            if at.wanted or self._guards(at):
                return True
            stack.extend(at.children.values())
        return False

    def _is_name(self, child: Source) -> bool:
        """Is it an attribute or item of which nothing is asked but that it is this function, class or module?"""
        plain = child.kind in ("attr", "item") and not child.wanted
        if not plain or any(map(self._needed, child.children.values())):
            return False
        return [g.kind for g in child.guards] == ["is"] and isinstance(child.guards[0].expected, CODE)

    def _flush(self) -> None:
        """Write the conditions that wait as one ``if``."""
        if len(self._terms) == 1:
            self.lines.append(f"if not ({self._terms[0]}): return MISS")
        elif self._terms:
            first, *rest = self._terms
            self.lines += ["if not (", f"    {first}", *(f"    and {term}" for term in rest), "): return MISS"]
        self._terms = []


def _later(child: Source) -> int:
    return 2 if child.children else 0 if child.guards else 1


def first_failure(guards: Iterable[Guard], scope: Mapping[str, Any]) -> tuple[Guard, str] | None:
    """The first guard that does not hold in this scope (arguments, and what paths call), and what it found there."""
    pool = Pool(dict(scope))
    for guard in guards:
        try:
            value = eval(guard.source.path(pool), pool.namespace)
        except Exception as error:
            return guard, f"{type(error).__name__}: {error}"
        try:
            pool.namespace["_value"] = value
            if not eval(guard.code("_value", pool), pool.namespace):
                return guard, guard.found(value)
        except Exception as error:
            return guard, f"{type(error).__name__}: {error}"
    return None


# ------------------------------------------------------------------ names that classes lack, checked together


def _is_absence(guard: Guard) -> bool:
    """Does ``_absences`` check this guard?"""
    return (guard.kind == "lacks_class_attr" and guard.source.is_const) or _about_one_class(guard)


def _about_one_class(guard: Guard) -> bool:
    base = guard.source.base
    in_dict = guard.kind == "disjoint" and guard.source.kind == "dict_of"
    return in_dict and base is not None and base.is_const and isinstance(base.key, type)


def _absences(roots: Iterable[Source], pool: Pool) -> Iterator[str]:
    """The conditions for names that classes of certain identity lack: with their bases, or by themselves.

    With its bases, a class lacks a name if no class of its method resolution order has it. ``hasattr`` makes and drops
    an exception to say so. Instead each order is checked by identity, and each class once for all names asked of it.
    """
    names: dict[int, tuple[type, set[str]]] = {}
    for root in roots:
        if not root.is_const or not isinstance(root.key, type):
            continue
        asked = {guard.expected for guard in root.guards if _is_absence(guard)}
        if asked:
            yield f"{pool.object(root.key)}.__mro__ is {pool.object(root.key.__mro__)}"
        for cls in root.key.__mro__ if asked else ():
            if not cls.__flags__ & IMMUTABLE:
                names.setdefault(id(cls), (cls, set()))[1].update(asked)
        for guard in root.step("dict_of").guards:
            if _about_one_class(guard):
                names.setdefault(id(root.key), (root.key, set()))[1].update(guard.expected)
    for cls, lacking in names.values():
        keys: Any = cls.__dict__.keys()  # a view: it shows the class as it is when asked
        if len(lacking) > max(len(keys), FEW):  # the shorter of the two is gone through
            yield f"{pool.object(frozenset(lacking))}.isdisjoint({pool.object(keys)})"
        else:
            yield without(pool.object(keys), lacking, pool)
