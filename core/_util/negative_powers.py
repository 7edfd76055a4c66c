"""Powers of negative numbers in graphs of torch.fx, whose code would be ``-1 ** n``: Python's ``-(1 ** n)``."""

from __future__ import annotations

import math
import operator
from typing import Any


def as_a_call(target: Any, args: tuple[Any, ...]) -> Any:
    """The target of a node: the builtin ``pow``, written as a call, for ``operator.pow`` of a negative number."""
    if target is operator.pow and type(args[0]) in (int, float) and math.copysign(1, args[0]) < 0:
        return pow
    return target
