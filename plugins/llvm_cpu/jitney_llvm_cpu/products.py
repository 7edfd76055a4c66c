"""Which operators are called from native code, and how: matrix products whose shim torch passed on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney_llvm_cpu.emit.calls import Argument, Call
from jitney_llvm_cpu.shims import SHIMS, dtype_code
from jitney_lowering.index import index
from jitney_lowering.ir import Extern, Number, Program, Strided

NATIVE = "called from native code"  # the reason that ``explain`` gives

_aten = torch.ops.aten
_PRODUCTS = {
    _aten.mm.default: "mm",
    _aten.bmm.default: "bmm",
    _aten.addmm.default: "addmm",
    _aten.baddbmm.default: "baddbmm",
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def native_call(names: frozenset[str]) -> Callable[[Extern, Program], bool]:
    """Says whether an operator is called natively; ``names``: the shims that may be used (see ``Shims``)."""
    return lambda extern, program: _PRODUCTS.get(extern.target) in names and _call(extern, program) is not None


def call_of(extern: Extern, program: Program) -> Call:
    """The call of an operator that is called natively."""
    made = _call(extern, program)
    assert made is not None
    return made


def _call(extern: Extern, program: Program) -> Call | None:
    """The call; None for what the shims do not take: other dtypes, numbers that are not known before the call."""
    name = _PRODUCTS[extern.target]
    (made,) = extern.buffers
    assert made is not None
    buffer = program.buffers[made]
    whole = Strided(made, buffer.dtype, buffer.size, buffer.stride, index(0))
    tensors: list[Any] = [whole, *extern.args]
    given = {"beta": 1, "alpha": 1, **extern.kwargs}
    numbers = [given.pop(word) for word in ("beta", "alpha")][: SHIMS[name].numbers]
    if given or len(tensors) != SHIMS[name].tensors or not all(type(n) in (int, float) for n in numbers):
        return None
    if not all(_is_taken(t, buffer.dtype) for t in tensors) or buffer.device.type != "cpu":
        return None
    return Call(name, tuple(map(argument, tensors)), tuple(float(n) for n in numbers))


def _is_taken(tensor: Any, dtype: torch.dtype) -> bool:
    plain = isinstance(tensor, Strided) and not isinstance(tensor, Number)
    return plain and tensor.dtype is dtype and dtype in DTYPES


def argument(tensor: Strided) -> Argument:
    """A tensor as native code describes it."""
    at = tensor.offset * tensor.dtype.itemsize
    return Argument(tensor.buffer, at, tensor.size, tensor.stride, dtype_code(tensor.dtype))


def shims_of(calls: Sequence[object]) -> frozenset[str]:
    """The shims that these items use."""
    return frozenset(item.name for item in calls if isinstance(item, Call))
