"""Kinds of Python values that capture tells apart."""

from __future__ import annotations

import types
import typing
from typing import Any

import torch

from jitney._util.ownership import trusted_function
from jitney.torch_compat import torch_private

ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
GENERIC = type(typing.Generic[typing.TypeVar("T")])  # type: ignore[index]
ALIASES = (types.UnionType, types.GenericAlias, GENERIC)
SPECIAL_FORMS = (type(typing.Optional), type(typing.List))  # noqa: UP006
METADATA = (torch.dtype, torch.layout, torch.memory_format)
CODE_LIKE = (
    type,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.CodeType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    property,
    staticmethod,
    classmethod,
)
# What names in modules of torch's and Python's hold for good.
UNCHANGING = (
    type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, torch.dtype, torch.layout,
    torch.memory_format,
)  # fmt: skip
# Stand-ins for tensors: FakeTensor, and subclasses that wrap FakeTensors. A real tensor of a subclass is never the
# interpreter's value: what comes from outside is adopted.
STAND_INS: set[type] = {torch_private.FakeTensor}
# Tensors without a class of the program's own.
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
ARRAYS: set[type] = set()  # the class of stand-ins for NumPy's arrays


def is_stand_in(value: Any) -> bool:
    """Is it a tensor as the interpreter knows them? (Parameters' stand-ins are FakeTensors, too.)"""
    return type(value) in STAND_INS or isinstance(value, torch_private.FakeTensor)


def hashed_in_python(value: Any) -> bool:
    """Does hashing the value run Python that is the program's, or that was generated for it?"""
    found: Any = type(value).__hash__
    if type(found) is not types.FunctionType:
        return type(value) is tuple and any(map(hashed_in_python, value))
    return not trusted_function(found)
