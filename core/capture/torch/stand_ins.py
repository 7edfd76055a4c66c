"""Which classes the stand-ins for tensors have: FakeTensor, and subclasses that wrap FakeTensors."""

from __future__ import annotations

from typing import Any

from jitney.torch_compat import torch_private

# A real tensor of a subclass is never the interpreter's value: what comes from outside is adopted.
STAND_INS: set[type] = {torch_private.FakeTensor}


def is_stand_in(value: Any) -> bool:
    """Is it a tensor as the interpreter knows them? (Parameters' stand-ins are FakeTensors, too.)"""
    return type(value) in STAND_INS or isinstance(value, torch_private.FakeTensor)
