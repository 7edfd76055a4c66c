"""A record of a frame, read again: code, globals and arguments, without the user's files.

Nothing is unpickled, and no module is imported but torch's, the standard library's and NumPy's. Nothing of what is read
runs here, neither called nor by what Python calls by itself: where it would (a key's ``__hash__``, a property, a
``__del__``), something is left out, and said to be. Types are asked for with ``type``: ``isinstance`` reads
``__class__``.
"""

from __future__ import annotations

import base64
import collections
import enum
import functools
import importlib
import json
import linecache
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jitney._util.ownership import trusted_module
from jitney.errors import JitneyError
from jitney.torch_compat import torch_private
from jitney_tools.frame_record import FORMAT, Recipe


class NotReplayed(JitneyError):
    """A record cannot be read here; the message says why."""

    phase = "replay"


class Missing:
    """Stands for an object that could not be recorded."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __repr__(self) -> str:
        return f"<not recorded: {self.what}>"


@dataclass(frozen=True)
class FrameRecord:
    """A frame.

    Args:
        name: the function's.
        place: where it was.
        error: how its capture failed.
        versions: with which Python and torch.
        function: what was called; None for the rest of a frame after a graph break.
        code: what was captured.
        space: its globals.
        arguments: by parameter.
        cells: of the rest of a frame.
        missing: what could not be recorded.
    """

    name: str
    place: str
    error: str
    versions: dict[str, str]
    function: types.FunctionType | None
    code: types.CodeType
    space: dict[str, Any]
    arguments: dict[str, Any]
    cells: tuple[Any, ...]
    missing: list[str]


def read_record(path: Path) -> FrameRecord:
    """Read what ``write_record`` has written.

    Raises:
        NotReplayed: it is no record, or one of another Python, whose bytecode differs.
    """
    if not path.is_file():
        raise NotReplayed(f"there is no file {path}", hint="JITNEY_REPLAY_RECORD_ENABLED=1 python ... writes one")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        versions, found = data["versions"], data["format"]
        python, _ = str(versions["python"]), versions["torch"]
    except (ValueError, KeyError, TypeError):
        raise NotReplayed(f"{path} is no record of a frame") from None
    if found != FORMAT:
        raise NotReplayed(f"{path} has format {found}; this jitney reads {FORMAT}")
    own = ".".join(map(str, sys.version_info[:2]))
    if python.rpartition(".")[0] != own:
        raise NotReplayed(
            f"{path} is of Python {python}, whose bytecode Python {own} does not have",
            hint=f"run `jitney replay` with Python {python.rpartition('.')[0]}",
        )
    try:
        return _read(data)
    except KeyError as error:
        raise NotReplayed(f"{path} is damaged: it has no {error}") from error
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError, RuntimeError) as error:
        raise NotReplayed(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _read(data: dict[str, Any]) -> FrameRecord:
    for name, lines in data["sources"].items():
        _show(name, {int(number): text for number, text in lines.items()})
    reader = _Reader(data["objects"])
    frame = data["frame"]
    record = FrameRecord(
        str(data["name"]),
        str(data["place"]),
        str(data["error"]),
        data["versions"],
        reader.make(frame["function"]),
        reader.make(frame["code"]),
        reader.make(frame["space"]),
        {name: reader.make(number) for name, number in frame["arguments"].items()},
        tuple(reader.make(number) for number in frame["cells"]),
        reader.missing,
    )
    reader.fill()
    kinds = {"function": types.FunctionType, "code": types.CodeType, "space": dict}
    for name, kind in kinds.items():
        if type(getattr(record, name)) is not kind and not (name == "function" and record.function is None):
            raise TypeError(f"its {name} is a {type(getattr(record, name)).__name__}")
    return record


def _show(name: str, lines: dict[int, str]) -> None:
    """Let messages show the lines of a file that is not here."""
    if Path(name).exists() or not lines:
        return
    text = [lines.get(number, "\n") or "\n" for number in range(1, max(lines) + 1)]
    linecache.cache[name] = (sum(map(len, text)), None, text, name)


class _Reader:
    """Makes objects of recipes; what may lead back to itself is made empty, and filled at the end."""

    def __init__(self, objects: Sequence[Recipe]) -> None:
        self.objects = objects
        self.made: dict[int, Any] = {}
        self.missing: list[str] = []
        self.open: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []  # what must not be there while classes are made
        self.own: dict[type, frozenset[str]] = {}  # the classes of the record, and what each defines

    def make(self, number: int) -> Any:
        """The object of a number."""
        if number not in self.made:
            kind, *rest = self.objects[number]
            maker = _MAKERS.get(kind)
            if maker is None:
                raise NotReplayed(f"a record with an unknown kind of object, {kind!r}")
            maker(self, number, *rest)
        return self.made[number]

    def make_all(self, numbers: Sequence[int]) -> list[Any]:
        """The objects of several numbers."""
        return [self.make(number) for number in numbers]

    def fill(self) -> None:
        """Put into objects what belongs there."""
        while self.open:
            self.open.pop()()
        while self.late:
            self.late.pop()()

    def lists(self, number: int) -> dict[Any, Any]:
        """A dictionary whose content is needed at once."""
        kind, *rest = self.objects[number]
        if kind == "json" and rest == [None]:
            return {}
        if kind != "pairs":
            raise TypeError(f"object {number} is {kind}, a dictionary was expected")
        return dict(self.pairs(*rest[1:]))

    def names(self, number: int) -> dict[str, Any]:
        """The same, of a namespace."""
        found = self.lists(number)
        if any(type(name) is not str for name in found):
            raise TypeError(f"object {number} has names that are no text")
        return found

    def pairs(self, keys: Sequence[int], values: Sequence[int]) -> list[tuple[Any, Any]]:
        """The entries of a dictionary, but for those whose keys would run something."""
        made = zip(self.make_all(keys), self.make_all(values), strict=True)
        return [(key, value) for key, value in made if self.may_be_hashed(key, "a key of a dictionary")]

    def may_be_hashed(self, value: Any, what: str) -> bool:
        """Does nothing of the record run where Python looks up a value by its hash?"""
        if self._hashes(value):
            return True
        self.lacks(f"{what}: a {type(value).__name__}, whose own __hash__ or __eq__ would run")
        return False

    def _hashes(self, value: Any) -> bool:
        kind = type(value)
        if kind in _CONTAINERS:
            return all(map(self._hashes, value))
        if kind in _HASHES or issubclass(kind, (type, enum.Enum)):
            return True
        if kind not in self.own:
            return False
        return all(
            owner is object or owner is torch.nn.Module or (self.own.get(owner, _RUNS).isdisjoint(_RUNS))
            for owner in kind.__mro__
        )

    def is_own(self, value: Any) -> bool:
        """Is it a class of the record's, or an object of one?"""
        kinds = [type(value), *([value] if issubclass(type(value), type) else [])]
        return any(owner in self.own for kind in kinds for owner in kind.__mro__)

    def lacks(self, what: str) -> Missing:
        """A stand-in for what is not in the record."""
        self.missing.append(what)
        return Missing(what)


