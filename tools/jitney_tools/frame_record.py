"""A frame whose capture failed, as JSON: code, what that reaches, arguments; so that it can be captured elsewhere.

Each object is a recipe in a list, and refers to others by number. torch's, the standard library's and NumPy's functions
and classes are named; the user's are written out. Tensors are their facts, with ``data`` their numbers too. What has no
recipe is a stand-in that says what it was. Of namespaces and of the user's modules there is what the recorded code
looks up by name; of objects and containers that it reaches, everything. ``jitney_tools/replay.py`` reads it.
"""

from __future__ import annotations

import base64
import collections
import enum
import functools
import itertools
import json
import linecache
import math
import os
import platform
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jitney._util.ownership import trusted, trusted_file, trusted_module
from jitney.backends import FailedFrame
from jitney.config import config
from jitney.torch_compat import torch_private

FORMAT = 2
MAX_OBJECTS = 20_000  # what a frame reaches beyond that is a stand-in
DATA_BYTES = 1 << 20  # of one tensor
CODE_FIELDS = (
    "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_nlocals", "co_stacksize", "co_flags", "co_code",
    "co_consts", "co_names", "co_varnames", "co_filename", "co_name", "co_qualname", "co_firstlineno", "co_linetable",
    "co_exceptiontable", "co_freevars", "co_cellvars",
)  # fmt: skip
Recipe = list[Any]
_numbers = itertools.count(1)


def write_record(frame: FailedFrame) -> Path:
    """Write a frame into ``config.base_dir``; returns the file."""
    writer, code = Recorder(config.replay_record_data), frame.code
    facts = {
        "function": writer.ref(frame.function),
        "code": writer.ref(code),
        "space": writer.space(frame.globals, code),
        "arguments": {name: writer.ref(value) for name, value in frame.arguments.items()},
        "cells": [writer.ref(cell) for cell in frame.cells],
    }
    writer.fill_modules()
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    record = {
        "format": FORMAT,
        "versions": versions,
        "name": code.co_name,
        "place": f"{code.co_filename}:{code.co_firstlineno}",
        "error": f"{type(frame.error).__name__}: {frame.error}",
        "frame": facts,
        "objects": writer.objects,
        "sources": writer.sources,
    }
    folder = Path(config.base_dir)
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", code.co_name).strip("_")
    path = folder / f"record_{name}_{os.getpid()}_{next(_numbers)}.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


class Recorder:
    """Makes recipes.

    Args:
        data: write the numbers of tensors, too.
    """

    def __init__(self, data: bool) -> None:
        self.data = data
        self.objects: list[Recipe] = []
        self.sources: dict[str, dict[int, str]] = {}  # lines of the user's files, by number
        self._known: dict[int, int] = {}
        self._kept: list[Any] = []
        self._spaces: dict[int, tuple[int, dict[str, int]]] = {}
        self._modules: list[tuple[types.ModuleType, dict[str, int]]] = []
        self._looked_up: set[str] = set()  # by all code so far

    def ref(self, value: Any) -> int:
        """The number of an object's recipe."""
        found = self._known.get(id(value))
        if found is not None:
            return found
        number = self._known[id(value)] = len(self.objects)
        self._kept.append(value)  # its id stays its own
        self.objects.append(["missing", "itself"])
        self.objects[number] = self._recipe(value) if number < MAX_OBJECTS else ["missing", _described(value)]
        return number

    def refs(self, values: Any) -> list[int]:
        """The numbers of several."""
        return [self.ref(value) for value in values]

    def space(self, space: dict[str, Any], code: types.CodeType) -> int:
        """The number of a namespace, which has at least the names that some code uses."""
        if id(space) not in self._spaces:
            names: dict[str, int] = {}
            self.objects.append(["space", str(space.get("__name__", "")), names])
            self._kept.append(space)
            self._spaces[id(space)] = len(self.objects) - 1, names
        number, names = self._spaces[id(space)]
        for name in sorted(_names(code)):
            if name in space and name not in names:
                names[name] = 0  # it is being written, should it lead here again
                names[name] = self.ref(space[name])
        return number

    def fill_modules(self) -> None:
        """Give the user's modules what the recorded code looks up by name, which may bring more code that does."""
        grows = True
        while grows:
            grows = False
            for module, names in list(self._modules):
                for name in sorted(self._looked_up & vars(module).keys() - names.keys()):
                    names[name] = self.ref(vars(module)[name])
                    grows = True

    def _recipe(self, value: Any) -> Recipe:
        plain = _PLAIN.get(type(value))
        if plain is not None:
            return plain(self, value)
        if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter):
            return _tensor(self, value)
        if isinstance(value, enum.Enum):
            return ["attribute", self.ref(type(value)), value.name]
        named = _path(value)
        if named is not None:
            return named
        for kind, make in _KINDS.items():
            if isinstance(value, kind):
                return make(self, value)
        return _instance(self, value)


