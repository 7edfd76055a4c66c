"""Kernels of one row: a small reduction to one number, what it is of, and what goes on with it.

    s = sum[i < 2048] x[i] * x[i]            for row < 1:
    y[i] = x[i] / sqrt(s)                        s = sum[i < 2048] x[i] * x[i]
                                                 y[i] = x[i] / sqrt(s)

Of many elements, threads of many programs each take a part, and what goes on with the number is a kernel after that.
Few are reduced by one program sooner than a second kernel is launched.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jitney_lowering.index import Var, index, product
from jitney_lowering.ir.loops import SCATTER, Computed, Step
from jitney_lowering.ir.values import Value, cost
from jitney_lowering.policy import Policy

ROW = Var("row", index(1))  # the only loop of one iteration that there is after ``simplify.clean``


def is_small(steps: Sequence[Computed], policy: Policy) -> bool:
    """Has one program little to do for all of these?"""
    return all(s.kind != SCATTER for s in steps) and is_short([(s.loops, s.value) for s in steps], policy)


def is_short(parts: Sequence[tuple[Sequence[Var], Value]], policy: Policy) -> bool:
    """Has one program little to do for a row of these loops, each with what it computes?

    So it has if the longest has few iterations, with all operations counted as the elements that could be loaded
    meanwhile.
    """
    if not policy.single_row:
        return False
    sizes = [_size(tuple(loops), value) for loops, value in parts]
    longest = max((count for count, _ in sizes), default=0)
    return longest + sum(n for _, n in sizes) / (4 * max(policy.recompute, 1)) <= policy.single_row


@functools.lru_cache(maxsize=1 << 12)
def _size(loops: tuple[Var, ...], value: Value) -> tuple[float, float]:
    """Iterations, and operations in all of them; infinite where that depends on symbolic sizes."""
    count = product(loops).value
    return (math.inf, math.inf) if count is None else (count, count * cost(value))


def is_total(step: Computed) -> bool:
    """Does it reduce all that it goes through?"""
    return bool(step.reduced) and not step.vars


def widest(steps: Iterable[Step], policy: Policy) -> int:
    """How many small reductions to a number there are, at most, that have as many of such before them."""
    before: dict[str, int] = {}  # buffer -> reductions in a row
    counts: Counter[int] = Counter()
    for step in steps:
        level = max((before.get(name, 0) for name in step.reads), default=0)
        if isinstance(step, Computed) and is_total(step) and is_small([step], policy):
            level += 1
            counts[level] += 1
        before |= dict.fromkeys(step.writes, level)
    return max(counts.values(), default=0)


def with_row(step: Computed) -> Computed:
    """The step in the one row."""
    order = (ROW, *step.loops)
    return replace(step, vars=(ROW, *step.vars), order=order)
