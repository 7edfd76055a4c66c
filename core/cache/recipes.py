"""How to make an object again in another process: recipes in JSON, for objects that lead to others.

A ``Writer`` turns objects into a list of recipes, each after those that it refers to by number; a ``Reader`` makes the
objects again, or says that they are no longer what they were. No recipe makes anything by ``pickle`` or ``marshal``:
constants are written out, functions and classes are found where they are defined and compared with what they were, and
functions that were generated from text are that text. A function may know its own recipe: its attribute ``RECIPE`` is
called with the writer and returns ``call(...)`` or the number of the object that it stands for. So may a class, for its
instances: the attribute is a method then.
"""

from __future__ import annotations

import collections
import enum
import functools
import importlib
import itertools
import logging
import math
import re
import struct
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from jitney._util import generated_code
from jitney._util.ownership import trusted_module
from jitney.cache.digest import C_FUNCTIONS, Fingerprints, NotStorable
from jitney.cache.source_steps import attribute
from jitney.torch_compat import torch_private

Recipe = list[Any]
RECIPE = "_jitney_recipe"
_WORD = re.compile(r"[A-Za-z_]\w*")
_counter = itertools.count()
CACHED = type(functools.lru_cache(lambda: None))
_NAMED_TYPES = {id(t): name for name, t in vars(types).items() if isinstance(t, type)}
# Classes that no name leads to: those of builtin iterators.
_COLLECTIONS: tuple[Any, ...] = ([], {}, {}.values(), {}.items(), range(0), range(1 << 70), collections.deque())
ITERATORS: dict[str, type] = {
    kind.__qualname__: kind
    for kind in (
        *(type(iter(value)) for value in (*_COLLECTIONS, (), set(), "", "é", b"", collections.OrderedDict())),
        *(type(reversed(value)) for value in _COLLECTIONS),
    )
}
TENSOR_BYTES = 1 << 20  # a larger constant makes its graph one that is not kept


class Stale(Exception):
    """What was kept does not fit this process; the text says what differs."""


def call(loader: str, *arguments: int) -> Recipe:
    """The recipe of what a function returns: ``"module:function"`` and the numbers of its arguments."""
    return ["call", loader, list(arguments)]


# ---------------------------------------------------------------------- writing


