"""``F.ctc_loss``: how large its own table is depends on lengths, which are data; its result does not."""

from __future__ import annotations

from typing import Any

import torch

from jitney.capture.kinds import is_stand_in
from jitney.capture.python.c_boundary import expose
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.sequences.opaque import like, recorded

special = FunctionTable()

CTC = torch.nn.functional.ctc_loss
NAMES = ("log_probs", "targets", "input_lengths", "target_lengths", "blank", "reduction", "zero_infinity")


@special(CTC)
def _ctc_loss(vm: Any, args: Args, kwargs: Kwargs) -> Any:
    args, kwargs = [expose(vm, a) for a in args], {name: expose(vm, value) for name, value in kwargs.items()}
    named: dict[str, Any] = {"reduction": "mean", **dict(zip(NAMES, args, strict=False)), **kwargs}
    scores, reduction = named.get("log_probs"), named["reduction"]
    plain = {*NAMES[:4]} <= named.keys() <= {*NAMES} and reduction in ("none", "mean", "sum")
    if scores is None or not plain or not _is_of_scores(scores):
        return vm.native(CTC, *args, **kwargs)
    sizes = scores.shape[1:2] if reduction == "none" and scores.dim() == 3 else ()
    return recorded(vm, CTC, tuple(args), kwargs, lambda: like(scores, sizes))


def _is_of_scores(value: Any) -> bool:
    return is_stand_in(value) and value.dim() in (2, 3) and value.dtype in (torch.float32, torch.float64)
