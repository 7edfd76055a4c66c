"""The guard program: text that walks every source once, checks as it fetches, and leaves the values in variables."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any

from jitney.errors import GuardError
from jitney.guards.guard import Guard
from jitney.guards.pool import Pool
from jitney.guards.source import Source


class Program:
    """Lines of a prologue. A line that does not hold returns ``MISS``; a fetch that raises does so too."""

    def __init__(self, pool: Pool, prefix: str = "_v") -> None:
        self.pool = pool
        self.prefix = prefix
        self.lines: list[str] = []
        self.variables: dict[int, str] = {}

    def write(self, roots: Iterable[Source]) -> None:
        """Emit fetches and checks for every node that is guarded, wanted, or leads to one."""
        for root in roots:
            if self._needed(root):
                self._node(root, "")

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

    def _needed(self, node: Source) -> bool:
        stack = [node]
        while stack:
            at = stack.pop()
            if at.guards or at.wanted:
                return True
            stack.extend(at.children.values())
        return False

    def _node(self, root: Source, base: str) -> None:
        todo = [(root, base)]
        while todo:
            node, base = todo.pop()
            text = node.expression(base, self.pool)
            children = [c for c in node.children.values() if self._needed(c)]
            simple = node.kind in ("local", "const")
            uses = len(node.guards) + len(children) + node.wanted
            if simple or (uses == 1 and not node.wanted and not children and not _repeats(node.guards[0])):
                value = text
            elif node.guards:
                value = self._variable(node)
                text = f"({value} := {text})"
            else:
                value = self._variable(node)
                self.lines.append(f"{value} = {text}")
            if node.guards:
                first, *rest = [g.code(value, self.pool) for g in node.guards]
                if text != value:
                    first = first.replace(value, text, 1)
                self.lines.append(f"if not ({' and '.join([first, *rest])}): return MISS")
            todo.extend((c, value) for c in reversed(children))


def _repeats(guard: Guard) -> bool:
    """Does the check's text name the value more than once?"""
    return guard.code("@", Pool()).count("@") > 1


def first_failure(guards: Iterable[Guard], scope: Mapping[str, Any]) -> tuple[Guard, str] | None:
    """The first guard that does not hold in this scope (arguments, and what paths call), and what it found there."""
    pool = Pool({**scope, "_b": builtins})
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