class Writer:
    """Makes recipes.

    Args:
        origin: ``origin(value, writer)``: the recipe of an object that no path leads to, or None.
        known: objects that the reader is given, by name.
    """

    def __init__(
        self,
        origin: Callable[[Any, Writer], Recipe | int | None] = lambda value, writer: None,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self.objects: list[Recipe] = []
        self.blobs: list[bytes] = []
        self._blob_numbers: dict[bytes, int] = {}
        self.later: list[Any] = []  # objects that will have more to keep; each calls its ``grown`` then
        self.prints = Fingerprints()
        self._origin = origin
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        self._open: set[int] = set()
        for name, value in (known or {}).items():
            self._add(value, ["known", name])

    def copy(self) -> Writer:
        """A writer that goes on from here, with the fingerprints of before; this one stays as it is."""
        made = Writer(self._origin)
        made.objects, made.blobs, made.later = [*self.objects], [*self.blobs], [*self.later]
        made._blob_numbers = {**self._blob_numbers}
        made.prints, made._numbers, made._kept = self.prints, {**self._numbers}, [*self._kept]
        return made

    def ref(self, value: Any) -> int:
        """The number of an object's recipe; written now if it was not.

        Raises:
            NotStorable: it has none.
        """
        found = self._numbers.get(id(value))
        if found is not None:
            return found
        if id(value) in self._open:
            raise NotStorable(f"a {type(value).__qualname__} that contains itself")
        self._open.add(id(value))
        try:
            recipe = self._recipe(value)
        finally:
            self._open.discard(id(value))
        if isinstance(recipe, int):
            self._numbers[id(value)] = recipe
            self._kept.append(value)
            return recipe
        return self._add(value, recipe)

    def refs(self, values: Sequence[Any]) -> list[int]:
        """The numbers of several."""
        return [self.ref(value) for value in values]

    def blob(self, data: bytes) -> int:
        """The number of some bytes."""
        if data in self._blob_numbers:
            return self._blob_numbers[data]
        self.blobs.append(data)
        self._blob_numbers[data] = len(self.blobs) - 1
        return len(self.blobs) - 1

    def space(self, source: str, namespace: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, int]:
        """Those names of a namespace that a text uses: not what the text defines, nor ``without``."""
        words = set(_WORD.findall(source))
        return {
            name: self.ref(value)
            for name, value in namespace.items()
            if name in words and name not in without and getattr(value, "__globals__", None) is not namespace
        }

    def names(self, names: Mapping[str, int]) -> int:
        """The number of a dictionary from names to objects."""
        made = ["pairs", "dict", self.refs(list(names)), list(names.values())]
        return self._add(made, made)

    def _add(self, value: Any, recipe: Recipe) -> int:
        self._numbers[id(value)] = len(self.objects)
        self._kept.append(value)  # its id stays its own
        self.objects.append(recipe)
        return len(self.objects) - 1

    def _recipe(self, value: Any) -> Recipe | int:
        kind = type(value)
        plain = _PLAIN.get(kind)
        if plain is not None:
            return plain(value)
        own = value.__dict__.get(RECIPE) if kind is types.FunctionType else getattr(kind, RECIPE, None)
        if own is not None:
            made: Recipe | int = own(self) if kind is types.FunctionType else own(value, self)
            return made
        if isinstance(value, enum.Enum):
            return ["enum", self.ref(kind), value.name, self.prints.of(value)]
        named = _BY_NAME.get(kind)
        recipe = (named(self, value) if named else self.path(value)) or self._origin(value, self)
        special = _SPECIAL.get(kind)
        if recipe is None and special is not None:
            recipe = special(self, value)
        if recipe is None and isinstance(value, type) and ITERATORS.get(value.__qualname__) is value:
            return ["iterator", value.__qualname__]
        if recipe is None and isinstance(value, np.dtype) and value.isbuiltin == 1:
            return ["numpy", value.str]
        if recipe is None:
            name = getattr(value, "__qualname__", "")
            raise NotStorable(f"a {kind.__module__}.{kind.__qualname__}" + (f" ({name})" if name else ""))
        return recipe

    def has(self, value: Any) -> bool:
        """Has this object a recipe here?"""
        return id(value) in self._numbers

    def path(self, value: Any) -> Recipe | None:
        """Where a class, function or module is found by name, and what it was."""
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__] if sys.modules.get(value.__name__) is value else None
        if not isinstance(value, (type, types.FunctionType, *C_FUNCTIONS)):
            return None
        for module, name in _paths(value):
            try:
                found = _at(module, name)
            except (AttributeError, KeyError):
                continue
            if found is value or (type(found) is types.BuiltinFunctionType and found == value):
                return ["path", module, name, self.prints.of(value)]
        return None


def _paths(value: Any) -> list[tuple[str, str]]:
    """Where an object may be found."""
    name = str(getattr(value, "__qualname__", ""))
    module = getattr(value, "__module__", None)
    owner = getattr(value, "__objclass__", None)
    places = [("types", _NAMED_TYPES[id(value)])] if id(value) in _NAMED_TYPES else []
    if owner is not None:
        places.append((owner.__module__, name))
    if isinstance(module, str):
        places.append((module, name))
    if isinstance(value, types.BuiltinFunctionType):
        short = value.__name__
        held = value.__self__
        if isinstance(held, types.ModuleType):
            places.append((held.__name__, short))
        if isinstance(held, type):
            places.append((held.__module__, f"{held.__qualname__}.{short}"))
        places += [("torch", short), ("torch.autograd.graph", short), ("torch._C", short)]
    return places


def _at(module: str, name: str) -> Any:
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _float(value: float) -> Recipe:
    return ["float", value.hex() if math.isfinite(value) else repr(value)]


