"""ONNX nodes as they are written, node by node of an ATen graph; nothing here needs the package onnx."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney_onnxruntime.dtypes import ELEMENT, HALF, INTEGERS
from jitney_onnxruntime.kernels import KERNELS


class Refused(Exception):
    """An operator that is left to eager, and why."""


@dataclass(frozen=True)
class Value:
    """A tensor of the ONNX graph."""

    name: str
    dtype: torch.dtype


@dataclass(frozen=True)
class Step:
    """A node of the ONNX graph; an empty name among the inputs is one that is left out."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


Size = int | torch.SymInt


class Writer:
    """Collects the nodes, constants and sizes of one ONNX graph.

    Args:
        scratch: only to see whether rules refuse: tensors need not be known.
    """

    def __init__(self, *, scratch: bool = False) -> None:
        self.scratch = scratch
        self.steps: list[Step] = []
        self.known: dict[fx.Node, Any] = {}  # a Value, or a tuple of them
        self.constants: dict[str, torch.Tensor] = {}
        self.sizes_given: dict[str, tuple[Size, ...]] = {}  # inputs that hold sizes, known at each call
        self._constant_names: dict[tuple[Any, ...], Value] = {}
        self._size_names: dict[tuple[Any, ...], Value] = {}
        self._count = 0

    def fresh(self) -> str:
        """A name that is not taken."""
        self._count += 1
        return f"v{self._count}"

    def several(
        self, kind: str, inputs: Sequence[Value | None], outputs: Sequence[torch.dtype], on: int = 0, **attributes: Any
    ) -> tuple[Value, ...]:
        """A node with several outputs; see ``op``."""
        given = inputs[on]
        if given is not None and given.dtype not in KERNELS[kind]:
            raise Refused(f"ONNX Runtime's {kind} of {given.dtype}")
        made = tuple(Value(self.fresh(), dtype) for dtype in outputs)
        names = tuple(v.name if v is not None else "" for v in inputs)
        self.steps.append(Step(kind, names, tuple(v.name for v in made), attributes))
        return made

    def op(
        self, kind: str, *inputs: Value | None, dtype: torch.dtype | None = None, on: int = 0, **attributes: Any
    ) -> Value:
        """The result of an ONNX node.

        Args:
            kind: the ONNX operator.
            inputs: its tensors; None for one that is left out.
            dtype: the result's; that of the input ``on`` without.
            on: the input whose dtype chooses the kernel.
            attributes: the node's.

        Raises:
            Refused: there is no kernel for this dtype, or none as good as eager's.
        """
        given = inputs[on]
        assert given is not None
        return self.several(kind, inputs, [dtype or given.dtype], on, **attributes)[0]

    def constant(self, value: Any, dtype: torch.dtype) -> Value:
        """A number, or a list of integers, as a constant."""
        tensor = torch.tensor(value, dtype=dtype)
        key = (tensor.shape, dtype, raw(tensor))
        if key not in self._constant_names:
            self._constant_names[key] = Value(self.fresh(), dtype)
            self.constants[self._constant_names[key].name] = tensor
        return self._constant_names[key]

    def sizes(self, sizes: Sequence[Any]) -> Value:
        """Sizes as a tensor of int64 with one dimension: a constant, or an input that the caller fills."""
        plain = [number_of(size) for size in sizes]
        if all(type(size) is int for size in plain):
            return self.constant(plain, torch.int64)
        key = tuple(size.node.expr if isinstance(size, torch.SymInt) else size for size in plain)
        if key not in self._size_names:
            made = Value(f"sizes{len(self._size_names)}", torch.int64)
            self._size_names[key] = made
            self.sizes_given[made.name] = tuple(plain)
        return self._size_names[key]

    def value(self, node: Any) -> Value:
        """The tensor that an FX node has become."""
        if self.scratch:
            return Value(node.name, node.meta["val"].dtype)
        found = self.known[node]
        assert isinstance(found, Value)
        return found

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """The tensor in another dtype; itself if it has it."""
        from_dtype = value.dtype
        return value if from_dtype is dtype else self.op("Cast", value, dtype=dtype, to=ELEMENT[dtype])

    def number(self, value: Any, dtype: torch.dtype, rounded: torch.dtype | None = None) -> Value:
        """A Python number, or a symbolic size, as a tensor without dimensions.

        Args:
            value: a number, or an FX node that is one.
            dtype: the tensor's.
            rounded: the dtype to which eager rounds it before.
        """
        value = number_of(value)
        if isinstance(value, torch.SymInt):
            if rounded is not None and rounded in HALF:
                raise Refused("a size as a number of a half type")
            if dtype in INTEGERS and dtype is not torch.int64:
                raise Refused(f"a size as a number of {dtype}, which may not hold it")
            scalar = self.reshaped(self.sizes([value]), [])
            return self.cast(scalar, dtype)
        if not isinstance(value, (bool, int, float)):
            raise Refused(f"a {type(value).__name__} as a number")
        return self.constant(_fitting(value, rounded or dtype), dtype)

    def reshaped(self, value: Value, sizes: Sequence[Any]) -> Value:
        """The tensor with other sizes, of which none is 0."""
        return self.op("Reshape", value, self.sizes(sizes))

    def filled(self, number: Value, sizes: Sequence[Any]) -> Value:
        """A tensor of one number."""
        return self.op("Expand", number, self.sizes(sizes)) if len(sizes) else number


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def number_of(value: Any) -> Any:
    """What an FX node stands for, if it is a number: an int or SymInt."""
    if isinstance(value, fx.Node):
        value = value.meta["val"]
    if isinstance(value, torch.SymInt):
        known = value.node.maybe_as_int()
        return value if known is None else known
    return value


def _fitting(value: bool | int | float, dtype: torch.dtype) -> bool | int | float:
    """The number as a dtype has it."""
    if dtype in INTEGERS:
        limits = torch.iinfo(dtype)
        if value != value or int(value) != value or not limits.min <= value <= limits.max:
            raise Refused(f"{value} as {dtype}")
        return int(value)
    if dtype is torch.bool:
        return bool(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        raise Refused(f"{value} as {dtype}")
    made = float(torch.tensor(float(value), dtype=torch.float64).to(dtype))
    if math.isinf(made) and not math.isinf(value):
        raise Refused(f"{value} is beyond {dtype}")
    return made
