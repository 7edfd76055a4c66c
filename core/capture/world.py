"""Everything older than the frame: read once under guards, written only to overlays until the graph has run.

``wrap`` turns a value found at a source into the value that the interpreter works with: a constant under a guard,
a stand-in for a tensor, or the object itself with a ``Record`` that knows its source and its pending writes.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import enum
import types
import typing
import weakref
from collections.abc import Callable, Collection
from traceback import FrameSummary
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.arrays.dtypes import DTYPE_CLASSES, SCALARS
from jitney.capture.arrays.stand_in import Array, ArrayMethod
from jitney.capture.code import leaves_traces
from jitney.capture.record import ABSENT, CONTENT_TYPES, Record
from jitney.capture.signals import Break
from jitney.guards import Guard, Source
from jitney.guards.trail import Trail
from jitney.guards.watch import Watch
from jitney.trust import trusted

if TYPE_CHECKING:
    from jitney.capture.tensors import Tracer

ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
GENERIC = type(typing.Generic[typing.TypeVar("T")])  # type: ignore[index]
ALIASES = (types.UnionType, types.GenericAlias, type(typing.List), GENERIC)  # noqa: UP006
METADATA = (torch.dtype, torch.layout, torch.memory_format)
CODE_LIKE = (
    type,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.CodeType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    property,
    staticmethod,
    classmethod,
)


HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement, whose attributes may be set


_NOTHING = contextlib.nullcontext()


class World:
    """The records of one capture, and the guards that reading made."""

    def __init__(self, tracer: Tracer, origin: Callable[[], FrameSummary | None]) -> None:
        self.tracer = tracer
        self.origin = origin
        self.roots: list[Source] = []
        self.consts: dict[int, Source] = {}
        self.records: dict[int, Record] = {}
        self.guards: list[Guard] = []
        self.relations: list[tuple[Source, Source, bool]] = []
        self.apart: dict[type, dict[int, Source]] = {}
        self.fresh: dict[int, Any] = {}
        self.class_steps: dict[int, int] = {}
        self.trail = Trail()
        self.watch: Watch | None = None  # open where C code handles the program's objects
        self.absent_names: dict[int, tuple[Source, set[str]]] = {}
        self.is_dynamic: Callable[[Source, Any], bool] = lambda source, value: False
        self.make_symbol: Callable[[Any, Source], Any] = lambda value, source: value
        self.adopt_array: Callable[[Any, Source], Any] = lambda value, source: None
        self.steady: Callable[[Source, Any], bool] = lambda source, value: True
        self._table: dict[type, Callable[[Any, Source], Any]] = self._make_table()

    # ------------------------------------------------------------------ sources and guards

    def local(self, name: str) -> Source:
        """The root for an argument of the emitted function."""
        source = Source(None, "local", name)
        self.roots.append(source)
        return source

    def const(self, value: Any) -> Source:
        """The root for an object whose identity is already certain."""
        found = self.consts.get(id(value))
        if found is None:
            found = self.consts[id(value)] = Source(None, "const", value)
            self.roots.append(found)
        return found

    def guard(self, source: Source, kind: str, expected: Any = None) -> None:
        """Add a condition, once."""
        for g in source.guards:
            if g.kind == kind and (g.expected is expected or (type(expected) is str and g.expected == expected)):
                return
        made = Guard(source, kind, expected, self.origin())
        source.guards.append(made)
        self.guards.append(made)

    def guard_disjoint(self, source: Source, name: str) -> None:
        """Guard that a namespace lacks this name: one check for all names of one namespace."""
        found = self.absent_names.get(id(source))
        if found is None:
            found = self.absent_names[id(source)] = (source, set())
            self.guard(source, "disjoint", found[1])
        found[1].add(name)

    def relate(self, a: Source, b: Source, same: bool) -> None:
        """Guard that two sources hold the same object, or two different ones."""
        if a is b:
            return
        a.wanted = b.wanted = True
        self.relations.append((a, b, same))

    def forget_values(self) -> None:
        """Let go of what was read: guards outlive the capture, the values must not."""
        for root in self.roots:
            for source in root.walk():
                source.seen = None
        for record in self.records.values():
            record.dict_record = record.owner = record.content = record.original = record.value = None
        for table in (self.apart, self.records, self.fresh, self.consts, self.tracer.adopted, self.tracer.stand_ins):
            table.clear()
        self.tracer.kept.clear()
        self.tracer.nodes.clear()

    # ------------------------------------------------------------------ records

    def record_of(self, value: Any) -> Record | None:
        """The record of an object older than the frame."""
        return self.records.get(id(value))

    def add(self, value: Any, source: Source) -> Record:
        """Register an object; seen before under another source, guard that the two are one."""
        found = self.records.get(id(value))
        if found is not None:
            if found.source is not source:
                self.relate(found.source, source, True)
            return found
        record = self.records[id(value)] = Record(value, source)
        return record

    def anchor(self, value: Any) -> Record:
        """The record of ``value``; an object of unknown origin (a class, function, module) is its own root."""
        found = self.records.get(id(value))
        return found if found is not None else self.add(value, self.const(value))

    def is_fresh(self, value: Any) -> bool:
        """Was this object made by the frame being captured?"""
        return id(value) in self.fresh

    def mark_fresh(self, value: Any) -> Any:
        """Register an object as made by the frame being captured."""
        self.fresh[id(value)] = value
        return value

    # ------------------------------------------------------------------ dictionaries and instance attributes

    def dict_record(self, record: Record) -> Record | None:
        """The record of an object's ``__dict__``, or None where it has none."""
        if record.dict_record is None:
            try:
                storage = object.__getattribute__(record.value, "__dict__")
            except (AttributeError, TypeError):
                return None
            if type(storage) is not dict:
                return None
            plain = not any(
                isinstance(vars(c).get("__getattribute__"), types.FunctionType) for c in type(record.value).__mro__
            )
            step = record.source.step("dict_of") if plain else record.source.step("static_attr", "__dict__")
            record.dict_record = self.add(storage, step)
            record.dict_record.owner = record
        return record.dict_record

    def dict_get(self, record: Record, key: Any) -> Any:
        """One entry of a dictionary, guarded, or ``ABSENT``."""
        if record.content is not None:
            return record.content.get(key, ABSENT)
        if key in record.overlay:
            return record.overlay[key]
        real_key = self.tracer.real_of(key)
        if real_key is key and not self.fixed_key(key):
            return self._get_by_object(record, key)
        value = dict.get(record.value, real_key, ABSENT)
        if value is ABSENT:
            if real_key is key:
                self.guard(record.source, "lacks", key)
            else:
                self.dict_content(record)
            return ABSENT
        if real_key is not key:
            return self.dict_content(record).get(key, ABSENT)
        return self.wrap(value, record.source.step(self.item_kind(record.value), key))

    def dict_has(self, record: Record, key: Any) -> bool:
        """Membership, guarded without reading the value."""
        if record.content is not None:
            return key in record.content
        if key in record.overlay:
            return True
        if self.tracer.real_of(key) is not key:
            return key in self.dict_content(record)
        if not self.fixed_key(key):
            return self._get_by_object(record, key) is not ABSENT
        has = dict.__contains__(record.value, key)
        child = record.source.children.get(("item", type(key), key)) if isinstance(key, str | int) else None
        if not has:
            self.guard(record.source, "lacks", key)
        elif child is None or child.seen is None:
            self.guard(record.source, "has", key)
        return has

    def fixed_key(self, key: Any) -> bool:
        """Is this key the same in every call for which the capture holds?"""
        if isinstance(key, tuple):
            return all(map(self.fixed_key, tuple.__iter__(key)))
        if isinstance(key, types.MethodType):
            return False
        found = self.records.get(id(key))
        return found is None or found.source.is_const or self.is_fresh(key)

    def _get_by_object(self, record: Record, key: Any) -> Any:
        """Look an object from outside up by its identity: all keys are read, and told apart from it by guards."""
        if isinstance(key, tuple | types.MethodType):
            raise Break("a dictionary key holds an object from outside", "look it up outside the compiled function")
        content = self.dict_content(record)
        self.tell_apart(key, content)
        return content.get(key, ABSENT)

    def tell_apart(self, value: Any, others: Any) -> None:
        """Guard that an object from outside is none of these other ones of its class."""
        first = self.records.get(id(value))
        if first is None or first.source.is_const:
            return
        if isinstance(value, types.FunctionType):
            self.guard(first.source, "is", value)
            return
        for other in others:
            second = self.records.get(id(other))
            if second is not None and other is not value and type(other) is type(value):
                self.relate(first.source, second.source, False)

    def distinct(self, value: Any) -> None:
        """C code tells this object from others by identity: those of one class must be as different at each call."""
        if isinstance(value, types.MethodType):
            self.distinct(value.__self__)
        elif isinstance(value, tuple):
            for item in tuple.__iter__(value):
                self.distinct(item)
        elif not isinstance(value, (*CONTENT_TYPES, torch.Tensor)):
            record = self.records.get(id(value))
            if record is not None and (not record.source.is_const or isinstance(value, types.FunctionType)):
                self.apart.setdefault(type(value), {})[id(value)] = record.source

    def dict_set(self, record: Record, key: Any, value: Any) -> None:
        """Set an entry, pending until the graph has run."""
        if record.content is not None:
            record.content[key] = value
        else:
            record.overlay[key] = value
        record.dirty = True

    def dict_delete(self, record: Record, key: Any) -> None:
        """Delete an entry, pending until the graph has run."""
        del self.dict_content(record)[key]
        record.dirty = True

    def dict_content(self, record: Record) -> Any:
        """The whole dictionary as a shadow of the same builtin kind, values wrapped, keys guarded in order."""
        if record.content is None:
            with self._watched(dict.keys(record.value)):
                self._read_dictionary(record)
        return record.content

    def _read_dictionary(self, record: Record) -> None:
        real = record.value
        self._check_plain(type(real))
        ordered = isinstance(real, collections.OrderedDict)
        keys = list((collections.OrderedDict if ordered else dict).keys(real))
        kind = self.item_kind(real)
        content: Any = collections.OrderedDict() if ordered else {}
        simple = all(self.constant_key(k) for k in keys)
        self.guard(record.source, "keys" if simple else "len", keys if simple else len(keys))
        for i, key in enumerate(keys):
            if simple:
                source = record.source.step(kind, key)
                content[key] = self.wrap(dict.__getitem__(real, key), source)
            else:
                at = record.source.step("key_at", i)
                wrapped = self.wrap(key, at)
                value_at = record.source.step("call_values", i)
                content[wrapped] = self.wrap(dict.__getitem__(real, key), value_at)
        record.original = dict(content)
        content.update(record.overlay)
        record.overlay = {}
        record.content = content

    @staticmethod
    def _check_plain(kind: type) -> None:
        """The guards on a container count and list its items by Python: it may not have its own idea of them."""
        for name in ("__len__", "__iter__"):
            if type(getattr(kind, name)) is types.FunctionType and not trusted(kind):
                raise Break(f"a {kind.__qualname__} from outside, which has its own {name}, is looked into")

    @staticmethod
    def constant_key(key: Any) -> bool:
        """May this key be written into a guard as a constant?"""
        if isinstance(key, tuple):
            return type(key) is tuple and all(World.constant_key(k) for k in key)
        if type(key) in SCALARS:  # float64 is a float
            return False
        return isinstance(key, (*ATOMS, *METADATA, enum.Enum, types.FunctionType, torch.device, *CODE_LIKE))

    @staticmethod
    def item_kind(real: Any) -> str:
        """How to read an item without running an override."""
        if type(real) in (dict, list, tuple, collections.OrderedDict, collections.deque):
            return "item"
        if isinstance(real, dict):
            return "dict_item"
        if isinstance(real, list):
            return "list_item"
        return "tuple_item" if isinstance(real, tuple) else "item"

    def content(self, record: Record) -> Any:
        """The shadow of a list, deque, set or dictionary: an equal container of wrapped values."""
        if record.content is not None:
            return record.content
        real = record.value
        self._check_plain(type(real))
        if isinstance(real, dict):
            return self.dict_content(record)
        kind = self.item_kind(real)
        if isinstance(real, list | collections.deque):
            self.guard(record.source, "len", len(real))
            items = [self.wrap(v, record.source.step(kind, i)) for i, v in enumerate(real)]
            record.content = items if isinstance(real, list) else collections.deque(items, real.maxlen)
        elif isinstance(real, set | frozenset):
            with self._watched(real):
                record.content = self._read_set(record, real)
        else:
            raise TypeError(f"no content: {type(real)}")
        content: Any = record.content
        record.original = content.copy()
        if record.pending:
            content.extend(record.pending)
            record.pending = []
        return content

    def _read_set(self, record: Record, real: Any) -> set[Any]:
        if all(self.constant_key(k) for k in real):
            self.guard(record.source, "set", frozenset(real))
            return set(real)
        self.guard(record.source, "len", len(real))
        return {self.wrap(v, record.source.step("key_at", i)) for i, v in enumerate(real)}

    # ------------------------------------------------------------------ wrapping

    def wrap(self, value: Any, source: Source) -> Any:
        """The interpreter's value for what is at ``source``; reading it guards it."""
        if source.seen is None:
            kind = type(value)
            handler = self._table.get(kind)
            if handler is None:
                handler = self._table[kind] = self._classify(kind)
            with self._watched((value,)):
                source.seen = (handler(value, source),)
        return source.seen[0]

    def _watched(self, values: Collection[Any]) -> contextlib.AbstractContextManager[Any]:
        """Open the watch, if one is kept, where these values are handled by C code."""
        return self.watch if self.watch is not None and self.watch.over(values) else _NOTHING

    def _make_table(self) -> dict[type, Callable[[Any, Source], Any]]:
        table: dict[type, Callable[[Any, Source], Any]] = {}
        t: type
        for t in (type(None), bool, type(Ellipsis), type(NotImplemented), *METADATA):
            table[t] = self._wrap_identity
        for t in (str, bytes, complex, torch.device, torch.Size, range):
            table[t] = self._wrap_equal
        table[int] = table[float] = self._wrap_number
        for t in CODE_LIKE:
            table[t] = self._wrap_code_like
        table[types.FunctionType] = self._wrap_function
        table[types.MethodType] = self._wrap_method
        table[types.CellType] = self._wrap_object
        table[tuple] = self._wrap_tuple
        table[frozenset] = self._wrap_frozenset
        table[slice] = self._wrap_slice
        table[weakref.ref] = self._wrap_object
        for t in (torch.Tensor, torch.nn.Parameter):
            table[t] = self.tracer.adopt_checked
        for t in (np.ndarray, *SCALARS):
            table[t] = self._wrap_array
        for t in (np.ufunc, type(np.sum)):
            table[t] = self._wrap_code_like
        table.update(dict.fromkeys(DTYPE_CLASSES, self._wrap_equal))
        return table

    def _classify(self, kind: type) -> Callable[[Any, Source], Any]:
        if issubclass(kind, torch.Tensor):
            return self.tracer.adopt_checked
        if issubclass(kind, CODE_LIKE):
            return self._wrap_code_like
        if issubclass(kind, enum.Enum):
            return self._wrap_identity
        if issubclass(kind, int | float | complex | str | bytes):
            return self._refuse_subclass
        if issubclass(kind, tuple):
            return self._wrap_tuple
        return self._wrap_alias if issubclass(kind, ALIASES) else self._wrap_object

    def _wrap_identity(self, value: Any, source: Source) -> Any:
        self.guard(source, "is", value)
        return value

    def _wrap_equal(self, value: Any, source: Source) -> Any:
        self.guard(source, "equals", value)
        return value

    def _wrap_number(self, value: Any, source: Source) -> Any:
        if self.is_dynamic(source, value):
            self.guard(source, "type", type(value))
            return self.make_symbol(value, source)
        self.guard(source, "equals", value)
        return value

    def _wrap_code_like(self, value: Any, source: Source) -> Any:
        """Classes, builtins, modules, descriptors: guarded by identity, their own root from then on."""
        owner = getattr(value, "__self__", None)
        if isinstance(value, types.BuiltinFunctionType) and not isinstance(owner, types.ModuleType | type | None):
            return self._wrap_bound_builtin(value, source)
        if self._trusted_read(source):
            self._take(source, value)
        self.guard(source, "is", value)
        self.anchor(value)
        return value

    def take(self, owner: Any, name: str, value: Any) -> Any:
        """``value`` was read from a module, class or namespace of torch's or the standard library's; the value.

        Nobody replaces it, mostly: the guard is for those who do.
        """
        self.trail.take(owner, name, value)
        kind = "equals" if type(value) in ATOMS else "is"
        if isinstance(owner, dict):
            self.guard(self.const(owner).item(name), kind, value)
        elif not isinstance(owner, type) or getattr(owner, name, ABSENT) is value:
            if not isinstance(owner, type) or owner.__flags__ & HEAP_TYPE:
                self.guard(self.const(owner).attr(name), kind, value)
        else:
            holder = next(cls for cls in owner.__mro__ if name in cls.__dict__)
            if holder.__flags__ & HEAP_TYPE:
                self.guard(self.const(holder).step("class_dict", name), kind, value)
        return value

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
        found = vars(torch.Tensor).get(name, ABSENT)
        if found is ABSENT:
            self.guard_disjoint(storage, name)
        else:
            self.guard(storage.item(name), "equals" if type(found) in ATOMS else "is", found)

    def guard_name(self, owner: Any, name: str, value: Any) -> None:
        """Guard what a module, or ``torch.Tensor``, has under a name."""
        if owner is torch.Tensor:
            self.guard_method(name)
        else:
            self.guard(self.const(owner).attr(name), "is", value)

    def _take(self, source: Source, value: Any) -> None:
        """Note what is taken for granted in this process."""
        base = source.base
        if base is not None and base.is_const and type(source.key) is str:
            self.trail.take(base.key, source.key, value)
        else:
            self.trail.keep_private(f"{source.name} is taken as it is")

    def _wrap_bound_builtin(self, value: Any, source: Source) -> Any:
        owner = self.wrap(value.__self__, source.attr("__self__"))
        self.guard(source, "type", type(value))
        self.guard(source.attr("__name__"), "equals", value.__name__)
        if type(owner) is Array:
            return ArrayMethod(owner, value.__name__)
        if owner is not value.__self__:
            value = getattr(owner, value.__name__)
        self.add(value, source)
        return value

    def _trusted_read(self, source: Source) -> bool:
        base = source.base
        while base is not None and base.kind in ("dict_of",):
            base = base.base
        return base is not None and base.is_const and trusted(base.key)

    def _wrap_function(self, value: types.FunctionType, source: Source) -> Any:
        """By identity where it is somebody's definition; by code where it may be made anew for every call."""
        base = source.base
        while base is not None and base.kind == "dict_of":
            base = base.base
        if base is not None and base.is_const:
            if trusted(base.key):
                self._take(source, value)
            self.guard(source, "is", value)
            self.anchor(value)
            return value
        found = self.records.get(id(value))
        if found is not None and not found.source.is_const:
            self.relate(found.source, source, True)
            return value
        self.guard(source, "code", value.__code__)
        self.guard(source.attr("__globals__"), "is", value.__globals__)
        if found is None:
            self.add(value, source)
        else:
            self.guard(source, "is", value)
        return value

    def _wrap_method(self, value: types.MethodType, source: Source) -> Any:
        self.guard(source, "type", types.MethodType)
        owner = self.wrap(value.__self__, source.attr("__self__"))
        func = self.wrap(value.__func__, source.attr("__func__"))
        if owner is not value.__self__ or func is not value.__func__:
            value = types.MethodType(func, owner)
        self.add(value, source)
        return value

    def _wrap_tuple(self, value: tuple[Any, ...], source: Source) -> Any:
        if type(value) is tuple and self.constant_key(value) and not self._has_changing_float(value, source):
            self.guard(source, "equals", value)
            return value
        self.guard(source, "type", type(value))
        self.guard(source, "len", tuple.__len__(value))
        kind = self.item_kind(value)
        items = [self.wrap(v, source.step(kind, i)) for i, v in enumerate(tuple.__iter__(value))]
        if any(a is not b for a, b in zip(items, tuple.__iter__(value), strict=True)):
            if type(value) is not tuple and not hasattr(value, "_fields") and not hasattr(value, "n_fields"):
                return self._opaque(value, source)
            value = type(value)(items) if hasattr(value, "n_fields") else tuple.__new__(type(value), items)
        if value:
            self.add(value, source)
        return value

    def _has_changing_float(self, value: tuple[Any, ...], source: Source) -> bool:
        """Is an item of this tuple a float that changes, as Adam's betas do under a schedule? Each float is noted."""
        kind = self.item_kind(value)
        changing = [self.is_dynamic(source.step(kind, i), v) for i, v in enumerate(value) if type(v) is float]
        return any(changing)

    def _wrap_frozenset(self, value: frozenset[Any], source: Source) -> Any:
        if all(self.constant_key(k) for k in value):
            self.guard(source, "type", frozenset)
            self.guard(source, "set", value)
            return value
        return self._opaque(value, source)

    def _wrap_slice(self, value: slice, source: Source) -> Any:
        self.guard(source, "type", slice)
        parts = [self.wrap(getattr(value, n), source.attr(n)) for n in ("start", "stop", "step")]
        return slice(*parts)

    def _wrap_object(self, value: Any, source: Source) -> Any:
        """An object with identity: its class is guarded, its parts when they are looked at."""
        found = self.records.get(id(value))
        if found is not None and found.source is not source:
            self.relate(found.source, source, True)
            return value
        if any(isinstance(vars(c).get("__del__"), types.FunctionType) for c in type(value).__mro__):
            raise Break(
                f"a {type(value).__qualname__} from outside has __del__", "when it is dropped depends on who holds it"
            )
        getter: Any = type(value).__getattribute__
        if type(getter) is types.FunctionType and leaves_traces(getter.__code__):
            raise Break(
                f"a {type(value).__qualname__}, whose __getattribute__ writes, from outside",
                "capture itself reads attributes, too",
            )
        self.guard(source, "type", type(value))
        self.add(value, source)
        return value

    def _wrap_alias(self, value: Any, source: Source) -> Any:
        """``int | str``, ``list[int]``: what C code and ``typing`` read of it, when it is compared or asked for."""
        made = self._wrap_object(value, source)
        for name in ("__origin__", "__args__"):
            if hasattr(value, name):
                self.wrap(getattr(value, name), source.attr(name))
        return made

    def _refuse_subclass(self, value: Any, source: Source) -> Any:
        base = next(b for b in (int, float, complex, str, bytes) if isinstance(value, b))
        raise Break(
            f"a {type(value).__qualname__}, a subclass of {base.__name__}, from outside",
            f"pass a plain {base.__name__}",
        )

    def _wrap_array(self, value: Any, source: Source) -> Any:
        made = self.adopt_array(value, source)
        if made is not None:
            return made
        return self._refuse_subclass(value, source) if isinstance(value, float) else self._wrap_object(value, source)

    def _opaque(self, value: Any, source: Source) -> Any:
        self.guard(source, "is", value)
        self.add(value, source)
        return value