def _names(code: types.CodeType) -> set[str]:
    """The names that some code and what is defined in it may look up."""
    inner = [_names(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*inner)


def _described(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _path(value: Any) -> Recipe | None:
    """Where something of torch's, the standard library's or NumPy's is found by name."""
    if not trusted(type(value)) and not _is_numpys(type(value)):  # its attributes may be the user's code
        return None
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__] if _is_library(value.__name__) else None
    if isinstance(value, torch_private.OPERATOR_CLASSES):
        return ["operator", str(value)]
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        return _instance_of_theirs(value)
    if not isinstance(name, str) or "<locals>" in name:
        return None
    if isinstance(value, (type, types.FunctionType)) and not (trusted(value) or _is_numpys(value)):
        return None
    owner = getattr(value, "__objclass__", None)
    modules = [getattr(owner or value, "__module__", None), "torch", "torch._C._nn", "torch.nn.functional", "torch._C"]
    for module in modules:
        if isinstance(module, str) and _is_library(module) and _found(module, name) is value:
            return ["path", module, name]
    return None


def _instance_of_theirs(value: Any) -> Recipe | None:
    """An object that a library's module has itself, such as ``os.environ``: by name, for nobody wants its content."""
    home = type(value).__module__
    names = [name for name, own in vars(sys.modules.get(home, types)).items() if own is value]
    return ["path", home, names[0]] if names and _is_library(home) else None


def _is_numpys(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "numpy"


def _is_library(name: str) -> bool:
    return trusted_module(name) or name.partition(".")[0] == "numpy"


def _found(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


# ---------------------------------------------------------------------- kinds


def _float(recorder: Recorder, value: float) -> Recipe:
    return ["float", value.hex() if math.isfinite(value) else repr(value)]


def _items(recorder: Recorder, value: Any) -> Recipe:
    return ["items", type(value).__name__, recorder.refs(value)]


def _pairs(recorder: Recorder, value: Any) -> Recipe:
    return ["pairs", type(value).__name__, recorder.refs(value), recorder.refs(value.values())]


def _code(recorder: Recorder, value: types.CodeType) -> Recipe:
    recorder._looked_up |= _names(value)
    lines = {line for _, _, line in value.co_lines() if line}
    if not trusted_file(value.co_filename):
        known = recorder.sources.setdefault(value.co_filename, {})
        known |= {line: linecache.getline(value.co_filename, line) for line in lines}
    fields: list[Any] = []
    for name in CODE_FIELDS:
        part = getattr(value, name)
        fields.append(part.hex() if isinstance(part, bytes) else recorder.refs(part) if name == "co_consts" else part)
    return ["code", *fields]


def _function(recorder: Recorder, value: types.FunctionType) -> Recipe:
    return [
        "function",
        recorder.ref(value.__code__),
        recorder.space(value.__globals__, value.__code__),
        recorder.refs(value.__closure__ or ()),
        recorder.ref(value.__defaults__),
        recorder.ref(value.__kwdefaults__),
        recorder.ref({name: part for name, part in value.__dict__.items() if not name.startswith("__")}),
    ]


def _cell(recorder: Recorder, value: Any) -> Recipe:
    try:
        return ["cell", recorder.ref(value.cell_contents)]
    except ValueError:  # it is empty
        return ["cell", None]


def _tensor(recorder: Recorder, value: torch.Tensor) -> Recipe:
    plain = value.layout is torch.strided and not value.is_nested and not value.is_quantized
    if not plain:
        return ["missing", f"a tensor of layout {value.layout}"]
    data = None
    if recorder.data and value.nbytes <= DATA_BYTES:
        flat = value.detach().cpu().contiguous().reshape(-1)
        data = base64.b64encode(flat.view(torch.uint8).numpy().tobytes() if value.numel() else b"").decode()
    facts = [list(value.shape), list(value.stride()), str(value.dtype).partition(".")[2], str(value.device)]
    return ["tensor", *facts, value.requires_grad, isinstance(value, torch.nn.Parameter), data]


def _class(recorder: Recorder, value: type) -> Recipe:
    """A class of the user's: name, bases, what is defined in it."""
    if issubclass(value, enum.Enum):
        base = next((b for b in value.__mro__ if b.__module__ == "enum" and b is not value), enum.Enum)
        members = {name: member.value for name, member in value.__members__.items()}
        return ["enumeration", value.__name__, recorder.ref(base), recorder.ref(members)]
    if type(value) is not type:
        return ["missing", f"the class {value.__qualname__}, of metaclass {type(value).__qualname__}"]
    skipped = {"__dict__", "__weakref__", "__doc__"}
    defined = {name: part for name, part in vars(value).items() if name not in skipped and not _is_slot(part)}
    return ["class", value.__name__, value.__qualname__, recorder.refs(value.__bases__), recorder.ref(defined)]


def _is_slot(part: Any) -> bool:
    return isinstance(part, (types.MemberDescriptorType, types.GetSetDescriptorType))


def _instance(recorder: Recorder, value: Any) -> Recipe:
    """An object whose state is its ``__dict__``."""
    kind: Any = type(value)
    if kind.__new__ is not object.__new__ or not hasattr(value, "__dict__") or kind.__flags__ & (1 << 8):
        return ["missing", _described(value)]
    return ["object", recorder.ref(kind), recorder.ref(dict(vars(value)))]


def _user_module(recorder: Recorder, value: types.ModuleType) -> Recipe:
    """A module of the user's: what the recorded code looks up; see ``fill_modules``."""
    names: dict[str, int] = {}
    recorder._modules.append((value, names))
    return ["own module", value.__name__, names]


_PLAIN: dict[type, Callable[[Recorder, Any], Recipe]] = {
    **dict.fromkeys((type(None), bool, int, str), lambda r, v: ["json", v]),
    float: _float,
    complex: lambda r, v: ["complex", _float(r, v.real), _float(r, v.imag)],
    bytes: lambda r, v: ["bytes", v.hex()],
    type(Ellipsis): lambda r, v: ["constant", "Ellipsis"],
    type(NotImplemented): lambda r, v: ["constant", "NotImplemented"],
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format), lambda r, v: ["torch", str(v).partition(".")[2]]),
    torch.device: lambda r, v: ["device", str(v)],
    **dict.fromkeys((tuple, list, set, frozenset, torch.Size), _items),
    **dict.fromkeys((dict, collections.OrderedDict), _pairs),
    types.MappingProxyType: lambda r, v: ["pairs", "dict", r.refs(v), r.refs(v.values())],
    slice: lambda r, v: ["slice", r.refs((v.start, v.stop, v.step))],
    range: lambda r, v: ["range", v.start, v.stop, v.step],
    types.CodeType: _code,
    types.CellType: _cell,
    np.ndarray: lambda r, v: (
        ["array", list(v.shape), v.dtype.str] if v.dtype.isbuiltin == 1 else ["missing", "an array"]
    ),
}
_KINDS: dict[Any, Callable[[Recorder, Any], Recipe]] = {
    types.ModuleType: _user_module,
    types.FunctionType: _function,
    types.MethodType: lambda r, v: ["method", r.ref(v.__func__), r.ref(v.__self__)],
    types.BuiltinFunctionType: lambda r, v: ["attribute", r.ref(v.__self__), v.__name__],
    functools.partial: lambda r, v: ["partial", r.ref(v.func), r.ref(v.args), r.ref(v.keywords)],
    staticmethod: lambda r, v: ["wrapped", "staticmethod", [r.ref(v.__func__)]],
    classmethod: lambda r, v: ["wrapped", "classmethod", [r.ref(v.__func__)]],
    property: lambda r, v: ["wrapped", "property", r.refs((v.fget, v.fset, v.fdel))],
    type: _class,
}