def _simple(make: Callable[..., Any]) -> Callable[..., None]:
    """A maker of objects that lead nowhere."""

    def maker(reader: _Reader, number: int, *rest: Any) -> None:
        reader.made[number] = make(*rest)

    return maker


def _number(text: str) -> float:
    return float(text) if "n" in text else float.fromhex(text)  # nan, inf


def _module(name: str) -> Any:
    if name.partition(".")[0] in _ODD:
        raise NotReplayed(f"the record names the module {name}, which does something when it is imported")
    if not (trusted_module(name) or name.partition(".")[0] == "numpy"):
        raise NotReplayed(f"the record names the module {name}, which is neither torch's nor the standard library's")
    return importlib.import_module(name)


def _path(module: str, name: str) -> Any:
    return _at(_module(module), name.split("."), f"{module}.{name}")


def _operator(text: str) -> Any:
    return _at(torch.ops, text.split("."), text)


def _at(found: Any, parts: Sequence[str], whole: str) -> Any:
    for part in parts:
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NotReplayed(f"there is no {whole} here") from None
    return found


def _items(reader: _Reader, number: int, kind: str, items: Sequence[int]) -> None:
    if kind not in ("list", "set"):
        made = reader.make_all(items)
        if kind == "frozenset":
            made = [item for item in made if reader.may_be_hashed(item, "an item of a frozenset")]
        reader.made[number] = _ITEMS[kind](made)
        return
    found: Any = [] if kind == "list" else set()
    reader.made[number] = found

    def fill() -> None:
        made = reader.make_all(items)
        if kind == "list":
            found.extend(made)
        else:
            found.update(item for item in made if reader.may_be_hashed(item, "an item of a set"))

    reader.open.append(fill)


def _pairs(reader: _Reader, number: int, kind: str, keys: Sequence[int], values: Sequence[int]) -> None:
    made: dict[Any, Any] = _PAIRS[kind]()
    reader.made[number] = made
    reader.open.append(lambda: made.update(reader.pairs(keys, values)))


