"""A convolution with weights in oneDNN's order, called from native code: what it does without asking Python.

    jitney_packed(state, threads, data, desc, made)
      |
      v
    table of the state: a row for this shape and number of threads?
      |-- plain:  jitney_convolution
      |-- packed: the digest of the weights is the table's?  yes: torch's operator with the row's handle
      |             | no
      |-- ask ------+--> the state's callback: Python (``packed.py``), which then puts another table in the place

A table is never changed. Threads that are in native code count themselves: a table that was replaced is given back when
none of them is left that may have seen it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jitney.backends import reentrant_lock
from jitney_llvm_cpu import makers, symbols
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.onednn import native_code
from jitney_llvm_cpu.onednn.native_code import DIMS, LAYOUTS
from jitney_llvm_cpu.shims import tried

ASK, PLAIN, PACKED = range(3)
REFUSED = 1  # what a callback returns for an exception
UNANSWERED = 2  # what ``jitney_packed`` returns where it would ask, and nobody is there

EXPORTED = ("jitney_delete", "jitney_convolution", "jitney_packed")

Callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class State(ctypes.Structure):
    """See the picture above; ``hits``: was there a call with packed weights lately?"""

    _fields_ = [
        ("table", ctypes.c_void_p),
        ("users", ctypes.c_int64),
        ("hits", ctypes.c_int64),
        ("callback", ctypes.c_void_p),
    ]


class _Row(ctypes.Structure):
    _fields_ = [
        ("threads", ctypes.c_int64),
        ("mode", ctypes.c_int64),
        ("handle", ctypes.c_void_p),
        ("sizes", ctypes.c_int64 * DIMS),
    ]


class _Table(ctypes.Structure):
    _fields_ = [
        ("digest", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("otherwise", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("rows", _Row * LAYOUTS),
    ]


@dataclass(frozen=True)
class Row:
    """What is done for inputs of one shape in so many threads; ``weight``: in oneDNN's order, for ``PACKED``."""

    shape: tuple[int, ...]
    threads: int
    mode: int
    weight: Tensor | None = None


class Table:
    """A table with the tensors that it refers to."""

    def __init__(self, rows: Sequence[Row] = (), otherwise: int = ASK, digest: int = 0, size: int = 0) -> None:
        self.rows = tuple(rows)
        self.native = _Table(digest, size, otherwise, len(self.rows))
        self._handles = []
        for place, row in zip(self.native.rows, self.rows, strict=False):
            place.threads, place.mode = row.threads, row.mode
            place.sizes[: len(row.shape)] = row.shape
            if row.weight is not None:
                place.handle = handle_of(row.weight)
                self._handles.append(place.handle)

    @property
    def contents(self) -> tuple[object, ...]:
        """Equal for tables that say the same."""
        rows = tuple((row.shape, row.threads, row.mode, id(row.weight)) for row in self.rows)
        return rows, self.native.otherwise, self.native.digest, self.native.bytes

    @property
    def address(self) -> int:
        """Where native code finds it."""
        return ctypes.addressof(self.native)

    def __del__(self) -> None:
        for handle in self._handles:
            _delete()(handle)


@dataclass(frozen=True)
class Functions:
    """The library's, as Python calls them; addresses and handles are integers."""

    packed: Callable[..., int]
    tensors: Callable[..., int]
    adopt: Callable[..., int]
    publish: Callable[..., int | None]
    users: Callable[..., int]
    hits: Callable[..., int]


def available(own: Engine, parallel: str) -> frozenset[str]:
    """Which of ``convolution`` and ``packed`` native code may call; then their functions can be linked to."""
    with _lock:
        if not _names:
            _names.append(_link(own, parallel))
        return _names[0]


def _link(own: Engine, parallel: str) -> frozenset[str]:
    found = makers.makers(own)
    if "convolution" not in found.names or not all(hasattr(_aoti, name) for name in _CONVERTERS):
        return frozenset()
    plain = native_code.plain(parallel)
    failed = tried(own, plain, "convolutions", _attempts)
    if failed:
        return frozenset()
    packed = native_code.packed(parallel, own.target)
    usable = packed is not None and not tried(own, packed, "packed convolutions", _packed_attempts)
    library = own.compile(packed if usable and packed is not None else plain)
    for name in EXPORTED if usable else EXPORTED[:-1]:
        symbols.register(name, library.address(name))
    _libraries.append(library)
    return frozenset({"convolution", "packed"} if usable else {"convolution"})


