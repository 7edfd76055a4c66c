"""From ATen overloads to rules that lower them: one table, put together of one for each kind of operator."""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import MOVES, PAIRS, Rule

# Their decorators fill the table of pointwise rules.
from jitney_lowering.rules import activations as activations
from jitney_lowering.rules import arithmetic as arithmetic
from jitney_lowering.rules import comparisons as comparisons
from jitney_lowering.rules import losses as losses
from jitney_lowering.rules import quotients as quotients
from jitney_lowering.rules import random as random
from jitney_lowering.rules import special_functions as special_functions
from jitney_lowering.rules.bags import BAGS
from jitney_lowering.rules.complex_numbers import COMPLEX_RULES, LIKE_REAL
from jitney_lowering.rules.convolutions import CONVOLUTIONS
from jitney_lowering.rules.creation import CREATION
from jitney_lowering.rules.gathers import GATHERS
from jitney_lowering.rules.grids import GRIDS
from jitney_lowering.rules.joins import JOINS
from jitney_lowering.rules.norms import NORMS
from jitney_lowering.rules.orders import ORDERS
from jitney_lowering.rules.pointwise import POINTWISE
from jitney_lowering.rules.pool_gradients import POOL_GRADIENTS
from jitney_lowering.rules.pools import POOLS
from jitney_lowering.rules.reductions import REDUCTIONS
from jitney_lowering.rules.resampling import RESAMPLING
from jitney_lowering.rules.scans import SCANS
from jitney_lowering.rules.scatters import SCATTERS
from jitney_lowering.rules.searches import SEARCHES
from jitney_lowering.rules.slices import SLICES
from jitney_lowering.rules.vectors import VECTORS
from jitney_lowering.rules.views import COPIES, VIEWS
from jitney_lowering.rules.windows import WINDOWS

RULES: dict[Any, Rule] = {
    **POINTWISE,
    **VIEWS,
    **COPIES,
    **REDUCTIONS,
    **SCANS,
    **ORDERS,
    **CREATION,
    **JOINS,
    **SLICES,
    **GATHERS,
    **SCATTERS,
    **NORMS,
    **POOLS,
    **POOL_GRADIENTS,
    **RESAMPLING,
    **WINDOWS,
    **BAGS,
    **GRIDS,
    **SEARCHES,
    **VECTORS,
    **CONVOLUTIONS,
}

aten, prims = torch.ops.aten, torch.ops.prims
MOVES |= {
    *VIEWS, aten.repeat.default, aten.roll.default, aten.cat.default, aten.stack.default, aten.constant_pad_nd.default,
    aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default, aten.clone.default,
    aten.lift_fresh_copy.default,
    aten._to_copy.default, prims.convert_element_type.default, aten.copy.default, aten.zeros.default,
    aten.zeros_like.default, aten.new_zeros.default, aten.zero.default, aten.full.default, aten.full_like.default,
    aten.new_full.default, aten.fill.Scalar, aten.fill.Tensor, aten.where.self,
}  # fmt: skip
PAIRS |= {*COMPLEX_RULES, *LIKE_REAL}

__all__ = ["COMPLEX_RULES", "RULES", "VIEWS"]
