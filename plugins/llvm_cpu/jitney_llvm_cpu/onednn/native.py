"""A convolution with weights in oneDNN's order, called from native code: what it does without asking Python.

    jitney_packed(state, threads, data, desc, made)
      |
      v
    table of the state: a row for this shape and number of threads?
      |-- plain:  jitney_make_convolution
      |-- packed: the digest of the weights is the table's?  yes: torch's operator with the row's handle
      |             | no
      |-- ask ------+--> the state's callback: Python (``packed.py``), which then puts another table in the place

A table is never changed. Threads that are in native code count themselves: a table that was replaced is given back when
none of them is left that may have seen it.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jitney_llvm_cpu import makers, symbols
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.onednn import digest_code
from jitney_llvm_cpu.shims import tried
from jitney_llvm_cpu.target import Target

ASK, PLAIN, PACKED = range(3)
LAYOUTS = 4  # rows of a table
_DIMS = 5
REFUSED = 1  # what a callback returns for an exception
UNANSWERED = 2  # what ``jitney_packed`` returns where it would ask, and nobody is there

OPERATOR = "aoti_torch_cpu_mkldnn__convolution_pointwise"
EXPORTED = ("jitney_delete", "jitney_make_convolution", "jitney_packed")

_TEXT = """
%jitney.state = type { ptr, i64, i64, ptr }
%jitney.row = type { i64, i64, ptr, [5 x i64] }
%jitney.table = type { i64, i64, i64, i64, [4 x %jitney.row] }
@jitney.none = private constant [5 x i8] c"none\\00"
@jitney.empty = private constant [1 x i8] c"\\00"
@jitney.algorithm = private constant ptr @jitney.empty

declare i32 @OPERATOR(ptr, ptr, ptr, ptr, i64, ptr, i64, ptr, i64, i64, ptr, ptr, i64, ptr, ptr)

define ptr @jitney_publish(ptr %state, ptr %table) {
  %old = atomicrmw xchg ptr %state, ptr %table seq_cst
  ret ptr %old
}

define i64 @jitney_users(ptr %state) {
  %users.p = getelementptr %jitney.state, ptr %state, i32 0, i32 1
  %users = load atomic i64, ptr %users.p seq_cst, align 8
  ret i64 %users
}

; Was there a call with packed weights since the last question?
define i64 @jitney_hits(ptr %state) {
  %hits.p = getelementptr %jitney.state, ptr %state, i32 0, i32 2
  %hits = atomicrmw xchg ptr %hits.p, i64 0 seq_cst
  ret i64 %hits
}

define i32 @jitney_packed(ptr %state, i64 %threads, ptr %data, ptr %desc, ptr %made) {
entry:
  %n0 = load i64, ptr %desc
  %stride = getelementptr i64, ptr %desc, i64 1
  %n1.p = getelementptr i64, ptr %stride, i64 %n0
  %n1 = load i64, ptr %n1.p
  %padding = getelementptr i64, ptr %n1.p, i64 1
  %n2.p = getelementptr i64, ptr %padding, i64 %n1
  %n2 = load i64, ptr %n2.p
  %dilation = getelementptr i64, ptr %n2.p, i64 1
  %transposed.p = getelementptr i64, ptr %dilation, i64 %n2
  %n3.p = getelementptr i64, ptr %transposed.p, i64 1
  %n3 = load i64, ptr %n3.p
  %output = getelementptr i64, ptr %n3.p, i64 1
  %groups.p = getelementptr i64, ptr %output, i64 %n3
  %groups = load i64, ptr %groups.p
  %tensors = getelementptr i64, ptr %groups.p, i64 1
  %rank.p = getelementptr i64, ptr %tensors, i64 1
  %rank = load i64, ptr %rank.p
  %sizes = getelementptr i64, ptr %tensors, i64 2
  %users.p = getelementptr %jitney.state, ptr %state, i32 0, i32 1
  %u0 = atomicrmw add ptr %users.p, i64 1 seq_cst
  %table = load atomic ptr, ptr %state seq_cst, align 8
  %digest.p = getelementptr %jitney.table, ptr %table, i32 0, i32 0
  %bytes.p = getelementptr %jitney.table, ptr %table, i32 0, i32 1
  %otherwise.p = getelementptr %jitney.table, ptr %table, i32 0, i32 2
  %count.p = getelementptr %jitney.table, ptr %table, i32 0, i32 3
  %otherwise = load i64, ptr %otherwise.p
  %count = load i64, ptr %count.p
  br label %rows
rows:
  %r = phi i64 [ 0, %entry ], [ %r.next, %other ]
  %more = icmp ult i64 %r, %count
  br i1 %more, label %row, label %decide
row:
  %row.threads.p = getelementptr %jitney.table, ptr %table, i32 0, i32 4, i64 %r, i32 0
  %row.threads = load i64, ptr %row.threads.p
  %same.threads = icmp eq i64 %row.threads, %threads
  br i1 %same.threads, label %dims, label %other
dims:
  %d = phi i64 [ 0, %row ], [ %d.next, %equal ]
  %dims.more = icmp ult i64 %d, %rank
  br i1 %dims.more, label %dim, label %found
dim:
  %row.size.p = getelementptr %jitney.table, ptr %table, i32 0, i32 4, i64 %r, i32 3, i64 %d
  %row.size = load i64, ptr %row.size.p
  %size.p = getelementptr i64, ptr %sizes, i64 %d
  %size = load i64, ptr %size.p
  %same.size = icmp eq i64 %row.size, %size
  br i1 %same.size, label %equal, label %other
equal:
  %d.next = add i64 %d, 1
  br label %dims
other:
  %r.next = add i64 %r, 1
  br label %rows
found:
  %row.mode.p = getelementptr %jitney.table, ptr %table, i32 0, i32 4, i64 %r, i32 1
  %row.mode = load i64, ptr %row.mode.p
  %row.handle.p = getelementptr %jitney.table, ptr %table, i32 0, i32 4, i64 %r, i32 2
  %row.handle = load ptr, ptr %row.handle.p
  br label %decide
decide:
  %mode = phi i64 [ %otherwise, %rows ], [ %row.mode, %found ]
  %packed = phi ptr [ null, %rows ], [ %row.handle, %found ]
  switch i64 %mode, label %ask [ i64 1, label %plain  i64 2, label %compare ]
plain:
  %u1 = atomicrmw sub ptr %users.p, i64 1 seq_cst
  %code.plain = call i32 @jitney_make_convolution(ptr %data, ptr %desc, ptr %made)
  ret i32 %code.plain
compare:
  %digest = load i64, ptr %digest.p
  %bytes = load i64, ptr %bytes.p
  %weight.p = getelementptr ptr, ptr %data, i64 1
  %weight = load ptr, ptr %weight.p
  %now = call i64 @jitney_digest(ptr %weight, i64 %bytes, i64 %threads)
  %same = icmp eq i64 %now, %digest
  br i1 %same, label %run, label %ask
run:
  %code.run = call i32 @jitney_run_packed(ptr %data, ptr %tensors, ptr %packed, ptr %padding, i64 %n1, ptr %stride,
    i64 %n0, ptr %dilation, i64 %n2, i64 %groups, ptr %made)
  %hits.p = getelementptr %jitney.state, ptr %state, i32 0, i32 2
  store atomic i64 1, ptr %hits.p seq_cst, align 8
  %u2 = atomicrmw sub ptr %users.p, i64 1 seq_cst
  ret i32 %code.run
ask:
  %u3 = atomicrmw sub ptr %users.p, i64 1 seq_cst
  %callback.p = getelementptr %jitney.state, ptr %state, i32 0, i32 3
  %callback = load ptr, ptr %callback.p
  %nobody = icmp eq ptr %callback, null
  br i1 %nobody, label %unanswered, label %call
unanswered:
  ret i32 2
call:
  %code.ask = call i32 %callback(ptr %data, ptr %desc, ptr %made, i64 %threads)
  ret i32 %code.ask
}

