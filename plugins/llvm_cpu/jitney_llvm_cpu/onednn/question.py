"""A convolution that native code asks Python for."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from torch import Tensor

from jitney_llvm_cpu.onednn import native

IDENTITY: tuple[Any, ...] = ("none", [], "")  # what is applied to the result: nothing
_TENSORS = 3


class Question:
    """See ``makers.ir`` for ``data``, ``desc`` and ``made``."""

    def __init__(self, data: int, desc: int, made: int) -> None:
        functions = native.functions()
        assert functions is not None
        self._functions = functions
        self._given = (data, desc, made)
        lists, at = [], desc
        for kind in ("stride", "padding", "dilation", "", "output_padding", ""):
            count = ctypes.c_int64.from_address(at).value if kind else 1
            at += 8 * bool(kind)
            lists.append(list((ctypes.c_int64 * count).from_address(at)))
            at += 8 * count
        self.stride, self.padding, self.dilation, _, _, (self.groups,) = lists
        self._after = ctypes.c_void_p()
        room = native.handles(_TENSORS)
        if functions.tensors(data, at, _TENSORS, native.address_of(room), ctypes.addressof(self._after)):
            raise RuntimeError("llvm_cpu: torch makes no tensors of what native code describes")
        self.x, self.weight, *rest = native.tensors_of(handle for handle in room if handle)
        self.bias = rest[0] if rest else None

    @functools.cached_property
    def arguments(self) -> tuple[Any, ...]:
        """Of ``mkldnn._convolution_pointwise``."""
        return self.x, self.weight, self.bias, self.padding, self.stride, self.dilation, self.groups, *IDENTITY

    @property
    def bytes(self) -> int:
        """Of the weights."""
        return self.weight.nbytes

    def adopt(self, result: Tensor) -> None:
        """This is the result."""
        after, made = self._after.value, self._given[2]
        if self._functions.adopt(native.handle_of(result), after, made):
            raise RuntimeError("llvm_cpu: torch makes no tensor with the strides that are wanted")

    def run(self, state: native.State, threads: int) -> bool:
        """Have native code make the result, with what another state knows; False if that is not enough."""
        code = self._functions.packed(ctypes.addressof(state), threads, *self._given)
        if code not in (0, native.UNANSWERED):
            raise RuntimeError("llvm_cpu: torch refused a convolution")
        return code == 0
