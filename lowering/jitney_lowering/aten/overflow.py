"""Python's integers have no end, a kernel's have 64 bits: which of a graph's must be looked at in each call."""

from __future__ import annotations

import operator

import torch
from torch import fx

from jitney_lowering.aten.call import bound, parameters
from jitney_lowering.index import Index, furthest

LEAST, GREATEST = -(2**63), 2**63 - 1
RING = (operator.add, operator.sub, operator.mul, operator.neg, operator.pos)  # right modulo 2**64 in any order
SHAPES = frozenset({"size", "stride", "shape"})  # what memory has them all


def must_fit(node: fx.Node, made: Index) -> bool:
    """Must an integer of the graph be looked at: may it leave 64 bits, and would a result be wrong then?"""
    return furthest(made, GREATEST) > GREATEST and any(_reads(user, node) for user in node.users)


def too_large(what: str) -> None:
    """Raises ``OverflowError``: the frame runs in eager, where Python's integers are right, or refused."""
    raise OverflowError(f"{what} has more than 64 bits")


def _reads(user: fx.Node, node: fx.Node) -> bool:
    """Does this user read the number itself, not only what sums and products of it are, or the shape of a tensor?"""
    if user.op != "call_function":
        return False
    if user.target in RING:  # beside a float it is read
        return not isinstance(user.meta.get("val"), torch.SymInt)
    if getattr(user.target, "_schema", None) is None:  # one of Python's
        return True
    given = zip(parameters(user.target), bound(user.target, user.args, user.kwargs), strict=True)
    for (name, _), value in given:
        inside = value if isinstance(value, (list, tuple)) else (value,)
        if name not in SHAPES and any(item is node for item in inside):
            return True
    return False
