"""Operators that make memory for their results, called from native code through torch's C functions.

A row of ``MAKERS`` is one C function. ``jitney_make_<name>`` is a function around it that takes addresses and a table
of integers (``Description``), so that an entry has little to say for a call whose sizes are known: one constant. The
result is a handle and its address; its strides are those that the schedule counts on, whatever the operator gave.

All of them are one library for the process; entries find its functions by ``symbols``. As for ``shims.py``, each is
tried in a child process first, and the verdict kept.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from jitney_llvm_cpu import symbols
from jitney_llvm_cpu.engine import Engine, Library
from jitney_llvm_cpu.shims import Shims, constant, dtype_code, tried

Kind = Literal["tensor", "optional", "integers", "integer", "flag", "identity"]
ABSENT = -1  # in the place of a dtype: no tensor


@dataclass(frozen=True)
class Maker:
    """A C function of torch that returns new tensors.

    Args:
        symbol: its name.
        kinds: of the operator's arguments, in the order of its schema. ``identity``: what oneDNN is to apply to the
            result, the three arguments of which say that it is nothing.
        results: how many tensors it returns.
    """

    symbol: str
    kinds: tuple[Kind, ...]
    results: int = 1


_LISTS: tuple[Kind, ...] = ("integers", "integers", "integers", "flag", "integers", "integer")
MAKERS = {
    "convolution": Maker("aoti_torch_cpu_convolution", ("tensor", "tensor", "optional", *_LISTS)),
    "linear": Maker("aoti_torch_cpu__linear_pointwise", ("tensor", "tensor", "optional", "identity")),
}

NEEDED = (
    "aoti_torch_create_tensor_from_blob", "aoti_torch_delete_tensor_object", "aoti_torch_device_type_cpu",
    "aoti_torch_dtype_float32", "aoti_torch_get_data_ptr", "aoti_torch_get_sizes", "aoti_torch_get_strides",
    "aoti_torch_get_dtype", "aoti_torch_get_storage_offset", "aoti_torch_empty_strided", "aoti_torch_copy_",
    "aoti_torch__reinterpret_tensor", "aoti_torch_dtype_bfloat16", "aoti_torch_dtype_float16",
)  # fmt: skip

# Of ``data``, ``desc`` and ``made`` see ``ir``.
_HELPERS = """
%jitney.made = type { ptr, ptr }
@jitney.none = private constant [5 x i8] c"none\\00"
@jitney.empty = private constant [1 x i8] c"\\00"
@jitney.algorithm = private constant ptr @jitney.empty
declare i32 @aoti_torch_create_tensor_from_blob(ptr, i64, ptr, ptr, i64, i32, i32, i32, ptr)
declare i32 @aoti_torch_delete_tensor_object(ptr)
declare i32 @aoti_torch_get_data_ptr(ptr, ptr)
declare i32 @aoti_torch_get_sizes(ptr, ptr)
declare i32 @aoti_torch_get_strides(ptr, ptr)
declare i32 @aoti_torch_get_dtype(ptr, ptr)
declare i32 @aoti_torch_get_storage_offset(ptr, ptr)
declare i32 @aoti_torch_empty_strided(i64, ptr, ptr, i32, i32, i32, ptr)
declare i32 @aoti_torch_copy_(ptr, ptr, i32)
declare i32 @aoti_torch__reinterpret_tensor(ptr, i64, ptr, ptr, i64, ptr)

; Handles of tensors that are described one after the other: 0, or a code if there are none. Where the table goes on is
; stored in after.
define i32 @jitney_tensors(ptr %data, ptr %desc, i64 %count, ptr %handles, ptr %after) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %more ]
  %at = phi ptr [ %desc, %entry ], [ %at.next, %more ]
  %again = icmp ult i64 %i, %count
  br i1 %again, label %one, label %done
