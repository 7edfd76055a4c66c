"""Kernels of one row: a small reduction to one number, what it is of, and what goes on with it.

    s = sum[i < 2048] x[i] * x[i]            for row < 1:
    y[i] = x[i] / sqrt(s)                        s = sum[i < 2048] x[i] * x[i]
                                                 y[i] = x[i] / sqrt(s)

Of many elements, threads of many programs each take a part, and what goes on with the number is a kernel after that.
Few are reduced by one program sooner than a second kernel is launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jitney_lowering.index import Var, index, product
from jitney_lowering.ir.loops import SCATTER, Computed
from jitney_lowering.ir.values import Value, cost
from jitney_lowering.policy import Policy

ROW = Var("row", index(1))  # the only loop of one iteration that there is after ``simplify.clean``


def is_small(step: Computed, policy: Policy) -> bool:
    """Has one program little to do for all of it?"""
    return step.kind != SCATTER and is_short(step.loops, step.value, policy)


def is_short(loops: Sequence[Var], value: Value, policy: Policy) -> bool:
    """Has one program little to do for these loops? Operations count as the elements that are loaded meanwhile."""
    count = product(loops).value
    if not policy.single_row or count is None:
        return False
    each = max(1, cost(value) / (4 * policy.recompute)) if policy.recompute else 1
    return count * each <= policy.single_row


def is_total(step: Computed) -> bool:
    """Does it reduce all that it goes through?"""
    return bool(step.reduced) and not step.vars


def with_row(step: Computed) -> Computed:
    """The step in the one row."""
    order = (ROW, *step.loops)
    return replace(step, vars=(ROW, *step.vars), order=order)
