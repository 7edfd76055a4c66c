"""Matrix products called from native code, through the C functions that torch exports for ahead-of-time compilation.

A call from Python costs microseconds, and splits what could be one native call: the smallest product takes 1.8 us from
here, 4.0 us through ``torch.ops.aten.addmm.out``, 2.3 us through ``torch.addmm(out=)``. The functions take tensors as
handles; a handle is made from a pointer, sizes and strides, and deleted after the call.

Their signatures are in torch's ``c_shim_cpu.h``, and could change. So each is tried once, on small data, in a child
process: if one crashes, hangs or computes something else, none is used. The verdict is kept in the engine's cache for
this build of torch.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import os
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from jitney_llvm_cpu import symbols
from jitney_llvm_cpu.engine import Engine, Library

_TRIAL_S = 20.0


@dataclass(frozen=True)
class Shim:
    """A C function of torch.

    Args:
        symbol: its name.
        tensors: how many handles it takes, the result's first.
        numbers: how many doubles follow.
    """

    symbol: str
    tensors: int
    numbers: int = 0


SHIMS = {
    "mm": Shim("aoti_torch_cpu_mm_out", 3),
    "bmm": Shim("aoti_torch_cpu_bmm_out", 3),
    "addmm": Shim("aoti_torch_cpu_addmm_out", 4, 2),
    "baddbmm": Shim("aoti_torch_cpu_baddbmm_out", 4, 2),
}

_HANDLES = """
%jitney.blob = type { ptr, i64, ptr, ptr, i32 }
declare i32 @aoti_torch_create_tensor_from_blob(ptr, i64, ptr, ptr, i64, i32, i32, i32, ptr)
declare i32 @aoti_torch_delete_tensor_object(ptr)

define internal i32 @jitney_open(ptr %blobs, i64 %count, ptr %handles) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %handle.p = getelementptr ptr, ptr %handles, i64 %i
  %data.p = getelementptr %jitney.blob, ptr %blobs, i64 %i, i32 0
  %rank.p = getelementptr %jitney.blob, ptr %blobs, i64 %i, i32 1
  %sizes.p = getelementptr %jitney.blob, ptr %blobs, i64 %i, i32 2
  %strides.p = getelementptr %jitney.blob, ptr %blobs, i64 %i, i32 3
  %dtype.p = getelementptr %jitney.blob, ptr %blobs, i64 %i, i32 4
  %data = load ptr, ptr %data.p
  %rank = load i64, ptr %rank.p
  %sizes = load ptr, ptr %sizes.p
  %strides = load ptr, ptr %strides.p
  %dtype = load i32, ptr %dtype.p
  %failed = call i32 @aoti_torch_create_tensor_from_blob(ptr %data, i64 %rank, ptr %sizes, ptr %strides, i64 0,
    i32 %dtype, i32 DEVICE, i32 0, ptr %handle.p)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %more, label %undo
more:
  %next = add i64 %i, 1
  %again = icmp ult i64 %next, %count
  br i1 %again, label %loop, label %done
undo:
  call void @jitney_close(ptr %handles, i64 %i)
  ret i32 %failed
done:
  ret i32 0
}

define internal void @jitney_close(ptr %handles, i64 %count) {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %loop, label %done
loop:
  %handle.p = getelementptr ptr, ptr %handles, i64 %i
  %handle = load ptr, ptr %handle.p
  %code = call i32 @aoti_torch_delete_tensor_object(ptr %handle)
  %next = add i64 %i, 1
  br label %test
done:
  ret void
}
"""

_CALL = """
declare i32 @SYMBOL(TYPES)

