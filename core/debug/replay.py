"""A record of a frame, read again: code, globals and arguments, without the user's files.

Nothing is unpickled, and no module is imported but torch's, the standard library's and NumPy's. Nothing of what is read
is called here.
"""

from __future__ import annotations

import base64
import collections
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

from jitney.debug.record import FORMAT, Recipe
from jitney.errors import JitneyError
from jitney.trust import trusted_module


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
class Record:
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


def read_record(path: Path) -> Record:
    """Read what ``write_record`` has written.

    Raises:
        NotReplayed: it is no record, or one of another Python, whose bytecode differs.
    """
    if not path.is_file():
        raise NotReplayed(f"there is no file {path}", hint="JITNEY_REPLAY_RECORD_ENABLED=1 python ... writes one")
    try:
        data = json.loads(path.read_text())
        versions, found = data["versions"], data["format"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise NotReplayed(f"{path} is no record of a frame") from None
    if found != FORMAT:
        raise NotReplayed(f"{path} has format {found}; this jitney reads {FORMAT}")
    own = ".".join(map(str, sys.version_info[:2]))
    if versions["python"].rpartition(".")[0] != own:
        raise NotReplayed(
            f"{path} is of Python {versions['python']}, whose bytecode Python {own} does not have",
            hint=f"run `jitney replay` with Python {versions['python'].rpartition('.')[0]}",
        )
    for name, lines in data["sources"].items():
        _show(name, {int(number): text for number, text in lines.items()})
    reader = _Reader(data["objects"])
    frame = data["frame"]
    record = Record(
        data["name"],
        data["place"],
        data["error"],
        versions,
        reader.make(frame["function"]),
        reader.make(frame["code"]),
        reader.make(frame["space"]),
        {name: reader.make(number) for name, number in frame["arguments"].items()},
        tuple(reader.make(number) for number in frame["cells"]),
        reader.missing,
    )
    reader.fill()
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
        reader.made[number] = _ITEMS[kind](reader.make_all(items))
        return
    made: Any = [] if kind == "list" else set()
    reader.made[number] = made
    put = made.extend if kind == "list" else made.update
    reader.open.append(lambda: put(reader.make_all(items)))


def _pairs(reader: _Reader, number: int, kind: str, keys: Sequence[int], values: Sequence[int]) -> None:
    made: dict[Any, Any] = _PAIRS[kind]()
    reader.made[number] = made
    reader.open.append(lambda: made.update(zip(reader.make_all(keys), reader.make_all(values), strict=True)))


def _now(reader: _Reader, number: int) -> Any:
    """A dictionary whose content is needed at once."""
    kind, *rest = reader.objects[number]
    if kind != "pairs":
        return reader.make(number)
    _, keys, values = rest
    return dict(zip(reader.make_all(keys), reader.make_all(values), strict=True))


def _space(reader: _Reader, number: int, name: str, names: dict[str, int]) -> None:
    made: dict[str, Any] = {"__name__": name, "__builtins__": __builtins__}
    reader.made[number] = made
    reader.open.append(lambda: made.update({key: reader.make(value) for key, value in names.items()}))


def _own_module(reader: _Reader, number: int, name: str, names: int) -> None:
    made = types.ModuleType(name)
    reader.made[number] = made
    reader.open.append(lambda: vars(made).update(_now(reader, names)))


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
        made.__kwdefaults__ = _now(reader, keywords)
        made.__dict__.update(_now(reader, own))

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
    if any(not isinstance(owner, type) for owner in owners):
        reader.made[number] = reader.lacks(f"the class {qualname}: a base of it")
        return
    made = type(name, tuple(owners), {"__qualname__": qualname})
    reader.made[number] = made

    def fill() -> None:
        for key, value in _now(reader, defined).items():
            if key not in ("__qualname__", "__slots__"):
                setattr(made, key, value)

    reader.open.append(fill)


def _enumeration(reader: _Reader, number: int, name: str, base: int, members: int) -> None:
    reader.made[number] = reader.make(base)(name, _now(reader, members))


def _object(reader: _Reader, number: int, kind: int, state: int) -> None:
    cls: Any = reader.make(kind)
    try:
        made: Any = object.__new__(cls)
    except TypeError:  # no class, or one whose objects C code makes
        reader.made[number] = reader.lacks(f"an object of {cls!r}")
        return
    reader.made[number] = made
    reader.open.append(lambda: vars(made).update(_now(reader, state)))


def _attribute(reader: _Reader, number: int, owner: int, name: str) -> None:
    found = reader.make(owner)
    whole = f"{found!r}.{name}"
    reader.made[number] = reader.lacks(whole) if isinstance(found, Missing) else _at(found, [name], whole)


def _method(reader: _Reader, number: int, function: int, owner: int) -> None:
    reader.made[number] = types.MethodType(reader.make(function), reader.make(owner))


def _partial(reader: _Reader, number: int, function: int, args: int, keywords: int) -> None:
    reader.made[number] = functools.partial(reader.make(function), *reader.make(args), **_now(reader, keywords))


def _wrapped(reader: _Reader, number: int, kind: str, parts: Sequence[int]) -> None:
    reader.made[number] = _WRAPS[kind](*reader.make_all(parts))


def _missing(reader: _Reader, number: int, what: str) -> None:
    reader.made[number] = reader.lacks(what)


_ITEMS: dict[str, Callable[..., Any]] = {"tuple": tuple, "frozenset": frozenset, "Size": torch.Size}
_PAIRS: dict[str, Callable[..., Any]] = {"dict": dict, "OrderedDict": collections.OrderedDict}
_WRAPS: dict[str, Callable[..., Any]] = {"staticmethod": staticmethod, "classmethod": classmethod, "property": property}
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