def _space(reader: _Reader, number: int, name: str, names: dict[str, int]) -> None:
    made: dict[str, Any] = {"__name__": name, "__builtins__": __builtins__}
    reader.made[number] = made
    reader.open.append(lambda: made.update({key: reader.make(value) for key, value in names.items()}))


def _own_module(reader: _Reader, number: int, name: str, names: dict[str, int]) -> None:
    made = types.ModuleType(name)
    reader.made[number] = made
    reader.open.append(lambda: vars(made).update({key: reader.make(value) for key, value in names.items()}))


def _code(reader: _Reader, number: int, *fields: Any) -> None:
    parts: list[Any] = list(fields)
    for at in (6, 14, 15):
        parts[at] = bytes.fromhex(parts[at])
    parts[7] = tuple(reader.make_all(parts[7]))
    for at in (8, 9, 16, 17):
        parts[at] = tuple(parts[at])
    reader.made[number] = types.CodeType(*parts)


def _function(
    reader: _Reader, number: int, code: int, space: int, cells: Sequence[int], defaults: int, keywords: int, own: int
) -> None:
    body = reader.make(code)
    closure = tuple(reader.make_all(cells)) or None
    made = types.FunctionType(body, reader.make(space), body.co_name, None, closure)
    made.__qualname__ = body.co_qualname
    reader.made[number] = made

    def fill() -> None:
        made.__defaults__ = reader.make(defaults)
        made.__kwdefaults__ = reader.names(keywords)
        made.__dict__.update(reader.names(own))

    reader.open.append(fill)


def _cell(reader: _Reader, number: int, content: int | None) -> None:
    made = types.CellType()
    reader.made[number] = made
    if content is not None:
        reader.open.append(lambda: setattr(made, "cell_contents", reader.make(content)))


def _tensor(
    reader: _Reader,
    number: int,
    shape: list[int],
    stride: list[int],
    dtype: str,
    device: str,
    grad: bool,
    parameter: bool,
    data: str | None,
) -> None:
    kind = getattr(torch, dtype)
    if device.startswith("cuda") and not torch.cuda.is_available():
        reader.missing.append(f"the device {device}: its tensors are on the CPU")
        device = "cpu"
    made = torch.empty_strided(shape, stride, dtype=kind, device=device)
    if data is not None and made.numel():
        flat = torch.frombuffer(bytearray(base64.b64decode(data)), dtype=torch.uint8)
        made.copy_(flat.view(kind).reshape(shape))
    elif not any(s == 0 and n > 1 for s, n in zip(stride, shape, strict=True)):
        made.zero_()
    reader.made[number] = torch.nn.Parameter(made, grad) if parameter else made.requires_grad_(grad)


def _class(reader: _Reader, number: int, name: str, qualname: str, bases: Sequence[int], defined: int) -> None:
    owners = reader.make_all(bases)
    if any(not issubclass(type(owner), type) for owner in owners):
        reader.made[number] = reader.lacks(f"the class {qualname}: a base of it")
        return
    made = type(name, tuple(owners), {"__qualname__": qualname})
    reader.made[number] = made
    _, _, keys, _ = reader.objects[defined]
    reader.own[made] = frozenset(key for key in reader.make_all(keys) if type(key) is str)

    def fill() -> None:
        for key, value in reader.names(defined).items():
            if key == "__del__":
                reader.lacks(f"{qualname}.__del__, which Python runs by itself")
            elif key == "__init_subclass__":
                reader.late.append(lambda value=value: type.__setattr__(made, "__init_subclass__", value))  # type: ignore[misc]
            elif key not in _LAYOUT:
                type.__setattr__(made, key, value)

    reader.open.append(fill)


def _enumeration(reader: _Reader, number: int, name: str, base: int, members: int) -> None:
    found, values = reader.make(base), reader.names(members)
    if not any(found is kind for kind in _ENUMERATIONS) or not all(map(_is_plain, values.values())):
        reader.made[number] = reader.lacks(f"the enumeration {name}: its base, or a value that is no number or text")
        return
    reader.made[number] = found(name, values)


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else type(value) in (str, int, float, bool, bytes)


def _object(reader: _Reader, number: int, kind: int, state: int) -> None:
    cls: Any = reader.make(kind)
    if not issubclass(type(cls), type) or any("__del__" in vars(owner) for owner in cls.__mro__):
        reader.made[number] = reader.lacks(f"an object of {_named(cls)}")
        return
    try:
        made: Any = object.__new__(cls)
    except TypeError:  # a class whose objects C code makes
        reader.made[number] = reader.lacks(f"an object of {_named(cls)}")
        return
    reader.made[number] = made
    reader.open.append(lambda: object.__getattribute__(made, "__dict__").update(reader.names(state)))


