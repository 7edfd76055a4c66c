"""Other dtypes, and copies."""

from __future__ import annotations

import torch

from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer

aten = torch.ops.aten


@rule(aten._to_copy.default)
def to_copy(w: Writer, call: Call) -> Value:
    """Another dtype; a layout in memory is made when results are handed over."""
    if call["layout"] not in (None, torch.strided) or call["pin_memory"]:
        raise Refused("another layout, or pinned memory")
    x = w.value(call["self"])
    return w.cast(x, call.out.dtype) if x.dtype is not call.out.dtype else w.op("Identity", x)


@rule(aten.clone.default, aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
def same(w: Writer, call: Call) -> Value:
    """Nothing is written to, so the tensor itself will do."""
    return w.op("Identity", w.value(call["self"]))