define internal i32 @jitney_run_packed(ptr %data, ptr %tensors, ptr %packed, ptr %padding, i64 %n1, ptr %stride,
    i64 %n0, ptr %dilation, i64 %n2, i64 %groups, ptr %made) {
entry:
  %handles = alloca [3 x ptr]
  %after.p = alloca ptr
  %result.p = alloca ptr
  store ptr null, ptr %result.p
  %failed = call i32 @jitney_tensors(ptr %data, ptr %tensors, i64 3, ptr %handles, ptr %after.p)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %run, label %end
run:
  %x = load ptr, ptr %handles
  %bias.p = getelementptr ptr, ptr %handles, i64 2
  %bias = load ptr, ptr %bias.p
  %none = icmp eq ptr %bias, null
  %given = select i1 %none, ptr null, ptr %bias.p
  %code = call i32 @OPERATOR(ptr %x, ptr %packed, ptr %given, ptr %padding, i64 %n1, ptr %stride, i64 %n0,
    ptr %dilation, i64 %n2, i64 %groups, ptr @jitney.none, ptr null, i64 0, ptr @jitney.algorithm, ptr %result.p)
  call void @jitney_delete(ptr %handles, i64 3, i64 1)
  %done = icmp eq i32 %code, 0
  br i1 %done, label %adopt, label %refused
adopt:
  %result = load ptr, ptr %result.p
  %after = load ptr, ptr %after.p
  %adopted = call i32 @jitney_adopt(ptr %result, ptr %after, ptr %made)
  ret i32 %adopted
refused:
  ret i32 %code
end:
  ret i32 %failed
}
"""

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
        ("sizes", ctypes.c_int64 * _DIMS),
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
    if "convolution" not in found.names:
        return frozenset()
    text = _text(own.target, parallel)
    packed = "" if text is None else tried(own, text, "packed convolutions", _attempts)
    usable = text is not None and not packed
    library = own.compile(text if usable and text is not None else makers.ir(found.names))
    names = EXPORTED if usable else EXPORTED[:-1]
    for name in names:
        symbols.register(name, library.address(name))
    _libraries.append(library)
    return frozenset({"convolution", "packed"} if usable else {"convolution"})


# One for the process, never unmapped: code of others is linked to it.
_libraries: list[Any] = []
_names: list[frozenset[str]] = []
_lock = threading.Lock()


def _text(target: Target, parallel: str) -> str | None:
    needed = (OPERATOR, "aoti_torch_delete_tensor_object")
    if any(symbols.find(name) is None for name in needed):
        return None
    parts = makers.ir(frozenset({"convolution"})), digest_code.text(parallel, digest_code.aes_bytes(target))
    return "".join(parts) + _TEXT.replace("OPERATOR", OPERATOR)


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

_aoti: Any = torch._C._aoti
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


def _attempts(library: Any) -> list[tuple[str, Any]]:
    cases = ((1, True), (2, False), (2, True), (1, False))
    return [("packed", _Attempt(library, *case)) for case in cases]


class _Attempt(makers.ConvolutionTrial):
    """The convolution of the other trial, with weights in order; then others are no longer those of the digest."""

    def __init__(self, library: Any, groups: int, bias: bool) -> None:
        super().__init__(library, "jitney_make_convolution", groups, bias)
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