define internal i32 @jitney_NAME(ptr %blobsNUMBERS) {
  %handles = alloca [COUNT x ptr]
  %failed = call i32 @jitney_open(ptr %blobs, i64 COUNT, ptr %handles)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %run, label %end
run:
LOADS
  %code = call i32 @SYMBOL(GIVEN)
  call void @jitney_close(ptr %handles, i64 COUNT)
  ret i32 %code
end:
  ret i32 %failed
}
"""


@dataclass(frozen=True)
class Shims:
    """What may be called.

    Args:
        names: of ``SHIMS``.
        problem: why it is not all of them, or empty.
    """

    names: frozenset[str] = frozenset()
    problem: str = ""


def ir(names: frozenset[str] | set[str]) -> str:
    """LLVM IR of ``i32 @jitney_<name>(ptr blobs, double...)`` for each name, once for each module.

    ``blobs`` points to one ``{ ptr data, i64 rank, ptr sizes, ptr strides, i32 dtype }`` for each tensor, the result
    first; sizes and strides are i64, strides in elements, dtype is ``dtype_code``. The result's memory must not be
    that of an argument. ``addmm`` and ``baddbmm`` take beta and alpha. Returned is 0, or a code if torch raised: the
    result is undefined then, and the same operator called from Python says why.
    """
    if not names:
        return ""
    return _HANDLES.replace("DEVICE", str(constant("aoti_torch_device_type_cpu"))) + "".join(
        _call(name, SHIMS[name]) for name in sorted(names)
    )


def _call(name: str, shim: Shim) -> str:
    tensors, numbers = range(shim.tensors), range(shim.numbers)
    loads = "\n".join(
        f"  %p{k} = getelementptr ptr, ptr %handles, i64 {k}\n  %t{k} = load ptr, ptr %p{k}" for k in tensors
    )
    parts = {
        "SYMBOL": shim.symbol,
        "NAME": name,
        "TYPES": ", ".join(["ptr"] * shim.tensors + ["double"] * shim.numbers),
        "NUMBERS": "".join(f", double %n{k}" for k in numbers),
        "COUNT": str(shim.tensors),
        "LOADS": loads,
        "GIVEN": ", ".join([f"ptr %t{k}" for k in tensors] + [f"double %n{k}" for k in numbers]),
    }
    text = _CALL
    for word, replacement in parts.items():
        text = text.replace(word, replacement)
    return text


def dtype_code(dtype: torch.dtype) -> int:
    """torch's number of a dtype."""
    return constant(f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}")


@functools.cache
def constant(name: str) -> int:
    """What a C function of torch without arguments returns."""
    address = symbols.find(name)
    if address is None:
        raise LookupError(f"torch does not export {name}")
    return int(ctypes.CFUNCTYPE(ctypes.c_int32)(address)())


@functools.cache
def shims(engine: Engine) -> Shims:
    """What torch exports and passes its trial; the answer is kept for the process, and on disk for the machine."""
    needed = ("aoti_torch_create_tensor_from_blob", "aoti_torch_delete_tensor_object", "aoti_torch_device_type_cpu")
    if any(symbols.find(name) is None for name in (*needed, "aoti_torch_dtype_float32")):
        return Shims(problem="torch exports no functions to make tensors from C")
    names = frozenset(name for name, shim in SHIMS.items() if symbols.find(shim.symbol) is not None)
    problem = "" if len(names) == len(SHIMS) else f"torch does not export {', '.join(sorted(set(SHIMS) - names))}"
    failed = _verdict(engine, names)
    return Shims(problem=failed) if failed else Shims(names, problem)


def _verdict(engine: Engine, names: frozenset[str]) -> str:
    return kept(engine, ir(names), "shims", lambda: trial(engine, names))


def kept(engine: Engine, text: str, subject: str, verdict: Callable[[], tuple[str, bool]]) -> str:
    """A verdict, kept in the engine's cache for this machine and torch: empty, or what is wrong; and is it certain?"""
    key = engine.key(text, f"verdict on {subject}, {symbols.torch_identity()}")
    known = engine.cache.load(key) if engine.cache is not None else None
    if known is not None:
        return known.decode()
    found, certain = verdict()
    if engine.cache is not None and certain:
        engine.cache.store(key, found.encode())
    return found


class Attempt(Protocol):
    """A function with arguments and what it should return."""

    def succeeds(self) -> bool:
        """Call it; is it what it should be?"""


def tried(engine: Engine, text: str, subject: str, attempts: Callable[[Library], Sequence[tuple[str, Attempt]]]) -> str:
    """The verdict on functions of a module: what is wrong with them, or an empty string; it is kept on disk.

    Args:
        engine: compiles it, and has the cache.
        text: the module.
        subject: what is tried, for the cache.
        attempts: what is called in a child process, with names.
    """
    return kept(engine, text, subject, lambda: _in_child(lambda: attempts(engine.compile(text))))


