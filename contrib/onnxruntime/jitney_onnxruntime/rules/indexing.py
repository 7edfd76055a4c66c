"""Elements and rows chosen by indices."""

from __future__ import annotations

import torch
from torch import fx

from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer

aten = torch.ops.aten
NOWHERE = 2**62  # beyond any tensor: ONNX Runtime raises, and the graph runs in eager, which says it better


def from_the_front(w: Writer, index: Value) -> Value:
    """Indices with negative ones, which these operators refuse in eager, made such as ONNX Runtime refuses."""
    index = w.cast(index, torch.int64)
    negative = w.op("Less", index, w.constant(0, torch.int64), dtype=torch.bool)
    return w.op("Where", negative, w.constant(NOWHERE, torch.int64), index, on=1)


@rule(aten.embedding.default)
def embedding(w: Writer, call: Call) -> Value:
    """Rows of a matrix."""
    return w.op("Gather", w.value(call["weight"]), from_the_front(w, w.value(call["indices"])), axis=0)


@rule(aten.index_select.default)
def index_select(w: Writer, call: Call) -> Value:
    """Places of one dimension."""
    if not call.out.dim() or call.fake("index").dim() != 1:
        raise Refused("of a number")
    index = from_the_front(w, w.value(call["index"]))
    return w.op("Gather", w.value(call["self"]), index, axis=call["dim"] % call.out.dim())


@rule(aten.gather.default)
def gather(w: Writer, call: Call) -> Value:
    """One element for each index."""
    if not call.out.dim() or call.fake("self").dim() != call.out.dim():
        raise Refused("of a number")
    index = from_the_front(w, w.value(call["index"]))
    return w.op("GatherElements", w.value(call["self"]), index, axis=call["dim"] % call.out.dim())


@rule(aten.index.Tensor)
def index(w: Writer, call: Call) -> Value:
    """Indices for one dimension, or for each of the first ones; negative ones count from the end."""
    given = [(dim, part) for dim, part in enumerate(call["indices"]) if isinstance(part, fx.Node)]
    if not given or any(part.meta["val"].dtype not in (torch.int32, torch.int64) for _, part in given):
        raise Refused("an index that is a mask")
    if len(given) == 1:
        ((dim, part),) = given
        return w.op("Gather", w.value(call["self"]), w.value(part), axis=dim)
    if [dim for dim, _ in given] != list(range(len(given))):
        raise Refused("several indices that are not the first ones")
    shape = call.out.shape[: max(part.meta["val"].dim() for _, part in given)]
    parts = [w.filled(w.cast(w.value(part), torch.int64), shape) for _, part in given]
    places = w.op("Concat", *[w.reshaped(part, [*shape, 1]) for part in parts], axis=len(shape))
    return w.op("GatherND", w.value(call["self"]), places)
