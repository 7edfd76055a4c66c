"""Images made larger: each element repeated a whole number of times."""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.tensor import Shape, Tensor
from jitney_lowering.index import Index
from jitney_lowering.ir.values import Value
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
RESAMPLING: dict[Any, Rule] = {}
_EXACT = (1, 2, 4, 8, 16)  # whose reciprocals floats hold
_MOST = 1 << 20  # a dimension for which all elements are tried


resampling = registering(RESAMPLING)


@resampling(aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)
def nearest(call: Call) -> Tensor:
    """The element below, where eager's float arithmetic gives just that."""
    x, _, *scales = call.args
    kept = len(x.size) - len(scales)
    times = [_times(old, new, scale) for old, new, scale in zip(x.size[kept:], call.size[kept:], scales, strict=True)]
    x = call.builder.spread(x)

    def element(at: Shape) -> Value:
        return x.load((*at[:kept], *(i // n for i, n in zip(at[kept:], times, strict=True))))

    return call.result(element)


def _times(old: Index, new: Index, scale: Any) -> int:
    """How often each element appears."""
    if scale is not None and not isinstance(scale, (int, float)):
        raise NoRule("a symbolic scale")
    for n in _EXACT:
        if new is old * n and (scale is None or scale == n):
            return n
    if old.value is None or new.value is None or not old.value or new.value % old.value or new.value > _MOST:
        raise NoRule("a scale that is no whole number")
    n = new.value // old.value
    step = torch.tensor(1.0 / scale if scale is not None and scale > 0 else old.value / new.value, dtype=torch.float32)
    places = torch.arange(new.value)
    found = (places.to(torch.float32) * step).floor().to(torch.int64).clamp(max=old.value - 1)
    if not torch.equal(found, places // n):
        raise NoRule("a scale that eager rounds otherwise")
    return n