one:
  %handle.p = getelementptr ptr, ptr %handles, i64 %i
  store ptr null, ptr %handle.p
  %dtype.64 = load i64, ptr %at
  %rank.p = getelementptr i64, ptr %at, i64 1
  %rank = load i64, ptr %rank.p
  %sizes = getelementptr i64, ptr %at, i64 2
  %strides = getelementptr i64, ptr %sizes, i64 %rank
  %at.next = getelementptr i64, ptr %strides, i64 %rank
  %absent = icmp slt i64 %dtype.64, 0
  br i1 %absent, label %more, label %make
make:
  %data.p = getelementptr ptr, ptr %data, i64 %i
  %address = load ptr, ptr %data.p
  %dtype = trunc i64 %dtype.64 to i32
  %failed = call i32 @aoti_torch_create_tensor_from_blob(ptr %address, i64 %rank, ptr %sizes, ptr %strides, i64 0,
    i32 %dtype, i32 DEVICE, i32 0, ptr %handle.p)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %more, label %undo
more:
  %i.next = add i64 %i, 1
  br label %loop
undo:
  store ptr null, ptr %handle.p
  call void @jitney_delete(ptr %handles, i64 %i, i64 1)
  ret i32 %failed
done:
  store ptr %at, ptr %after
  ret i32 0
}

; Deletes what handles there are, each step pointers after the one before.
define void @jitney_delete(ptr %handles, i64 %count, i64 %step) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %more ]
  %again = icmp ult i64 %i, %count
  br i1 %again, label %one, label %done
one:
  %at = mul i64 %i, %step
  %handle.p = getelementptr ptr, ptr %handles, i64 %at
  %handle = load ptr, ptr %handle.p
  %none = icmp eq ptr %handle, null
  br i1 %none, label %more, label %delete
delete:
  store ptr null, ptr %handle.p
  %code = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  br label %more
more:
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}

; A result into its place in made, in another order or dtype if it has not the wanted one; the handle is gone if not.
define i32 @jitney_adopt(ptr %handle, ptr %wanted, ptr %made) {
entry:
  %p = alloca ptr
  %sizes.p = alloca ptr
  %strides.p = alloca ptr
  %dtype.p = alloca i32
  %offset.p = alloca i64
  %new.p = alloca ptr
  %dtype.64 = load i64, ptr %wanted
  %dtype = trunc i64 %dtype.64 to i32
  %rank.p = getelementptr i64, ptr %wanted, i64 1
  %rank = load i64, ptr %rank.p
  %right = getelementptr i64, ptr %wanted, i64 2
  %c0 = call i32 @aoti_torch_get_sizes(ptr %handle, ptr %sizes.p)
  %c1 = call i32 @aoti_torch_get_strides(ptr %handle, ptr %strides.p)
  %c2 = call i32 @aoti_torch_get_dtype(ptr %handle, ptr %dtype.p)
  %c01 = or i32 %c0, %c1
  %c = or i32 %c01, %c2
  %fine = icmp eq i32 %c, 0
  br i1 %fine, label %compare, label %failed
compare:
  %sizes = load ptr, ptr %sizes.p
  %strides = load ptr, ptr %strides.p
  %given = load i32, ptr %dtype.p
  %converts = icmp ne i32 %given, %dtype
  br label %loop
loop:
  %i = phi i64 [ 0, %compare ], [ %i.next, %dim ]
  %moves = phi i1 [ %converts, %compare ], [ %moves.next, %dim ]
  %names = phi i1 [ false, %compare ], [ %names.next, %dim ]
  %again = icmp ult i64 %i, %rank
  br i1 %again, label %dim, label %decide
dim:
  %a.p = getelementptr i64, ptr %strides, i64 %i
  %b.p = getelementptr i64, ptr %right, i64 %i
  %n.p = getelementptr i64, ptr %sizes, i64 %i
  %a = load i64, ptr %a.p
  %b = load i64, ptr %b.p
  %n = load i64, ptr %n.p
  %differs = icmp ne i64 %a, %b
  %several = icmp sgt i64 %n, 1
  %matters = and i1 %differs, %several
  %moves.next = or i1 %moves, %matters
  %names.next = or i1 %names, %differs
  %i.next = add i64 %i, 1
  br label %loop
decide:
  br i1 %moves, label %move, label %maybe
maybe:
  br i1 %names, label %name, label %keep
move:
  %c3 = call i32 @aoti_torch_empty_strided(i64 %rank, ptr %sizes, ptr %right, i32 %dtype, i32 DEVICE, i32 0, ptr %new.p)
  %room = icmp eq i32 %c3, 0
  br i1 %room, label %copy, label %failed
copy:
  %new = load ptr, ptr %new.p
  %c4 = call i32 @aoti_torch_copy_(ptr %new, ptr %handle, i32 0)
  %copied = icmp eq i32 %c4, 0
  br i1 %copied, label %replace, label %drop
drop:
  %c5 = call i32 @aoti_torch_delete_tensor_object(ptr %new)
  br label %failed
name:
  %c6 = call i32 @aoti_torch_get_storage_offset(ptr %handle, ptr %offset.p)
  %offset = load i64, ptr %offset.p
  %c7 = call i32 @aoti_torch__reinterpret_tensor(ptr %handle, i64 %rank, ptr %sizes, ptr %right, i64 %offset,
    ptr %new.p)
  %c67 = or i32 %c6, %c7
  %named = icmp eq i32 %c67, 0
  br i1 %named, label %replace, label %failed
replace:
  %other = load ptr, ptr %new.p
  %c8 = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  br label %keep
keep:
  %result = phi ptr [ %handle, %maybe ], [ %other, %replace ]
  %c9 = call i32 @aoti_torch_get_data_ptr(ptr %result, ptr %p)
  %address = load ptr, ptr %p
  %address.p = getelementptr %jitney.made, ptr %made, i32 0, i32 1
  store ptr %result, ptr %made
  store ptr %address, ptr %address.p
  ret i32 %c9
failed:
  %c10 = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  ret i32 1
}
"""

_MAKE = """
declare i32 @SYMBOL(TYPES)

