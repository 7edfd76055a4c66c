"""Which ATen operators are taken apart before a graph is lowered, and how.

Each function here computes in the precision and, but for the order of sums, with the formula of eager's kernel:
float16 and bfloat16 in float32, rounded once at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jitney_lowering.decomposition import convolutions as convolutions
from jitney_lowering.decomposition import distances as distances
from jitney_lowering.decomposition import group_norms as group_norms
from jitney_lowering.decomposition import losses as losses
from jitney_lowering.decomposition import misc as misc
from jitney_lowering.decomposition import norms as norms
from jitney_lowering.decomposition import pools as pools
from jitney_lowering.decomposition import products as products
from jitney_lowering.decomposition import softmax as softmax
from jitney_lowering.decomposition import windows as windows
from jitney_lowering.decomposition.foreach import foreach
from jitney_lowering.decomposition.orders import SELECTIONS, SORTS
from jitney_lowering.decomposition.random import RANDOM
from jitney_lowering.decomposition.table import TABLE, from_torch, laid_out_as


@functools.cache
def _rules() -> dict[Any, Callable[..., Any]]:
    """Whatever is asked for: backends that share a graph have the same rule for an operator, not two that are alike."""
    return {**foreach(), **{op: laid_out_as(op, rule) for op, rule in {**from_torch(), **TABLE}.items()}}


@functools.cache
def decompositions(
    *, fallback_random: bool = True, relaxed_math: bool = False, first_of_equals: bool = False
) -> Mapping[Any, Callable[..., Any]]:
    """A table as in ``torch._decomp``: operator -> a function of other operators.

    Args:
        fallback_random: random operators stay torch's, with eager's numbers; or else are arithmetic on a counter.
        relaxed_math: what is computed twice may differ in its last bit, so rows are not ordered by comparing elements.
        first_of_equals: ``topk``, ``kthvalue`` and ``median`` of short rows may pick the first of equal elements. Which
            of them eager picks is up to its kernels: on CPUs always the same, so backends for these say no.
    """
    left = (*SORTS, *SELECTIONS) if relaxed_math else () if first_of_equals else SELECTIONS
    rules = {op: rule for op, rule in _rules().items() if op not in left}
    return MappingProxyType({**rules, **({} if fallback_random else RANDOM)})


__all__ = ["decompositions"]
