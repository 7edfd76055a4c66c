"""Which nodes XLA gets: those with a rule, whose numbers are eager's."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from jitney_xla.exchange import DTYPES
from jitney_xla.rules import RULES
from jitney_xla.rules.call import fake

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


def leaves(value: Any) -> Iterator[Any]:
    """What is in lists of values."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def _known(value: Any) -> bool:
    """A value of a kind that goes through: tensors that lie in memory, of dtypes that XLA has, and sizes."""
    if isinstance(value, torch.Tensor):
        plain = value.layout is torch.strided and not value.is_neg() and not value.is_conj()
        return plain and value.dtype in DTYPES and value.device.type == "cpu" and not value.is_quantized
    return value is None or (isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool))


def _numbers_fit(node: fx.Node) -> bool:
    """Are numbers beside integers within their range? Eager raises, or wraps them around, in its own ways."""
    vals = [v for n in node.all_input_nodes for v in leaves(n.meta.get("val")) if isinstance(v, torch.Tensor)]
    if not vals or any(v.dtype.is_floating_point for v in vals):
        return True
    numbers = [a for a in node.args if isinstance(a, int) and not isinstance(a, bool)]
    narrow = [v.dtype for v in vals if v.dtype is not torch.bool]
    low = max((torch.iinfo(d).min for d in narrow), default=-(2**63))
    high = min((torch.iinfo(d).max for d in narrow), default=2**63 - 1)
    return all(low <= n <= high for n in numbers)