_PLAIN: dict[type, Callable[[Any], Recipe]] = {
    **dict.fromkeys((type(None), bool, int, str), lambda v: ["json", v]),
    float: _float,
    complex: lambda v: ["complex", _float(v.real), _float(v.imag)],
    bytes: lambda v: ["bytes", v.hex()],
    type(Ellipsis): lambda v: ["constant", "Ellipsis"],
    type(NotImplemented): lambda v: ["constant", "NotImplemented"],
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format), lambda v: ["torch", str(v).partition(".")[2]]),
    torch.device: lambda v: ["device", str(v)],
    range: lambda v: ["range", v.start, v.stop, v.step],
    **dict.fromkeys(torch_private.OPERATOR_CLASSES, lambda v: ["operator", str(v)]),
}


def _items(writer: Writer, value: Any) -> Recipe:
    return ["items", type(value).__name__, writer.refs(list(value))]


def _pairs(writer: Writer, value: Any) -> Recipe | None:
    return ["pairs", type(value).__name__, writer.refs(list(value)), writer.refs(list(value.values()))]


def _slice(writer: Writer, value: slice) -> Recipe:
    return ["slice", writer.refs((value.start, value.stop, value.step))]


def _function(writer: Writer, value: types.FunctionType) -> Recipe | None:
    text = generated_code.text_of(value)
    if text is None:
        return None
    return ["text", text.source, text.name, writer.space(text.source, value.__globals__, (text.name,))]


def _bound(writer: Writer, value: Any) -> Recipe | None:
    """A method of an object that has a recipe itself."""
    owner = value.__self__
    if isinstance(owner, fx.GraphModule) and value.__func__ is type(owner).forward:
        return _graph(writer, owner)
    return None


def _c_method(writer: Writer, value: Any) -> Recipe | None:
    owner = value.__self__
    return ["bound", writer.ref(owner), value.__name__] if isinstance(owner, struct.Struct) else None


@dataclass(frozen=True)
class GraphText:
    """A graph's ``forward`` as the text that FX made of it.

    Args:
        source: the text.
        names: what its names are.
        held: the graph's attributes.
    """

    source: str
    names: Mapping[str, Any]
    held: Mapping[str, Any]

    def refs(self, writer: Writer) -> tuple[int, int, int]:
        """The numbers of text, names and attributes."""
        names = writer.names(writer.space(self.source, self.names))
        return writer.ref(self.source), names, writer.names({k: writer.ref(v) for k, v in self.held.items()})

    def forward(self) -> Any:
        """The graph's ``forward`` again."""
        filename = f"<jitney kept graph {next(_counter)}>"
        function = generated_code.build(self.source, filename, dict(self.names), "forward")
        return types.MethodType(function, types.SimpleNamespace(**self.held))


def graph_text(module: fx.GraphModule) -> GraphText:
    """A graph as text.

    Raises:
        NotStorable: text cannot say it.
    """
    made = module.graph.python_code("self")
    if made.src.strip() != module.code.strip():
        raise NotStorable("a graph that was changed after its code was made")
    held = {}
    for node in module.graph.nodes:
        if node.op == "get_attr" and generated_code.is_name(str(node.target)):
            held[node.target] = getattr(module, node.target)
        elif node.op in ("get_attr", "call_module"):
            raise NotStorable(f"the graph's {node.target}")
    return GraphText(made.src, made.globals, held)


def _graph(writer: Writer, module: fx.GraphModule) -> Recipe:
    text = graph_text(module)
    held = {name: writer.ref(value) for name, value in text.held.items()}
    return ["graph", text.source, writer.space(text.source, text.names), held]


def _tensor(writer: Writer, value: torch.Tensor) -> Recipe:
    """A constant in memory, of the host or of a device."""
    plain = value.device.type != "meta" and value.layout is torch.strided and value.is_contiguous()
    if not plain or value.requires_grad or value.is_conj() or value.is_neg() or value.nbytes > TENSOR_BYTES:
        raise NotStorable(f"a constant tensor of {value.nbytes} bytes on {value.device}")
    data = value.detach().reshape(-1).view(torch.uint8).cpu().numpy().tobytes() if value.numel() else b""
    return ["tensor", writer.ref(value.dtype), list(value.shape), writer.blob(data), str(value.device)]