define i32 @jitney_make_NAME(ptr %data, ptr %desc, ptr %made) {
entry:
  %handles = alloca [TENSORS x ptr]
  %results = alloca [RESULTS x ptr]
  %after.p = alloca ptr
READ
  %failed = call i32 @jitney_tensors(ptr %data, ptr LAST, i64 TENSORS, ptr %handles, ptr %after.p)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %run, label %end
run:
LOADS
  %code = call i32 @SYMBOL(GIVEN)
  call void @jitney_delete(ptr %handles, i64 TENSORS, i64 1)
  %done = icmp eq i32 %code, 0
  br i1 %done, label %adopt, label %refused
adopt:
  %after.0 = load ptr, ptr %after.p
ADOPTED
  ret i32 CODE
refused:
  ret i32 %code
end:
  ret i32 %failed
}
"""


def ir(names: frozenset[str]) -> str:
    """LLVM IR of ``i32 @jitney_make_<name>(ptr data, ptr desc, ptr made)`` and of what it needs.

    ``data`` points to the address of each tensor argument. ``desc`` points to i64: the other arguments in the schema's
    order, each list after its length; for each tensor argument its dtype (``dtype_code``, or ``ABSENT``), rank, sizes
    and strides in elements; for each result the dtype, rank and strides that it must have. ``made`` points to
    ``{ ptr handle, ptr data }`` for each result. Returned is 0, or a code if torch raised.
    """
    device = str(constant("aoti_torch_device_type_cpu"))
    return _HELPERS.replace("DEVICE", device) + "".join(_make(name, MAKERS[name]) for name in sorted(names))


def _make(name: str, maker: Maker) -> str:
    tensors = sum(kind in ("tensor", "optional") for kind in maker.kinds)
    types, given, read, loads = [], [], [], []
    number, at = 0, "%desc"
    for k, kind in enumerate(maker.kinds):
        if kind in ("tensor", "optional"):
            loads += [f"%p{k} = getelementptr ptr, ptr %handles, i64 {number}", f"%h{k} = load ptr, ptr %p{k}"]
            if kind == "optional":
                loads += [f"%n{k} = icmp eq ptr %h{k}, null", f"%o{k} = select i1 %n{k}, ptr null, ptr %p{k}"]
            types.append("ptr")
            given.append(f"ptr %{'o' if kind == 'optional' else 'h'}{k}")
            number += 1
            continue
        if kind == "identity":
            types += ["ptr", "ptr", "i64", "ptr"]
            given += ["ptr @jitney.none", "ptr null", "i64 0", "ptr @jitney.algorithm"]
            continue
        read.append(f"%v{k} = load i64, ptr {at}")
        following = f"%a{k}"
        read.append(f"{following} = getelementptr i64, ptr {at}, i64 1")
        if kind == "integers":
            read.append(f"%b{k} = getelementptr i64, ptr {following}, i64 %v{k}")
            types += ["ptr", "i64"]
            given += [f"ptr {following}", f"i64 %v{k}"]
            following = f"%b{k}"
        elif kind == "flag":
            read.append(f"%f{k} = trunc i64 %v{k} to i32")
            types.append("i32")
            given.append(f"i32 %f{k}")
        else:
            types.append("i64")
            given.append(f"i64 %v{k}")
        at = following
    adopted = []
    for k in range(maker.results):
        read += [f"%r{k} = getelementptr ptr, ptr %results, i64 {k}", f"store ptr null, ptr %r{k}"]
        types.append("ptr")
        given.append(f"ptr %r{k}")
        adopted += [
            f"%result.{k} = load ptr, ptr %r{k}",
            f"%made.{k} = getelementptr %jitney.made, ptr %made, i64 {k}",
            f"%code.{k} = call i32 @jitney_adopt(ptr %result.{k}, ptr %after.{k}, ptr %made.{k})",
            f"%rank.p{k} = getelementptr i64, ptr %after.{k}, i64 1",
            f"%rank.{k} = load i64, ptr %rank.p{k}",
            f"%strides.{k} = getelementptr i64, ptr %after.{k}, i64 2",
            f"%after.{k + 1} = getelementptr i64, ptr %strides.{k}, i64 %rank.{k}",
            f"%codes.{k} = or i32 %code.{k}, {f'%codes.{k - 1}' if k else '0'}",
        ]
    parts = {
        "SYMBOL": maker.symbol,
        "NAME": name,
        "TYPES": ", ".join(types),
        "TENSORS": str(tensors),
        "RESULTS": str(maker.results),
        "READ": _lines(read),
        "LOADS": _lines(loads),
        "GIVEN": ", ".join(given),
        "LAST": at,
        "ADOPTED": _lines(adopted),
        "CODE": f"%codes.{maker.results - 1}",
    }
    text = _MAKE
    for word, replacement in parts.items():
        text = text.replace(word, replacement)
    return text


def _lines(instructions: Sequence[str]) -> str:
    return "\n".join("  " + line for line in instructions)


@functools.cache
def makers(engine: Engine) -> Shims:
    """What torch exports and passes its trial; the answer is kept for the process, and on disk for the machine."""
    if any(symbols.find(name) is None for name in NEEDED):
        return Shims(problem="torch exports no functions to look at tensors from C")
    problems = {name: _problem(engine, name) for name in MAKERS}
    names = frozenset(name for name, problem in problems.items() if not problem)
    return Shims(names, "; ".join(problem for problem in problems.values() if problem))


def _problem(engine: Engine, name: str) -> str:
    """What is wrong with one of them; empty if nothing is."""
    if symbols.find(MAKERS[name].symbol) is None:
        return f"torch does not export {name}"
    return tried(engine, ir(frozenset({name})), f"maker of {name}", functools.partial(_trials, name))


class Description:
    """A call as native code takes it; what it points to lives as long as this object.

    Args:
        tensors: arguments, None for those that are absent.
        numbers: the other arguments, in order.
        results: strides and dtype that each result must have.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor | None],
        numbers: Sequence[Sequence[int] | int],
        results: Sequence[tuple[Sequence[int], torch.dtype]],
    ) -> None:
        table: list[int] = []
        for value in numbers:
            table += [int(value)] if isinstance(value, int) else [len(value), *value]
        for tensor in tensors:
            table += [ABSENT, 0] if tensor is None else _described(tensor)
        for stride, dtype in results:
            table += [dtype_code(dtype), len(stride), *stride]
        self.tensors = tensors
        self.data = (ctypes.c_void_p * len(tensors))(*(0 if t is None else t.data_ptr() for t in tensors))
        self.desc = (ctypes.c_int64 * len(table))(*table)
        self.made = (ctypes.c_void_p * (2 * len(results)))()


