"""A captured and compiled frame in JSON: the emitted text, recipes for what it names, and what it took for granted."""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jitney._util.ownership import trusted
from jitney.cache.digest import ATOMS, IMMUTABLE, Fingerprints, NotStorable, digest, of_code
from jitney.cache.frames import pack
from jitney.cache.recipes import Recipe, Writer
from jitney.guards import Guard, Source
from jitney.guards.assumptions import Assumptions
from jitney.guards.condition import Condition
from jitney.guards.source import STEPS
from jitney.guards.stored_guards import rows
from jitney.guards.tensors import TensorFact
from jitney.torch_compat import torch_private

# What the reader puts into the namespace itself.
OWN = ("_state", "_tensors", "_graph", "_held", "_failed", "_unwritten", "_facts")
# Recipes that look where the guards have found something: in another call, something else may be there.
LOOKING = {"source", "code", "bare_code"}
# Attributes of code that an edit elsewhere in its file changes: functions are told apart by what they do.
PLACES = {"co_filename", "co_firstlineno", "co_linetable", "co_lnotab"}
_KEYS: Any = type({}.keys())
_CONTAINERS = (dict, list, set, collections.deque)


class FrameWriter:
    """One frame as it was captured: what it is made of is looked at now, before it has run, since that may change it.

    Args:
        source: the text of the emitted function.
        namespace: its globals.
        guards: on which it depends.
        tensors: what it asks of tensors, in order.
        assumptions: what its capture took for granted.
        known: what the reader will have by name.
        state: ``state_text()`` where the frame was captured.
        made: how code in the namespace was made of the user's, by id: ``recipe(writer)`` tells it to others.
        conditions: on sizes and numbers, for reports.

    Raises:
        NotStorable: something in it cannot be made again in another process.
    """

    def __init__(
        self,
        source: str,
        namespace: Mapping[str, Any],
        guards: list[Guard],
        tensors: list[TensorFact],
        assumptions: Assumptions,
        known: Mapping[str, Any],
        state: str | None,
        made: Mapping[int, Any] | None = None,
        conditions: Sequence[Condition] = (),
    ) -> None:
        if assumptions.private:
            raise NotStorable(assumptions.private)
        for guard in guards:
            if guard.source.kind == "attr" and guard.source.key in PLACES:
                raise NotStorable(f"{guard.source.key}: where code is written")
        if state is None:
            raise NotStorable("torch does not describe its global state here")
        self._origins = _Origins(guards, assumptions, known, made or {})
        self._writer = writer = Writer(self._origins.recipe, known)
        space = writer.space(source, namespace, OWN)
        facts = [_tensor(writer, fact) for fact in tensors]
        functions = list(_functions(writer, assumptions, known))
        subclasses = [[*writer.refs((cls, other)), answer] for cls, other, answer in assumptions.subclasses.values()]
        report = list(rows(guards, namespace.get("_facts", ()), namespace, space, conditions))
        self._data = {
            "state": state,
            "source": source,
            "space": space,
            "tensors": facts,
            "names": [source.name for source, *_ in namespace.get("_facts", ())],
            "functions": functions,
            "subclasses": subclasses,
            "report": writer.blob(json.dumps(report).encode()),
            "taken": list(_taken(writer.prints, assumptions)),
            "lacking": list(_lacking(assumptions)),
        }
        self._origins.copies = True  # a compiled graph shares no containers with the program

    @property
    def fixed(self) -> bool:
        """Will it be made of the same objects for every call?"""
        return is_fixed(self._writer.objects)

    def content(self, graph: Any) -> tuple[bytes, list[Any]]:
        """The frame as bytes, with what its graph (None if it has none) has become so far.

        Also the objects in it that will have more to keep (see ``Writer.later``).

        Raises:
            NotStorable: something in it cannot be made again in another process.
        """
        writer = self._writer.copy()
        data = {**self._data, "graph": None if graph is None else writer.ref(graph), "objects": writer.objects}
        return pack(data, writer.blobs), writer.later


def is_fixed(objects: Sequence[Recipe]) -> bool:
    """Do these recipes make the same objects for every call?"""
    return not any(recipe[0] in LOOKING for recipe in objects)


def _tensor(writer: Writer, fact: TensorFact) -> list[Any]:
    refs = writer.refs((fact.cls, fact.dtype, fact.device))
    return [*refs, fact.requires_grad, fact.keys, list(fact.sizes), list(fact.strides)]