def _named(value: Any) -> str:
    """What it is, without asking itself."""
    return value.__qualname__ if issubclass(type(value), type) else f"a {type(value).__name__}"


def _attribute(reader: _Reader, number: int, owner: int, name: str) -> None:
    found = reader.make(owner)
    whole = f"{_named(found)}.{name}"
    mine = reader.objects[owner][0] == "own module" or reader.is_own(found)
    known = type(found) in _OWNERS or issubclass(type(found), type)
    reader.made[number] = _at(found, [name], whole) if known and not mine else reader.lacks(whole)


def _method(reader: _Reader, number: int, function: int, owner: int) -> None:
    reader.made[number] = types.MethodType(reader.make(function), reader.make(owner))


def _partial(reader: _Reader, number: int, function: int, args: int, keywords: int) -> None:
    called, given = reader.make(function), reader.make(args)
    if type(given) is not tuple:
        raise TypeError("a partial's arguments are no tuple")
    if not callable(called):  # or not yet
        reader.made[number] = reader.lacks(f"a partial of {_named(called)}")
        return
    reader.made[number] = functools.partial(called, *given, **reader.names(keywords))


def _wrapped(reader: _Reader, number: int, kind: str, parts: Sequence[int]) -> None:
    made = reader.make_all(parts)
    odd = next((part for part in made if part is not None and type(part) not in _FUNCTIONS), None)
    # These look for the name and the text of what they wrap.
    reader.made[number] = _WRAPS[kind](*made) if odd is None else reader.lacks(f"a {kind} of {_named(odd)}")


def _missing(reader: _Reader, number: int, what: str) -> None:
    reader.made[number] = reader.lacks(what)


_ITEMS: dict[str, Callable[..., Any]] = {"tuple": tuple, "frozenset": frozenset, "Size": torch.Size}
_PAIRS: dict[str, Callable[..., Any]] = {"dict": dict, "OrderedDict": collections.OrderedDict}
_WRAPS: dict[str, Callable[..., Any]] = {"staticmethod": staticmethod, "classmethod": classmethod, "property": property}
# Modules of the standard library that show something, or open something, when they are imported.
_ODD = {"antigravity", "idlelib", "test", "this", "turtle", "turtledemo", "lib2to3", "__main__"}
_ENUMERATIONS = (enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod, property)
# What a class statement decides, or what cannot be changed afterwards without changing what Python runs.
_LAYOUT = {
    "__qualname__",
    "__slots__",
    "__abstractmethods__",
    "__dict__",
    "__weakref__",
    "__class__",
    "__bases__",
    "__mro__",
    "__name__",
}
_RUNS = frozenset({"__hash__", "__eq__"})
_CONTAINERS = (tuple, frozenset, torch.Size)
# What is hashed and compared by C code, or by identity.
_HASHES = {
    *(type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range),
    *(torch.dtype, torch.layout, torch.memory_format, torch.device, torch.Tensor, torch.nn.Parameter),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, Missing),
    *torch_private.OPERATOR_CLASSES,
}
# Whose attributes nothing of the record can make something else of.
_OWNERS = {
    *(list, tuple, dict, set, frozenset, str, bytes, int, float, complex, collections.OrderedDict, types.ModuleType),
    *(torch.Tensor, torch.nn.Parameter, torch.Size),
}
_MAKERS: dict[str, Callable[..., None]] = {
    "json": _simple(lambda value: value),
    "float": _simple(_number),
    "complex": _simple(lambda real, imag: complex(_number(real[1]), _number(imag[1]))),
    "bytes": _simple(bytes.fromhex),
    "constant": _simple(lambda name: {"Ellipsis": ..., "NotImplemented": NotImplemented}[name]),
    "torch": _simple(lambda name: getattr(torch, name)),
    "device": _simple(torch.device),
    "range": _simple(range),
    "module": _simple(_module),
    "path": _simple(_path),
    "operator": _simple(_operator),
    "array": _simple(lambda shape, dtype: np.zeros(shape, dtype)),
    "slice": lambda reader, number, items: reader.made.__setitem__(number, slice(*reader.make_all(items))),
    "items": _items,
    "pairs": _pairs,
    "space": _space,
    "own module": _own_module,
    "code": _code,
    "function": _function,
    "cell": _cell,
    "tensor": _tensor,
    "class": _class,
    "enumeration": _enumeration,
    "object": _object,
    "attribute": _attribute,
    "method": _method,
    "partial": _partial,
    "wrapped": _wrapped,
    "missing": _missing,
}