def _logger(writer: Writer, value: logging.Logger) -> Recipe | None:
    """By its name; guards ask for the rest of what matters."""
    return ["logger", value.name] if logging.getLogger(value.name) is value else None


def _cached(writer: Writer, value: Any) -> Recipe | None:
    """A function behind ``functools.lru_cache``, where its name leads to it; what it remembers stays its own."""
    module, name, inner = value.__module__, value.__qualname__, value.__wrapped__
    try:
        found = _at(module, name)
    except (AttributeError, KeyError):
        return None
    return ["cached", module, name, writer.prints.of(inner)] if found is value else None


_SPECIAL: dict[type, Callable[[Writer, Any], Recipe | None]] = {
    **dict.fromkeys((tuple, list, set, frozenset, torch.Size), _items),
    **dict.fromkeys((dict, collections.OrderedDict), _pairs),
    slice: _slice,
    types.FunctionType: _function,
    types.MethodType: _bound,
    types.BuiltinFunctionType: _c_method,
    struct.Struct: lambda writer, value: ["struct", value.format],
    torch.Tensor: _tensor,
}
# Objects of these classes are found by a name that they know.
_BY_NAME: dict[type, Callable[[Writer, Any], Recipe | None]] = {
    **dict.fromkeys((logging.Logger, logging.RootLogger), _logger),
    CACHED: _cached,
}


# ---------------------------------------------------------------------- reading