class _Origins:
    """Where objects come from that no import path leads to: the guards found them somewhere."""

    def __init__(
        self, guards: list[Guard], assumptions: Assumptions, known: Mapping[str, Any], made: Mapping[int, Any]
    ) -> None:
        self.assumptions = assumptions
        self.made = made
        self.known = list(known.values())
        self.copies = False  # may containers be equal ones?
        self.lists = {id(guard.expected) for guard in guards if guard.kind == "keys"}  # that belong to guards
        self.sources: dict[int, tuple[Source, str]] = {}
        for guard in guards:
            if guard.kind in ("is", "code") and type(guard.expected) not in ATOMS:
                self.sources.setdefault(id(guard.expected), (guard.source, guard.kind))
        self.codes = [guard.expected for guard in guards if type(guard.expected) is types.CodeType]
        self.roots = list({id(r): r for r in map(_root, (g.source for g in guards))}.values())
        self.classes: dict[int, tuple[str, type]] = {}  # id of a part of a class -> which part
        self.functions: dict[int, types.FunctionType] = {}  # id of a closure -> whose it is
        looked_into = list(assumptions.functions.values())
        for value in (*(root.key for root in self.roots), *self.known, *looked_into):
            self._learn(value)

    def _learn(self, value: Any) -> None:
        """The parts of classes and functions whose identity is certain."""
        if isinstance(value, type):
            self.classes.setdefault(id(value.__mro__), ("__mro__", value))
            for cls in value.__mro__:
                self.classes.setdefault(id(_dict_of(cls)), ("keys", cls))
        elif isinstance(value, types.FunctionType) and value.__closure__:
            self.functions.setdefault(id(value.__closure__), value)

    def recipe(self, value: Any, writer: Writer) -> Recipe | int | None:
        """The recipe of an object, or the number of the one that it is; or None."""
        if isinstance(value, tuple) and id(value) in self.classes:
            part, cls = self.classes[id(value)]
            return ["part", part, writer.ref(cls)]
        if type(value) is _KEYS:
            whose = self.classes.get(id(gc.get_referents(value.mapping)[0]))
            return None if whose is None else ["part", "keys", writer.ref(whose[1])]
        if type(value) is tuple and id(value) in self.functions:
            return ["part", "__closure__", writer.ref(self.functions[id(value)])]
        if type(value) is types.CellType:
            return self._cell(value, writer)
        if type(value) is types.CodeType:
            return self._code(value, writer)
        found = _by_name(value)
        if found is None and id(value) in self.sources:
            found = self._at(value, writer)
        if found is None and isinstance(value, _CONTAINERS) and not (self.copies or id(value) in self.lists):
            raise NotStorable(f"a {type(value).__qualname__} of the program's, which no name leads to")
        return found

    def _cell(self, value: types.CellType, writer: Writer) -> Recipe | None:
        for function in self.functions.values():
            for i, cell in enumerate(function.__closure__ or ()):
                if cell is value:
                    return ["cell", i, writer.ref(function)]
        return None

    def _code(self, value: types.CodeType, writer: Writer) -> Recipe | int | None:
        """Where code is found; what was decoded may be an equal object from an earlier life of the program's module."""
        made = self.made.get(id(value))
        if made is not None:
            recipe: Recipe = made.recipe(writer)
            return recipe
        code = next((code for code in self.codes if _alike(code, value)), value)
        if code is not value:  # one object, one recipe
            return writer.ref(code)
        for root in self.roots:
            if root.is_const and type(root.key) is types.FunctionType and root.key.__code__ is value:
                return ["part", "__code__", writer.ref(root.key)]
        if id(value) in self.sources:
            source, kind = self.sources[id(value)]
            if kind == "is":
                return self._at(value, writer)
            if value not in self.assumptions.functions:  # the frame takes it along, and runs nothing of it
                return ["bare_code", *self._path(source, writer), of_code(value)]
            return ["code", *self._path(source, writer), writer.prints.of(self.assumptions.functions[value])]
        return self._code_of(value, writer)

    def _code_of(self, value: types.CodeType, writer: Writer) -> Recipe | int | None:
        """Whose code it is: of a frame that broke, or of a function made in one."""
        functions = [*self.known, *self.assumptions.functions.values()]
        for owner in functions:
            if isinstance(owner, types.CodeType) and _alike(owner, value):
                return writer.ref(owner)
            if isinstance(owner, types.FunctionType) and _alike(owner.__code__, value):
                with contextlib.suppress(NotStorable):
                    recipe = ["part", "__code__", writer.ref(owner)]
                    return recipe if owner.__code__ is value else writer.ref(owner.__code__)  # one object, one recipe
        for outer in (getattr(owner, "__code__", owner) for owner in functions):
            if isinstance(outer, types.CodeType):
                way = _way_to(value, outer)
                if way:
                    return ["constant", writer.ref(outer), of_code(outer), way]
        return None

    def _at(self, value: Any, writer: Writer) -> Recipe:
        source, _ = self.sources[id(value)]
        try:
            return ["source", *self._path(source, writer), writer.prints.of(value)]
        except NotStorable as reason:
            raise NotStorable(f"{reason}, {source.name}") from None

    def _path(self, source: Source, writer: Writer) -> tuple[Any, list[Any]]:
        """A source's root (a name, or a number) and its steps."""
        steps = []
        while source.base is not None:
            if source.kind not in STEPS:
                raise NotStorable(f"an object that was found by {source.name}")
            steps.append([source.kind, writer.ref(source.key)])
            source = source.base
        root = writer.ref(source.key) if source.is_const else str(source.key)
        return root, steps[::-1]


