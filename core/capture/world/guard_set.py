"""What one capture depends on: the sources that it has read, and the guards on them."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from traceback import FrameSummary
from typing import Any

import torch

from jitney.capture.kinds import ATOMS
from jitney.capture.world.record import ABSENT
from jitney.guards import Guard, Source


class GuardSet:
    """The roots, guards and relations of one capture. ``origin`` says which line of the program is running.

    ``comparisons``: functions of what is at several sources, and what they gave.
    """

    def __init__(self, origin: Callable[[], FrameSummary | None]) -> None:
        self.origin = origin
        self.roots: list[Source] = []
        self.consts: dict[int, Source] = {}
        self.guards: list[Guard] = []
        self.relations: list[tuple[Source, Source, bool]] = []
        self.comparisons: list[tuple[Callable[..., bool | None], tuple[Source, ...], bool]] = []
        self.absent_names: dict[int, tuple[Source, set[str]]] = {}

    def local(self, name: str) -> Source:
        """The root for an argument of the emitted function."""
        source = Source(None, "local", name)
        self.roots.append(source)
        return source

    def const(self, value: Any) -> Source:
        """The root for an object whose identity is already certain."""
        source = self.consts.get(id(value))
        if source is None:
            source = self.consts[id(value)] = Source(None, "const", value)
            self.roots.append(source)
        return source

    def guard(self, source: Source, kind: str, expected: Any = None) -> None:
        """Add a condition, once."""
        for g in source.guards:
            if g.kind == kind and (g.expected is expected or (type(expected) is str and g.expected == expected)):
                return
        guard = Guard(source, kind, expected, self.origin())
        source.guards.append(guard)
        self.guards.append(guard)

    def guard_disjoint(self, source: Source, name: str) -> None:
        """Guard that a namespace lacks this name: one check for all names of one namespace."""
        absent = self.absent_names.get(id(source))
        if absent is None:
            absent = self.absent_names[id(source)] = (source, set())
            self.guard(source, "disjoint", absent[1])
        absent[1].add(name)

    def relate(self, a: Source, b: Source, same: bool) -> None:
        """Guard that two sources hold the same object, or two different ones."""
        if a is b:
            return
        a.wanted = b.wanted = True
        self.relations.append((a, b, same))

    def guard_path(self, path: str, value: Any) -> None:
        """Guard what is found at a path of names from ``torch`` or ``builtins``."""
        if path.startswith("torch.Tensor."):
            self.guard_method(path.removeprefix("torch.Tensor."))
            return
        root, *names, name = path.split(".")
        owner: Any = builtins if root == "builtins" else torch
        for part in names:
            owner = getattr(owner, part)
        self.guard(self.const(owner).attr(name), "is", value)

    def guard_method(self, name: str) -> None:
        """Guard a method of ``torch.Tensor``: its own, or that it has none. What it inherits, nobody can change."""
        storage = self.const(torch.Tensor).step("dict_of")
        method = vars(torch.Tensor).get(name, ABSENT)
        if method is ABSENT:
            self.guard_disjoint(storage, name)
        else:
            self.guard(storage.item(name), "equals" if type(method) in ATOMS else "is", method)

    def guard_name(self, owner: Any, name: str, value: Any) -> None:
        """Guard what a module, or ``torch.Tensor``, has under a name."""
        if owner is torch.Tensor:
            self.guard_method(name)
        else:
            self.guard(self.const(owner).attr(name), "is", value)
