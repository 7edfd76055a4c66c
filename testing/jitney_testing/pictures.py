"""Pictures of Python state: what two runs left behind, frozen, and where the pictures differ."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import random
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from jitney.torch_compat import torch_private

# --- freezing: a comparable picture of Python state, with aliasing -------------------------------------------------

_ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
_BY_REPR = (range, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, bytearray)
_SKIPPED_ATTRIBUTES = ("_compiled_call_impl", "__orig_class__", "__weakref__", "_is_torch_compile")


def leaf(tensor: torch.Tensor) -> str:
    """Is it a leaf? A part of a ``split`` whose whole was written to does not say: what it raises, then."""
    try:
        return str(tensor.is_leaf)
    except RuntimeError as error:
        return str(error)


@dataclasses.dataclass
class Node:
    """One object: what kind it is, and its named parts."""

    kind: str
    parts: dict[str, Any]


@dataclasses.dataclass
class Ref:
    """An object that was already met, at ``path``."""

    path: str


@dataclasses.dataclass
class Values:
    """The numbers of a tensor."""

    tensor: torch.Tensor


class Freezer:
    """A picture of what objects hold.

    Turns objects into ``Node`` trees; the second visit of an object becomes a ``Ref`` to the first.

    Args:
        loose: leave out what no program can rely on: strides of single elements, offsets into memory.
    """

    def __init__(self, *, loose: bool = False) -> None:
        self.loose = loose
        self.seen: dict[int, str] = {}
        self.storages: dict[int, str] = {}
        self.keep: list[Any] = []

    def freeze(self, obj: Any, path: str) -> Any:
        """The picture of an object, which is found at ``path``."""
        if isinstance(obj, enum.Enum):
            return Node("enum", {"member": f"{type(obj).__qualname__}.{obj.name}"})
        if type(obj) in _ATOMS:
            return Node(type(obj).__name__, {"value": repr(obj)})
        if isinstance(obj, type):
            return Node("class", {"name": f"{obj.__module__}.{obj.__qualname__}"})
        if isinstance(obj, types.ModuleType):
            return Node("module", {"name": obj.__name__})
        if isinstance(obj, _BY_REPR):
            return Node(type(obj).__name__, {"value": repr(obj)})
        if type(obj) is not tuple and type(obj) is not frozenset:
            if id(obj) in self.seen:
                return Ref(self.seen[id(obj)])
            self.seen[id(obj)] = path
            self.keep.append(obj)
        return Node(type(obj).__qualname__, self._parts(obj, path))

    def _parts(self, obj: Any, path: str) -> dict[str, Any]:
        if isinstance(obj, torch.Tensor):
            return self._tensor(obj, path)
        for kinds, method in self._table():
            if isinstance(obj, kinds):
                parts: dict[str, Any] = method(obj, path)
                if not isinstance(obj, types.FunctionType | BaseException):
                    parts |= self._attributes(obj, path)
                return parts
        return self._object(obj, path)

    def _table(self) -> list[tuple[Any, Callable[[Any, str], dict[str, Any]]]]:
        return [
            (BaseException, self._exception),
            (collections.defaultdict, self._defaultdict),
            ((dict, types.MappingProxyType), self._mapping),
            (collections.deque, self._deque),
            ((list, tuple), self._items),
            ((set, frozenset), self._set),
            (types.FunctionType, self._function),
            (types.MethodType, self._method),
            (types.CellType, self._cell),
            (functools.partial, self._partial),
            (np.ndarray, lambda a, p: {"dtype": str(a.dtype), "shape": str(a.shape), "values": repr(a.tolist())}),
            (slice, lambda s, p: self._items((s.start, s.stop, s.step), p)),
            (torch.Generator, lambda g, p: {"state": Values(g.get_state())}),
            (random.Random, lambda r, p: {"state": repr(r.getstate())}),
            (types.GeneratorType, self._drained),
        ]

    def _tensor(self, t: torch.Tensor, path: str) -> dict[str, Any]:
        with torch_private.DisableTorchFunctionSubclass(), torch.no_grad():
            parts: dict[str, Any] = {
                "dtype": str(t.dtype),
                "shape": str(tuple(t.shape)),
                "device": str(t.device),
                "requires_grad": str(t.requires_grad),
                "is_leaf": leaf(t),
                "inference": str(t.is_inference()),
            }
            if type(t).__name__ == "FakeTensor":
                return parts
            if t.layout is torch.strided:
                parts["stride"] = str(strides_that_matter(t) if self.loose else t.stride())
                if not self.loose:
                    parts["storage_offset"] = str(t.storage_offset())
                storage = self.storages.setdefault(t.untyped_storage()._cdata, path)
                parts["shares storage with"] = storage
            parts["values"] = Values(t.detach().clone() if t.layout is torch.strided else t.detach().to_dense())
            if leaf(t) == "True" and t.grad is not None:
                parts["grad"] = self.freeze(t.grad, f"{path}.grad")
        return parts | self._attributes(t, path)

    def _exception(self, e: BaseException, path: str) -> dict[str, Any]:
        parts: dict[str, Any] = {"message": str(e), "args": self.freeze(e.args, f"{path}.args")}
        parts["suppress_context"] = str(e.__suppress_context__)
        for name in ("__cause__", "__context__"):
            if getattr(e, name) is not None:
                parts[name] = self.freeze(getattr(e, name), f"{path}.{name}")
        for name, value in vars(e).items():
            parts[f".{name}"] = self.freeze(value, f"{path}.{name}")
        return parts

    def _items(self, items: Any, path: str) -> dict[str, Any]:
        return {f"[{i}]": self.freeze(item, f"{path}[{i}]") for i, item in enumerate(tuple.__iter__(tuple(items)))}

    def _deque(self, items: Any, path: str) -> dict[str, Any]:
        return {"maxlen": str(items.maxlen)} | self._items(tuple(items), path)

    def _mapping(self, mapping: Mapping[Any, Any], path: str) -> dict[str, Any]:
        get: Any = dict.__getitem__ if isinstance(mapping, dict) else type(mapping).__getitem__
        parts = {"order": ", ".join(_label(key) for key in mapping)}
        for i, key in enumerate(list(mapping)):
            label = _label(key)
            if not isinstance(key, _ATOMS):
                parts[f"key {i}"] = self.freeze(key, f"{path} key {i}")
            parts[f"[{label}]"] = self.freeze(get(mapping, key), f"{path}[{label}]")
        return parts

    def _defaultdict(self, mapping: Any, path: str) -> dict[str, Any]:
        return {"default_factory": self.freeze(mapping.default_factory, path)} | self._mapping(mapping, path)

    def _set(self, items: Any, path: str) -> dict[str, Any]:
        return {f"{{{i}}}": self.freeze(item, f"{path}{{{i}}}") for i, item in enumerate(sorted(items, key=_label))}

    def _function(self, fn: types.FunctionType, path: str) -> dict[str, Any]:
        parts: dict[str, Any] = {"name": f"{fn.__module__}.{fn.__qualname__}"}
        parts["defaults"] = self.freeze(fn.__defaults__, f"{path}.__defaults__")
        parts["kwdefaults"] = self.freeze(fn.__kwdefaults__, f"{path}.__kwdefaults__")
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            parts[f"closure {name}"] = self.freeze(cell, f"{path}.<{name}>")
        return parts | {f".{k}": self.freeze(v, f"{path}.{k}") for k, v in vars(fn).items()}

    def _method(self, method: types.MethodType, path: str) -> dict[str, Any]:
        return {"name": method.__func__.__qualname__, "self": self.freeze(method.__self__, f"{path}.__self__")}

    def _cell(self, cell: types.CellType, path: str) -> dict[str, Any]:
        try:
            return {"contents": self.freeze(cell.cell_contents, path)}
        except ValueError:
            return {"contents": "empty"}

    def _partial(self, p: functools.partial[Any], path: str) -> dict[str, Any]:
        return {name: self.freeze(getattr(p, name), f"{path}.{name}") for name in ("func", "args", "keywords")}

    def _drained(self, iterator: Any, path: str) -> dict[str, Any]:
        if not path.startswith("result"):  # not ours to use up
            if isinstance(iterator, types.GeneratorType):
                return {"finished": str(iterator.gi_frame is None)}
            try:
                return self._items(tuple(itertools.islice(copy.copy(iterator), 100)), path)
            except TypeError:
                return {}
        items = []
        end = "more"
        try:
            for _ in range(100):
                items.append(next(iterator))
        except StopIteration:
            end = "exhausted"
        except Exception as e:
            end = f"{type(e).__name__}: {e}"
        return {"end": end} | self._items(tuple(items), path)

    def _attributes(self, obj: Any, path: str) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        fields = dict(getattr(obj, "__dict__", None) or {})
        for cls in type(obj).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                with contextlib.suppress(AttributeError, TypeError):
                    fields[slot] = object.__getattribute__(obj, slot)
        for name, value in fields.items():
            if name in _SKIPPED_ATTRIBUTES or name.startswith("_dynamo_"):
                continue
            if isinstance(obj, torch.nn.Module) and isinstance(value, dict) and "_hooks" in name:
                value = list(value.values())  # the keys come from a counter of the process
                parts[f".{name}"] = self._items(value, f"{path}.{name}")
            else:
                parts[f".{name}"] = self.freeze(value, f"{path}.{name}")
        return parts

    def _object(self, obj: Any, path: str) -> dict[str, Any]:
        parts = self._attributes(obj, path)
        if type(obj).__module__ in ("builtins", "itertools") and hasattr(obj, "__next__"):
            return self._drained(obj, path)
        if parts:
            return parts
        text = repr(obj)
        return {} if " at 0x" in text else {"repr": text}


def strides_that_matter(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides that matter: those of dimensions with more than one element, if there is an element at all."""
    if not tensor.numel():
        return ()
    return tuple(stride if size > 1 else -1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _label(key: Any) -> str:
    if isinstance(key, torch.Tensor):
        return "tensor"
    text = repr(key)
    return f"{type(key).__qualname__} object" if " at 0x" in text else text


# --- comparing -----------------------------------------------------------------------------------------------------


def _values_differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.device.type == "meta":
        return False
    if a.is_floating_point() or a.is_complex():
        return not bool(((a == b) | (a.isnan() & b.isnan())).all())
    return not torch.equal(a, b)


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """A place where two pictures differ.

    Args:
        path: where: ``result[0] stride``.
        text: for people, one line.
        eager, compiled: what both sides have there; numbers of tensors are ``Values``.
    """

    path: str
    text: str
    eager: Any = None
    compiled: Any = None


def mismatches(eager: Any, compiled: Any, path: str) -> Iterator[Mismatch]:
    """Every place where two frozen pictures differ; numbers are compared to the last bit, NaN is equal to NaN."""
    if isinstance(eager, Values) and isinstance(compiled, Values):
        if _values_differ(eager.tensor, compiled.tensor):
            text = f"{path}: eager {eager.tensor.tolist()!r}, compiled {compiled.tensor.tolist()!r}"
            yield Mismatch(path, text, eager, compiled)
    elif isinstance(eager, Node) and isinstance(compiled, Node):
        if eager.kind != compiled.kind:
            yield Mismatch(path, f"{path}: eager {_brief(eager)}, compiled {_brief(compiled)}", eager, compiled)
            return
        yield from mismatches(eager.parts, compiled.parts, path)
    elif isinstance(eager, dict) and isinstance(compiled, dict):
        for name in eager | compiled:
            there = path + _joint(name)
            if name not in compiled:
                yield Mismatch(there, f"{there}: eager {_brief(eager[name])}, compiled has none", eager[name])
            elif name not in eager:
                yield Mismatch(
                    there, f"{there}: eager has none, compiled {_brief(compiled[name])}", None, compiled[name]
                )
            else:
                yield from mismatches(eager[name], compiled[name], there)
    elif eager != compiled:
        yield Mismatch(path, f"{path}: eager {_brief(eager)}, compiled {_brief(compiled)}", eager, compiled)


def differences(eager: Any, compiled: Any, path: str) -> Iterator[str]:
    """One readable line for each place where two frozen pictures differ."""
    return (found.text for found in mismatches(eager, compiled, path))


def numbers(picture: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The numbers of every tensor in a picture, with the paths that ``mismatches`` gives them."""
    if isinstance(picture, Values):
        yield path, picture.tensor
    elif isinstance(picture, Node):
        yield from numbers(picture.parts, path)
    elif isinstance(picture, dict):
        for name, part in picture.items():
            yield from numbers(part, path + _joint(name))


def _joint(name: str) -> str:
    return name if name[0] in ".[{" else f" {name}"


def _brief(x: Any) -> str:
    if isinstance(x, Ref):
        return f"the same object as {x.path}"
    if isinstance(x, Node):
        value = x.parts.get("value", x.parts.get("message", x.parts.get("name", "")))
        return f"{x.kind} {value}".strip()
    return repr(x)
