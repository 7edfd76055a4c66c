"""Which nodes XLA gets: those with a rule, whose numbers are eager's."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from jitney_xla.exchange import DTYPES
from jitney_xla.rules import RULES
from jitney_xla.rules.call import HALVES, fake, first, leaves
from jitney_xla.rules.kinds import dtypes_of

aten = torch.ops.aten
SIZES = {aten.sym_size.int, aten.sym_numel.default, aten.sym_stride.int, aten.sym_storage_offset.default}
"""What asks a tensor for numbers that are known before anything is computed."""


def supports(node: fx.Node) -> bool:
    """May XLA have the node? Else it runs eagerly."""
    if is_size(node):
        return all(n.op == "placeholder" or not isinstance(fake(n), torch.Tensor) for n in node.all_input_nodes)
    if not all(_known(v) for n in [node, *node.all_input_nodes] for v in leaves(n.meta.get("val"))):
        return False
    if node.target is operator.getitem:
        return True
    rule = RULES.get(node.target)
    return rule is not None and _numbers_fit(node) and (rule.only is None or rule.only(node))


def is_size(node: fx.Node) -> bool:
    """Is it a number that is known before anything is computed?"""
    if not isinstance(node.meta.get("val"), (int, torch.SymInt)) or isinstance(node.meta["val"], bool):
        return False
    return node.target in SIZES or not isinstance(node.target, torch._ops.OpOverload)


def _known(value: Any) -> bool:
    """A value of a kind that goes through: tensors that lie in memory, of dtypes that XLA has, and sizes."""
    if isinstance(value, torch.Tensor):
        plain = value.layout is torch.strided and not value.is_neg() and not value.is_conj()
        return plain and value.dtype in DTYPES and value.device.type == "cpu" and not value.is_quantized
    return value is None or (isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool))


def _numbers_fit(node: fx.Node) -> bool:
    """Are its numbers such that its dtypes hold them? Eager raises, or wraps them around, in its own ways."""
    numbers: list[Any] = [a for a in (*node.args, *node.kwargs.values()) if type(a) in (int, float)]
    dtypes = dtypes_of(node)
    floating = {d for d in dtypes if d.is_floating_point}
    result = first(node.meta["val"]).dtype
    if result is torch.bool or result.is_floating_point:
        limits = [torch.finfo(torch.float32 if d in HALVES else d) for d in floating or [torch.float32]]
        if not all(_is_held(n, limit) for n in numbers for limit in limits if isinstance(n, float)):
            return False
    elif any(isinstance(n, float) for n in numbers):
        return False
    if floating:
        return True
    narrow = [torch.iinfo(d) for d in dtypes if d is not torch.bool] or [torch.iinfo(torch.int64)]
    return all(limit.min <= n <= limit.max for n in numbers for limit in narrow if isinstance(n, int))


def _is_held(value: float, limit: torch.finfo) -> bool:
    """Not beyond the largest number; and not below the smallest normal one, which is zero for XLA."""
    return value == 0 or not math.isfinite(value) or limit.tiny <= abs(value) <= limit.max
