"""Everything older than the frame: read once under guards, written only to overlays until the graph has run.

``wrap`` turns a value found at a source into the value that the interpreter works with: a constant under a guard,
a stand-in for a tensor, or the object itself with a ``Record`` that knows its source and its pending writes.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import operator
import types
from collections.abc import Callable, Collection
from traceback import FrameSummary
from typing import Any

import torch

from jitney._util.ownership import HEAP, trusted
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ATOMS, CODE_LIKE, METADATA, hashed_in_python
from jitney.capture.python import type_slots
from jitney.capture.torch.tensors import Tracer
from jitney.capture.world.guard_set import GuardSet
from jitney.capture.world.record import ABSENT, CONTENT_TYPES, Record
from jitney.capture.world.set_order import NEVER, SetOrders, is_like, set_in_order, table_size
from jitney.guards import Source
from jitney.guards.assumptions import CONTAINERS, Assumptions
from jitney.guards.reentry import ReentryWatch

_NOTHING = contextlib.nullcontext()


# What makes the interpreter's value of one from outside: ``wrap(world, value, source)``.
Wrapper = Callable[["World", Any, Source], Any]


def _has_other_hashes(container: Any, keys: Collection[Any]) -> bool:
    """Was a key put there under another hash than it has now? A lookup may find it all the same, where it lies.

    Copies of sets and dictionaries keep the hashes that these have noted, and so does the hash of a frozenset.
    """
    noted = dict.copy(container) if isinstance(container, dict) else container
    return hash(frozenset(noted)) != hash(frozenset(list(keys)))


def _is_unhashable(value: Any) -> bool:
    """Is it a class that has no hash, since its metaclass says so, or an instance of one?"""
    kind: Any = type(value)
    return type(kind).__hash__ is None or (kind.__hash__ is None and issubclass(kind, type))


def _contains_in_python(real: dict[Any, Any]) -> bool:
    """Has the class of a dictionary an idea of its own of what is in it, which guards are not to ask?"""
    return type(type(real).__contains__) is types.FunctionType


class World(GuardSet):
    """The records of one capture, and the guards that reading made.

    Args:
        tracer: makes what knows the tensors, which guards what it reads here.
        wrapper: what wraps values of a class.
        adopt_array: the stand-in for an array of NumPy, or None.
        is_dynamic: is the number at this source another one from call to call?
        steady: does what is at this source stay as it is from call to call?
        origin: which line of the program is running.
        watch: is open where C code handles the program's objects.
        settle: has the hash of a key interpreted, and its equality with these others.
    """

    def __init__(
        self,
        tracer: Callable[[GuardSet], Tracer],
        wrapper: Callable[[type], Wrapper],
        adopt_array: Callable[[Any, Source], Any],
        is_dynamic: Callable[[Source, Any], bool],
        steady: Callable[[Source, Any], bool],
        origin: Callable[[], FrameSummary | None],
        watch: ReentryWatch | None,
        settle: Callable[[Any, Collection[Any]], None],
    ) -> None:
        super().__init__(origin)
        self.tracer = tracer(self)
        self.wrapper = wrapper
        self.adopt_array = adopt_array
        self.is_dynamic = is_dynamic
        self.steady = steady
        self.watch = watch
        self.settle = settle
        self.records: dict[int, Record] = {}
        self.apart: dict[type, dict[int, Source]] = {}
        self.fresh: dict[int, Any] = {}
        self.class_steps: dict[int, int] = {}
        self.assumptions = Assumptions()
        self.set_orders = SetOrders()
        self.views: dict[int, Any] = {}  # those of dictionaries from outside, as views of what capture has of them
        self.viewed: set[int] = set()  # dictionaries that are read for a view of them
        self._wrappers: dict[type, Wrapper] = {}

    def forget_values(self) -> None:
        """Let go of what was read: guards outlive the capture, the values must not."""
        for root in self.roots:
            for source in root.walk():
                source.seen = None
        for record in self.records.values():
            record.dict_record = record.owner = record.content = record.original = record.value = None
        for table in (
            self.apart,
            self.records,
            self.fresh,
            self.consts,
            self.views,
            self.tracer.adopted,
            self.tracer.stand_ins,
        ):
            table.clear()
        self.set_orders = SetOrders()
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

    def guard_bases(self, cls: type) -> None:
        """Guard which classes a class is derived from: a program may give it others."""
        if cls.__flags__ & HEAP and not self.is_fresh(cls) and not trusted(cls):
            self.guard(self.const(cls).attr("__mro__"), "is", cls.__mro__)

    def read_order(self, value: set[Any] | frozenset[Any]) -> None:
        """The items of a set are looked at one after the other."""
        self.set_orders.read(value)
        self.assumptions.order_of(value)

    def read_orders_within(self, value: Any) -> None:
        """A value is turned into text, or walked over by C code, and so are the sets in it."""
        if isinstance(value, (set, frozenset)):
            self.read_order(value)
        parts = value.args if isinstance(value, BaseException) else value
        if isinstance(value, dict):
            parts = [*value.keys(), *value.values()]
        if isinstance(parts, CONTAINERS):
            for part in parts:
                self.read_orders_within(part)

    # ------------------------------------------------------------------ dictionaries and instance attributes

    def dict_record(self, record: Record) -> Record | None:
        """The record of an object's ``__dict__``, or None where it has none."""
        if record.dict_record is None:
            try:
                storage = type_slots.namespace(record.value)
            except (AttributeError, TypeError):
                return None
            if not isinstance(storage, dict):
                return None
            plain = not any(
                isinstance(vars(c).get("__getattribute__"), types.FunctionType) for c in type(record.value).__mro__
            )
            if not plain and type_slots.is_local(record.value):
                raise Break(f"a {type(record.value).__qualname__} has a __getattribute__ in Python")
            step = record.source.step("dict_of") if plain else record.source.step("static_attr", "__dict__")
            record.dict_record = self.add(storage, step)
            if record.dict_record is not record:  # ``self.__dict__ = self``
                record.dict_record.owner = record
        return record.dict_record

    def dict_get(self, record: Record, key: Any) -> Any:
        """One entry of a dictionary, guarded, or ``ABSENT``."""
        if record.shadow is not None:
            record.fix_keys()
            return record.shadow.get(key, ABSENT)
        if key in record.overlay:
            return record.overlay[key]
        real_key = self.tracer.real_of(key)
        if real_key is key and not self.fixed_key(key):
            return self._get_by_object(record, key)
        value = dict.get(record.value, real_key, ABSENT)
        if value is ABSENT:
            if real_key is key and not _contains_in_python(record.value):
                self.guard(record.source, "lacks", key)
            else:
                self.dict_content(record)
            return ABSENT
        if real_key is not key:
            return self.dict_content(record).get(key, ABSENT)
        return self.wrap(value, record.source.step(self.item_kind(record.value), key))

    def dict_has(self, record: Record, key: Any) -> bool:
        """Membership, guarded without reading the value."""
        if record.shadow is not None:
            record.fix_keys()
            return key in record.shadow
        if key in record.overlay:
            return True
        if self.tracer.real_of(key) is not key or _contains_in_python(record.value):
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

    def plain_keys(self, record: Record) -> list[Any] | None:
        """All keys, guarded in order without reading a value; None if they are not all constants."""
        if record.shadow is None and (record.overlay or _contains_in_python(record.value)):
            self.dict_content(record)
        if record.shadow is not None:
            record.fix_keys()
            return list(record.shadow)
        keys = list(dict.keys(record.value))
        if not all(map(self.constant_key, keys)):
            return None
        self.guard(self._contents(record), "keys", keys)
        return keys

    def fixed_key(self, key: Any) -> bool:
        """Is this key the same in every call for which the capture holds?"""
        if hashed_in_python(key):
            return False
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
        if first is None or first.source.is_const or hashed_in_python(value):
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
        if hashed_in_python(value):  # and compared so, too
            return
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
        if record.shadow is not None:
            record.fix_keys()
            record.shadow[key] = value
        else:
            record.overlay[key] = value
        record.dirty = True

    def holds(self, record: Record, key: Any, value: Any) -> bool:
        """Is this what the frame has found under a key of a dictionary, so that to write it changes nothing?"""
        found = record.source.known(self.item_kind(record.value), key)
        return found is not None and found.seen is not None and found.seen[0] is value

    def dict_delete(self, record: Record, key: Any) -> None:
        """Delete an entry, pending until the graph has run."""
        del self.dict_content(record)[key]
        record.dirty = True

    def dict_content(self, record: Record) -> Any:
        """The whole dictionary as a shadow of the same builtin kind, values wrapped, keys guarded in order."""
        self.read_dictionary(record)
        return record.content

    def read_dictionary(self, record: Record) -> None:
        """Have the shadow of a whole dictionary."""
        if record.shadow is None:
            with self._watched(dict.keys(record.value)):
                self._read_dictionary(record)

    def _read_dictionary(self, record: Record) -> None:
        real = record.value
        inside = self._contents(record)
        ordered = isinstance(real, collections.OrderedDict)
        keys = list((collections.OrderedDict if ordered else dict).keys(real))
        kind = self.item_kind(real) if inside is record.source else "item"
        content: Any = collections.OrderedDict() if ordered else {}
        self._settle_keys(record, keys)
        simple = all(self.constant_key(k) for k in keys)
        self.guard(inside, "keys" if simple else "len", keys if simple else len(keys))
        for i, key in enumerate(keys):
            if simple:
                source = inside.step(kind, key)
                content[key] = self.wrap(dict.__getitem__(real, key), source)
            else:
                at = inside.step("keys").item(i)
                wrapped = self.wrap(key, at)
                value_at = inside.step("values").item(i)
                content[wrapped] = self.wrap(dict.__getitem__(real, key), value_at)
        record.original = dict(content)
        content.update(record.overlay)
        record.overlay = {}
        record.content = content

    @staticmethod
    def _contents(record: Record) -> Source:
        """Where guards count and list what a container holds, for which they run no method of its own class's."""
        kind = type(record.value)
        own = [name for name in ("__len__", "__iter__") if type(getattr(kind, name)) is types.FunctionType]
        base = next((b for b in (list, dict) if issubclass(kind, b)), None)
        if own and (base is None or issubclass(kind, collections.OrderedDict)):
            raise Break(f"a {kind.__qualname__} from outside, which has its own {own[0]}, is looked into")
        return record.source.step("contents", base.__name__) if own and base is not None else record.source

    def _settle_keys(self, record: Record, keys: Collection[Any]) -> None:
        """A shadow hashes its keys once more: what the program's own methods read for it is guarded."""
        by_hash: dict[int, list[Any]] = {}
        base: Any = dict if isinstance(record.value, dict) else type(record.value)
        for i, key in enumerate(keys):
            if hashed_in_python(key):
                wrapped = self.wrap(key, record.source.step("keys").item(i))
                self.settle(wrapped, ())
                self.settle(wrapped, by_hash.setdefault(hash(wrapped), []))
                by_hash[hash(wrapped)].append(wrapped)
                if not base.__contains__(record.value, key):
                    raise Break(f"a {type(key).__qualname__} was changed after it had become a key")
        if by_hash and _has_other_hashes(record.value, keys):
            raise Break("a key was changed after it had become one")

    @staticmethod
    def constant_key(key: Any) -> bool:
        """May this key be written into a guard as a constant?"""
        if isinstance(key, tuple):
            return type(key) is tuple and all(World.constant_key(k) for k in key)
        if _is_unhashable(key):
            return False
        constant = isinstance(key, (*METADATA, enum.Enum, types.FunctionType, torch.device, *CODE_LIKE))
        return constant or type(key) in ATOMS  # of subclasses, such as float64, there are several equal ones

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
        if isinstance(real, dict):
            return self.dict_content(record)
        inside = self._contents(record)
        kind = self.item_kind(real) if inside is record.source else "item"
        if isinstance(real, list | collections.deque):
            found = list.copy(real) if isinstance(real, list) else real
            self.guard(inside, "len", len(found))
            items = [self.wrap(v, inside.step(kind, i)) for i, v in enumerate(found)]
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
            keys = frozenset(real)  # in another process it has the order that sets have there, a tuple has not
            self.guard(record.source, "set", keys if [*keys] == [*real] else (*real,))
            return self._adopt_set([*real], real)
        self._settle_keys(record, real)
        self.guard(record.source, "len", len(real))
        return self._adopt_set([self.wrap(v, record.source.step("keys").item(i)) for i, v in enumerate(real)], real)

    def _adopt_set(self, items: list[Any], real: Any) -> set[Any]:
        """The shadow of a set: its order depends on what was in it before, and on the size that it then had."""
        size = table_size(real)
        same = all(map(operator.is_, items, real))
        found = set(real) if same and is_like(set(real), items, size) else set_in_order(items, size)
        made = set(items) if found is None else found
        self.set_orders.adopt(made, None if found is not None else NEVER)
        return made

    # ------------------------------------------------------------------ wrapping

    def wrap(self, value: Any, source: Source) -> Any:
        """The interpreter's value for what is at ``source``; reading it guards it."""
        if source.seen is None:
            kind = type(value)
            if _is_unhashable(value):
                name = getattr(value, "__qualname__", kind.__qualname__)
                raise Break(f"{name}: a class that cannot be hashed, or an instance of one, is read")
            handler = self._wrappers.get(kind)
            if handler is None:
                handler = self._wrappers[kind] = self.wrapper(kind)
            with self._watched((value,)):
                source.seen = (handler(self, value, source),)
        return source.seen[0]

    def _watched(self, values: Collection[Any]) -> contextlib.AbstractContextManager[Any]:
        """Open the watch, if one is kept, where these values are handled by C code."""
        return self.watch if self.watch is not None and self.watch.over(values) else _NOTHING

    def take(self, owner: Any, name: str, value: Any) -> Any:
        """``value`` was read from a module, class or namespace of torch's or the standard library's; the value.

        Nobody replaces it, mostly: the guard is for those who do.
        """
        self.assumptions.take(owner, name, value)
        kind = "equals" if type(value) in ATOMS else "is"
        if isinstance(owner, dict):
            self.guard(self.const(owner).item(name), kind, value)
        elif not isinstance(owner, type) or getattr(owner, name, ABSENT) is value:
            if not isinstance(owner, type) or owner.__flags__ & HEAP:
                self.guard(self.const(owner).attr(name), kind, value)
        else:
            holder = next(cls for cls in owner.__mro__ if name in cls.__dict__)
            if holder.__flags__ & HEAP:
                self.guard(self.const(holder).step("class_dict", name), kind, value)
        return value