# One for the process, never unmapped: code of others is linked to it.
_libraries: list[Any] = []
_names: list[frozenset[str]] = []
_lock = reentrant_lock()


def functions() -> Functions | None:
    """Of the library that ``available`` has linked; None if there is none, or not for packed weights."""
    return _functions(_libraries[-1]) if _libraries and "jitney_packed" in _libraries[-1].names else None


@functools.cache
def _functions(library: Any) -> Functions:
    address, integer = ctypes.c_void_p, ctypes.c_int64

    def of(name: str, *arguments: Any, result: Any, hold_gil: bool = True) -> Callable[..., Any]:
        return library.function(name, *arguments, result=result, hold_gil=hold_gil)

    return Functions(
        of("jitney_packed", address, integer, *[address] * 3, result=ctypes.c_int32, hold_gil=False),
        of("jitney_tensors", address, address, integer, address, address, result=ctypes.c_int32),
        of("jitney_adopt", address, address, address, result=ctypes.c_int32, hold_gil=False),
        of("jitney_publish", address, address, result=address),
        of("jitney_users", address, result=integer),
        of("jitney_hits", address, result=integer),
    )


@functools.cache
def _delete() -> Callable[[int], Any]:
    found = symbols.find("aoti_torch_delete_tensor_object")
    assert found is not None
    return ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(found)


# ------------------------------------------------------------------ handles and tensors

_aoti: Any = getattr(torch._C, "_aoti", None)
_CONVERTERS = ("unsafe_alloc_void_ptr_from_tensor", "alloc_tensors_by_stealing_from_void_ptrs")
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def handle_of(tensor: Tensor) -> int:
    """A new handle, to be deleted by whoever gets it."""
    return int(_pointer(_aoti.unsafe_alloc_void_ptr_from_tensor(tensor), None))


def tensors_of(handles: Iterable[int]) -> list[Tensor]:
    """The tensors of handles, which are gone then.

    torch's function for a single one does not steal it, whatever its name says.
    """
    made: list[Tensor] = _aoti.alloc_tensors_by_stealing_from_void_ptrs([_new_capsule(h, None, None) for h in handles])
    return made


def handles(count: int) -> Any:
    """Room for so many handles; an item is one, as an integer."""
    return (ctypes.c_void_p * count)()


def address_of(room: Any) -> int:
    """Where it is."""
    return ctypes.addressof(room)


# ------------------------------------------------------------------ the trial

_CASES = ((1, True), (2, False), (2, True), (1, False))


def _attempts(library: Any) -> list[tuple[str, Any]]:
    return [("convolution", _Plain(library, *case)) for case in _CASES]


def _packed_attempts(library: Any) -> list[tuple[str, Any]]:
    return [("packed", _Packed(library, *case)) for case in _CASES]


class _Plain(makers.ConvolutionTrial):
    """The convolution of the other trial, whose weights are put in another order first."""

    def __init__(self, library: Any, groups: int, bias: bool) -> None:
        super().__init__(library, "jitney_delete", groups, bias)
        address = ctypes.c_void_p
        call = library.function("jitney_convolution", ctypes.c_int64, *[address] * 3, result=ctypes.c_int32)
        self.function = functools.partial(call, 1)


class _Packed(makers.ConvolutionTrial):
    """The same with weights in order; then others are no longer those of the digest."""

    def __init__(self, library: Any, groups: int, bias: bool) -> None:
        super().__init__(library, "jitney_delete", groups, bias)
        self.packed = _functions(library).packed
        x, weight, _ = self.call.tensors
        assert x is not None and weight is not None
        stride, padding, dilation = [1, 2], [2, 1], [2, 1]
        mkldnn: Any = torch.ops.mkldnn
        ordered = mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, x.shape)
        address, integer = ctypes.c_void_p, ctypes.c_int64
        digest_of = library.function("jitney_digest", address, integer, integer, result=integer)
        self.table = Table(
            [Row((1, 2, 3, 4), 1, PLAIN), Row(tuple(x.shape), 1, PACKED, ordered)],
            ASK,
            digest_of(weight.data_ptr(), weight.nbytes, 1),
            weight.nbytes,
        )
        self.state = State(self.table.address)
        self.weight = weight
        self.function = lambda *given: self.packed(ctypes.addressof(self.state), 1, *given)

    def succeeds(self) -> bool:
        """Is it what torch computes, until the weights change?"""
        if not super().succeeds() or self.state.users or not self.state.hits:
            return False
        self.weight.neg_()
        return self.function(self.call.data, self.call.desc, self.call.made) == UNANSWERED
