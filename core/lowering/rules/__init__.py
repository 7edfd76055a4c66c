"""From ATen overloads to rules that lower them: one table, put together of one for each kind of operator."""

from __future__ import annotations

from typing import Any

from jitney.lowering.call import Rule

# Their decorators fill the table of pointwise rules.
from jitney.lowering.rules import activations as activations
from jitney.lowering.rules import arithmetic as arithmetic
from jitney.lowering.rules import comparisons as comparisons
from jitney.lowering.rules import losses as losses
from jitney.lowering.rules import quotients as quotients
from jitney.lowering.rules import random as random
from jitney.lowering.rules.creation import CREATION
from jitney.lowering.rules.gathers import GATHERS
from jitney.lowering.rules.joins import JOINS
from jitney.lowering.rules.norms import NORMS
from jitney.lowering.rules.pointwise import POINTWISE
from jitney.lowering.rules.pools import POOLS
from jitney.lowering.rules.reductions import REDUCTIONS
from jitney.lowering.rules.resampling import RESAMPLING
from jitney.lowering.rules.scans import SCANS
from jitney.lowering.rules.views import COPIES, VIEWS

RULES: dict[Any, Rule] = {
    **POINTWISE,
    **VIEWS,
    **COPIES,
    **REDUCTIONS,
    **SCANS,
    **CREATION,
    **JOINS,
    **GATHERS,
    **NORMS,
    **POOLS,
    **RESAMPLING,
}

__all__ = ["RULES", "VIEWS"]