def _root(source: Source) -> Source:
    while source.base is not None:
        source = source.base
    return source


def _dict_of(cls: type) -> Any:
    """The dictionary behind a class's ``__dict__``."""
    return gc.get_referents(cls.__dict__)[0]


def _by_name(value: Any) -> Recipe | None:
    """A module's globals; the tables of hooks of all modules; the objects whose attributes are torch's C functions."""
    name = value.get("__name__") if type(value) is dict else None
    if isinstance(name, str) and getattr(sys.modules.get(name), "__dict__", None) is value:
        return ["globals", name]
    for name, table in torch_private.global_module_hooks().items():
        if table is value:
            module, _, short = name.rpartition(".")
            return ["global", module, short]
    if type(value).__module__ == "torch._C" and not isinstance(value, type):
        for name, known in vars(sys.modules["torch._C"]).items():
            if known is value:
                return ["global", "torch._C", name]
    return None


def _functions(writer: Writer, assumptions: Assumptions, known: Mapping[str, Any]) -> Iterator[int]:
    """The functions that were looked into, those that are found by name; raises for what comes from nowhere."""
    own = [getattr(value, "__code__", value) for value in known.values()]
    covered = {id(code) for owner in own if isinstance(owner, types.CodeType) for code in _nested(owner)}
    rest = []
    for code, function in assumptions.functions.items():
        if function.__code__ is not code and not writer.prints.has(function):  # a notebook has loaded it anew
            raise NotStorable(f"the function {code.co_qualname}, whose code is another one now")
        recipe = writer.path(function)
        if recipe is not None:
            yield writer.ref(function)
        found = writer.has(function) or writer.has(code) or writer.prints.has(function)
        if recipe is not None or found or trusted(function):
            covered.update(map(id, _nested(code)))
        else:
            rest.append(code)
    for code in rest:
        if id(code) not in covered:
            raise NotStorable(f"the function {code.co_qualname}, of which nothing says where it comes from")


def _way_to(code: types.CodeType, outer: types.CodeType) -> list[int]:
    """Which constant of which constant of ``outer`` code is; empty if none is."""
    for i, constant in enumerate(outer.co_consts):
        if isinstance(constant, types.CodeType):
            way = [] if _alike(constant, code) else _way_to(code, constant)
            if way or _alike(constant, code):
                return [i, *way]
    return []


def _alike(code: types.CodeType, other: types.CodeType) -> bool:
    return code is other or (code == other and code.co_filename == other.co_filename)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _name_of(owner: Any) -> tuple[str, str]:
    """The module of a class, module or namespace, and the path in it."""
    if not isinstance(owner, (dict, types.ModuleType)):
        return owner.__module__, owner.__qualname__
    space = owner if isinstance(owner, dict) else vars(owner)
    name = str(space.get("__name__"))
    found = sys.modules.get(name)
    if found is None or vars(found) is not space:  # such as _collections_abc, which calls itself collections.abc
        name = str(getattr(space.get("__spec__"), "name", name))
    return name, ""


def _lacking(assumptions: Assumptions) -> Iterator[list[Any]]:
    """Names that are not there, by owner."""
    found: dict[int, tuple[Any, list[str]]] = {}
    for owner, name in assumptions.lacking.values():
        found.setdefault(id(owner), (owner, []))[1].append(name)
    for owner, names in found.values():
        module, path = _name_of(owner)
        holder = at_name(module, path)
        if holder is not owner and (holder is None or vars(holder) is not owner):
            raise NotStorable(f"{module}.{path} is not where it says")
        if any(name in vars(holder) for name in names):  # it came while the frame ran
            raise NotStorable(f"{module}.{path} has got names that it lacked")
        yield [module, path, sorted(names)]


def at_name(module: str, path: str) -> Any:
    """A module, or a class in it; None if there is no such thing."""
    found: Any = sys.modules.get(module)
    for part in path.split(".") if path else ():
        found = getattr(found, part, None)
    return found


def _taken(prints: Fingerprints, assumptions: Assumptions) -> Iterator[list[str]]:
    """What was read without guards: the owner's name, the attribute's, and what it was."""
    for owner, name, value in assumptions.taken.values():
        module, path = _name_of(owner)
        if look_up(module, path, name) is value:
            yield [module, path, name, described(prints, value)]
        elif "<locals>" not in path and not (isinstance(owner, type) and owner.__flags__ & IMMUTABLE):
            raise NotStorable(f"{module}.{path or name} is not where it says")


def look_up(module: str, path: str, name: str) -> Any:
    """What a module, or a class in it, has under a name; None if there is no such thing."""
    found: Any = sys.modules.get(module)
    if not path:
        return getattr(found, "__dict__", {}).get(name)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        return None
    return next((c.__dict__[name] for c in found.__mro__ if name in c.__dict__), None)


def described(prints: Fingerprints, value: Any) -> str:
    """What something is, as short text; of what has no fingerprint, its class."""
    try:
        return digest(prints.of(value))[:16]
    except NotStorable:
        return type(value).__qualname__