def _described(tensor: torch.Tensor) -> list[int]:
    return [dtype_code(tensor.dtype), tensor.dim(), *tensor.shape, *tensor.stride()]


class ConvolutionTrial:
    """A small convolution and what it should give, made before the fork."""

    def __init__(self, library: Library, name: str, groups: int, bias: bool, transposed: bool = False) -> None:
        x = (torch.arange(2 * 4 * 5 * 6, dtype=torch.float32).reshape(2, 5, 6, 4) % 7 - 3).permute(0, 3, 1, 2)
        # The weights lie in another order than the images, so that sizes and strides taken for one another show.
        weight = torch.arange(6 * 4 // groups * 6, dtype=torch.float32).reshape(6, 4 // groups, 3, 2) % 5 - 2
        added = torch.arange(6, dtype=torch.float32) if bias else None
        numbers: list[Any] = [[1, 2], [2, 1], [2, 1], False, [0, 0], groups]
        self.expected = torch.convolution(x, weight, added, *numbers)
        # What was made goes to memory in rows, which is not how it comes.
        self.call = Description((x, weight, added), numbers, [(self.expected.contiguous().stride(), x.dtype)])
        self.function = library.function(name, *[ctypes.c_void_p] * 3, result=ctypes.c_int32)

    def succeeds(self) -> bool:
        """Is it what torch computes?"""
        code = self.function(self.call.data, self.call.desc, self.call.made)
        if code != 0 or not self.call.made[1]:
            return False
        count = self.expected.numel()
        got = torch.frombuffer((ctypes.c_float * count).from_address(self.call.made[1]), dtype=torch.float32)
        return torch.equal(got.view(self.expected.shape), self.expected)


class LinearTrial:
    """A small product by oneDNN, with a bias or without, whose factors lie in memory as the operator's do or turned."""

    def __init__(self, library: Library, bias: bool, turned: bool) -> None:
        x, weight = _counting(6, 8), _counting(8, 5).t() if turned else _counting(5, 8)
        added = torch.arange(5, dtype=torch.float32) if bias else None
        self.expected = torch.nn.functional.linear(x, weight, added)
        self.call = Description((x, weight, added), (), [(self.expected.stride(), x.dtype)])
        self.function = library.function("jitney_make_linear", *[ctypes.c_void_p] * 3, result=ctypes.c_int32)

    succeeds = ConvolutionTrial.succeeds


def _counting(*size: int) -> torch.Tensor:
    return torch.arange(size[0] * size[1], dtype=torch.float32).reshape(size) % 7 - 3


def _trials(name: str, library: Library) -> list[tuple[str, Any]]:
    """Trials of a function, with its name."""
    if name == "linear":
        return [(name, LinearTrial(library, bias, turned)) for bias in (True, False) for turned in (True, False)]
    cases = ((1, True), (2, False), (2, True), (1, False))
    return [(name, ConvolutionTrial(library, "jitney_make_convolution", *case)) for case in cases]