class Reader:
    """Makes objects from recipes.

    Args:
        objects: what a writer wrote.
        blobs: its bytes.
        known: objects by name, as the writer had them.
        kinds: what makes the recipes that ``origin`` wrote: by their first item, ``make(reader, *rest)``.
    """

    def __init__(
        self,
        objects: Sequence[Recipe],
        blobs: Sequence[bytes] = (),
        known: Mapping[str, Any] | None = None,
        kinds: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.objects = objects
        self.blobs = blobs
        self.known = {} if known is None else known
        self.kinds = kinds or {}
        self.prints = Fingerprints()
        self.made: dict[int, Any] = {}

    def make(self, number: int) -> Any:
        """The object of a number, made once.

        Raises:
            Stale: it cannot be made here, or is not what it was.
        """
        if number not in self.made:
            kind, *rest = self.objects[number]
            maker = self.kinds.get(kind) or _MAKERS.get(kind)
            if maker is None:
                raise Stale(f"a recipe of the unknown kind {kind!r}")
            self.made[number] = maker(self, *rest)
        return self.made[number]

    def make_all(self, numbers: Sequence[int]) -> list[Any]:
        """The objects of several numbers."""
        return [self.make(number) for number in numbers]

    def space(self, names: Mapping[str, int]) -> dict[str, Any]:
        """A namespace."""
        return {name: self.make(number) for name, number in names.items()}

    def check(self, value: Any, expected: str) -> Any:
        """The value, if its fingerprint is as expected."""
        try:
            found = self.prints.of(value)
        except NotStorable as reason:
            raise Stale(f"{reason} in the place of something else") from None
        if found != expected:
            raise Stale(f"{getattr(value, '__qualname__', value)!s:.80} is not what it was")
        return value


def module(name: str) -> types.ModuleType:
    """A module that is imported; torch's, the standard library's and jitney's are imported now if they are not."""
    found = sys.modules.get(name)
    if found is None and (trusted_module(name) or name.startswith("jitney_")):
        try:
            found = importlib.import_module(name)
        except ImportError as error:
            raise Stale(f"{name} cannot be imported: {error}") from None
    if found is None:
        raise Stale(f"the module {name} is not imported")
    return found


def _by_path(reader: Reader, owner: str, name: str, expected: str) -> Any:
    found: Any = module(owner)
    for part in name.split("."):
        try:
            found = attribute(found, part)
        except (AttributeError, LookupError):
            raise Stale(f"there is no {owner}.{name}") from None
    return reader.check(found, expected)


def _call(reader: Reader, loader: str, arguments: Sequence[int]) -> Any:
    owner, _, name = loader.partition(":")
    return getattr(module(owner), name)(*reader.make_all(arguments))


def _text(reader: Reader, source: str, name: str, names: Mapping[str, int]) -> Any:
    return generated_code.build(source, f"<jitney kept {name} {next(_counter)}>", reader.space(names), name)


def _make_graph(reader: Reader, source: str, names: Mapping[str, int], held: Mapping[str, int]) -> Any:
    return GraphText(source, reader.space(names), reader.space(held)).forward()


def _make_tensor(reader: Reader, dtype: int, shape: Sequence[int], blob: int, device: str) -> torch.Tensor:
    with torch_private.without_modes():  # the program's modes see nothing of it
        made = torch.empty(shape, dtype=reader.make(dtype), device="cpu")
        if made.numel():
            flat = torch.frombuffer(bytearray(reader.blobs[blob]), dtype=torch.uint8)
            made.reshape(-1).view(torch.uint8).copy_(flat)
    try:
        return made.to(device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        raise Stale(f"a constant on {device}, which is not there") from error


def _number(recipe: Sequence[str]) -> float:
    text = recipe[1]
    return float(text) if "n" in text else float.fromhex(text)  # nan, inf


def _operator(reader: Reader, text: str) -> Any:
    found: Any = torch.ops
    for part in text.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Stale(f"there is no operator {text}") from None
    return found


def _enum(reader: Reader, cls: int, name: str, expected: str) -> Any:
    try:
        return reader.check(reader.make(cls)[name], expected)
    except KeyError:
        raise Stale(f"the enumeration lacks {name}") from None


def _known(reader: Reader, name: str) -> Any:
    return reader.known[name]


_ITEMS = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset, "Size": torch.Size}
_PAIRS = {"dict": dict, "OrderedDict": collections.OrderedDict}


def _find_logger(reader: Reader, name: str) -> logging.Logger:
    known = logging.root if name == logging.root.name else logging.Logger.manager.loggerDict.get(name)
    if isinstance(known, logging.Logger):
        return known
    raise Stale(f"there is no logger {name!r}")


def _find_cached(reader: Reader, module_name: str, name: str, expected: str) -> Any:
    module(module_name)
    try:
        found = _at(module_name, name)
    except AttributeError:
        found = None
    if type(found) is not CACHED:
        raise Stale(f"{module_name}.{name} is not where it was")
    reader.check(found.__wrapped__, expected)
    return found


_MAKERS: dict[str, Callable[..., Any]] = {
    "json": lambda reader, value: value,
    "float": lambda reader, text: _number(("float", text)),
    "complex": lambda reader, real, imag: complex(_number(real), _number(imag)),
    "bytes": lambda reader, text: bytes.fromhex(text),
    "constant": lambda reader, name: {"Ellipsis": ..., "NotImplemented": NotImplemented}[name],
    "torch": lambda reader, name: getattr(torch, name),
    "device": lambda reader, name: torch.device(name),
    "range": lambda reader, start, stop, step: range(start, stop, step),
    "operator": _operator,
    "items": lambda reader, kind, items: _ITEMS[kind](reader.make_all(items)),
    "pairs": lambda r, kind, keys, values: _PAIRS[kind](zip(r.make_all(keys), r.make_all(values), strict=True)),
    "logger": _find_logger,
    "cached": _find_cached,
    "slice": lambda reader, items: slice(*reader.make_all(items)),
    "globals": lambda reader, name: module(name).__dict__,
    "module": lambda reader, name: module(name),
    "iterator": lambda reader, name: ITERATORS[name],
    "path": _by_path,
    "enum": _enum,
    "text": _text,
    "graph": _make_graph,
    "numpy": lambda reader, text: np.dtype(text),
    "struct": lambda reader, text: struct.Struct(text),
    "bound": lambda reader, owner, name: getattr(reader.make(owner), name),
    "tensor": _make_tensor,
    "known": _known,
    "call": _call,
}