def trial(engine: Engine, names: frozenset[str]) -> tuple[str, bool]:
    """Call each function in a child process; what is wrong, or an empty string, and whether that will not change."""
    text = ir(names) + "".join(_exported(name, SHIMS[name]) for name in sorted(names))

    def attempts() -> list[tuple[str, Attempt]]:
        library = engine.compile(text)
        return [(name, _Trial(library, name)) for name in sorted(names)]

    return _in_child(attempts)


def _in_child(attempts: Callable[[], Sequence[tuple[str, Attempt]]]) -> tuple[str, bool]:
    if not hasattr(os, "fork"):
        return "they are tried in a child made by fork, which this system does not have", True
    calls = attempts()
    with warnings.catch_warnings():
        # Python warns of forks with threads around: the child runs nothing but these calls.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 255
        try:
            _crash_quietly()
            torch.set_num_threads(1)  # a pool of threads is nothing to count on here
            code = next((k for k, (_, call) in enumerate(calls, 1) if not call.succeeds()), 0)
        finally:
            os._exit(code)
    status = _wait(child)
    if status is None:
        return f"calling them took more than {_TRIAL_S:.0f} s", False
    if os.WIFSIGNALED(status):
        return f"calling them crashed with signal {os.WTERMSIG(status)}", True
    code = os.WEXITSTATUS(status)
    return ("" if code == 0 else f"{calls[code - 1][0]} computes something else" if code < 255 else "failed"), True


def _crash_quietly() -> None:
    """No traceback on the user's terminal and no core file, should the child crash."""
    faulthandler.disable()
    import resource  # not on every system that Python runs on

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _wait(child: int) -> int | None:
    """The child's exit status; None, and the child killed, if it takes too long."""
    deadline = time.monotonic() + _TRIAL_S
    pause = 0.0005
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class _Blob(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("sizes", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
    ]


class Blobs:
    """Tensors as native code takes them; they and their sizes live as long as this object."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        sizes = [(ctypes.c_int64 * t.dim())(*t.shape) for t in tensors]
        strides = [(ctypes.c_int64 * t.dim())(*t.stride()) for t in tensors]
        self._kept = (tensors, sizes, strides)
        self.array = (_Blob * len(tensors))(
            *(
                _Blob(t.data_ptr(), t.dim(), ctypes.addressof(size), ctypes.addressof(stride), dtype_code(t.dtype))
                for t, size, stride in zip(tensors, sizes, strides, strict=True)
            )
        )


class _Trial:
    """One function with arguments and what it should return: all made before the fork."""

    def __init__(self, library: Library, name: str) -> None:
        shim = SHIMS[name]
        batch = (2,) if name.endswith("bmm") else ()
        # The second factor is transposed in memory, so that sizes and strides taken for one another show.
        factors = [_counting(*batch, 3, 4), _counting(*batch, 5, 4).transpose(-1, -2)]
        added = [_counting(*batch, 3, 5)] if shim.tensors == 4 else []
        self.numbers = [0.5, 2.0][: shim.numbers]
        product = torch.matmul(*factors)
        self.expected = product if not added else 0.5 * added[0] + 2.0 * product
        self.result = torch.zeros_like(self.expected)
        self.blobs = Blobs(self.result, *added, *factors)
        numbers = [ctypes.c_double] * shim.numbers
        self.function = library.function(f"run_{name}", ctypes.c_void_p, *numbers, result=ctypes.c_int32)

    def succeeds(self) -> bool:
        return self.function(self.blobs.array, *self.numbers) == 0 and torch.equal(self.result, self.expected)


def _counting(*sizes: int) -> torch.Tensor:
    count = 1
    for size in sizes:
        count *= size
    return torch.arange(count, dtype=torch.float32).reshape(sizes) % 7 - 3  # products are exact in any order


def _exported(name: str, shim: Shim) -> str:
    numbers = "".join(f", double %n{k}" for k in range(shim.numbers))
    return f"""
define i32 @run_{name}(ptr %blobs{numbers}) {{
  %code = call i32 @jitney_{name}(ptr %blobs{numbers})
  ret i32 %code
}}
"""
