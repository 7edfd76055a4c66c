"""What operators on elements share: promotion, half types, numbers among tensors."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx

from jitney_onnxruntime.dtypes import HALF, computing
from jitney_onnxruntime.table import Call
from jitney_onnxruntime.writer import Refused, Value, Writer


def promoted(call: Call, *names: str) -> torch.dtype:
    """The dtype to which eager brings these arguments."""
    given = [_sample(call.given(name)) for name in names]
    if len(given) == 1:
        return given[0].dtype
    return functools.reduce(torch.result_type, given[1:], given[0]) if len(given) == 2 else _of_three(given)


def _sample(value: Any) -> Any:
    """Something of the same place in torch's promotion: tensors with dimensions, tensors without, numbers."""
    if isinstance(value, torch.Tensor):
        return torch.empty((1,) if value.dim() else (), dtype=value.dtype)
    return 1 if isinstance(value, torch.SymInt) else value


def _of_three(given: list[Any]) -> torch.dtype:
    dtypes = {value.dtype for value in given if isinstance(value, torch.Tensor)}
    if len(dtypes) != 1:
        raise Refused("several dtypes")
    return dtypes.pop()


def operands(w: Writer, call: Call, *names: str, common: torch.dtype | None = None, whole: str = "") -> list[Value]:
    """Arguments as eager's kernel computes with them: promoted, half types as float32.

    Args:
        names: of the arguments.
        common: the dtype to which eager brings them; found by promotion without.
        whole: the argument that eager's kernel takes as float32 beside half types, and does not round to one, if it
            is a number or a tensor without dimensions.
    """
    common = common or promoted(call, *names)
    found = []
    for name in names:
        value = call[name]
        if isinstance(value, fx.Node) and isinstance(value.meta["val"], torch.Tensor):
            fake = value.meta["val"]
            if common in HALF and fake.dtype is not common and (name != whole or fake.dim()):
                raise Refused("an operand of another dtype beside half types, which eager rounds first")
            found.append(w.cast(w.value(value), computing(common)))
        else:
            found.append(w.number(value, computing(common), None if name == whole else common))
    return found


def finished(w: Writer, call: Call, value: Value) -> Value:
    """The result in the dtype that eager gives."""
    return w.cast(value, call.out.dtype)


def wide(w: Writer, call: Call, name: str, common: torch.dtype | None = None) -> Value:
    """One argument in the dtype in which its operator computes."""
    return operands(w, call, name, common=common)[0]


def one(w: Writer, like: Value, number: float = 1.0) -> Value:
    """A constant beside a tensor."""
    return w.constant(number, like.dtype)
