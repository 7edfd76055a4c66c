"""Private names of torch's ``flex_attention``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention as _operator
from torch.nn.attention.flex_attention import _get_mod_type, _ModificationType, _validate_device

# What flex_attention calls with its score and mask functions, after it has checked all that it was given.
OPERATOR: Any = _operator
# Refuses gradients on CPUs: torch's kernel there has none.
refuse_devices: Callable[..., None] = _validate_device
# Is a function one of scores, or of masks?
kind_of: Callable[[Any], Any] = _get_mod_type
SCORE: Any = _ModificationType.SCORE_MOD
# A softmax whose rows of minus infinities are zeros.
safe_softmax: Callable[..., torch.Tensor] = torch._safe_softmax
