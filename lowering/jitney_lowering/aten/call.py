"""What a rule is given: one operator call with its arguments as tensors and index expressions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney_lowering.aten.builder import Builder, computable
from jitney_lowering.aten.tensor import ONE, ZERO, Float, Shape, Tensor
from jitney_lowering.index import Index, index
from jitney_lowering.ir.operations import COMPLEX, FLOAT8
from jitney_lowering.ir.values import Value
from jitney_lowering.signals import NoRule

Rule = Callable[["Call"], Any]  # returns a Tensor, or a sequence of them for an operator with several results
_REQUIRED = object()
PAIRS: set[Any] = set()  # overloads whose rules take complex numbers, which are pairs
MOVES: set[Any] = set()  # overloads that move and convert elements, and compute nothing: they take float8 as well


class Call:
    """One node.

    Args:
        builder: the program under construction.
        node: the FX node.
        args: every argument of the operator's schema, in order, defaults filled in: ``Tensor``, ``Index`` for a
            symbolic size, plain values, and lists of these.
        val: the FakeTensor (or several, or a symbol) that it gives.
    """

    def __init__(self, builder: Builder, node: fx.Node, args: Sequence[Any], val: Any) -> None:
        self.builder = builder
        self.node = node
        self.args = tuple(args)
        self.val = val

    @property
    def tensors(self) -> list[Tensor]:
        """Arguments that are tensors, also inside lists."""
        return [t for a in self.args for t in (a if isinstance(a, (list, tuple)) else [a]) if isinstance(t, Tensor)]

    @property
    def dtype(self) -> torch.dtype:
        """Of the result."""
        return self.val.dtype

    @functools.cached_property
    def size(self) -> Shape:
        """Of the result."""
        return self.builder.sizes.shape(self.val.shape)

    @functools.cached_property
    def stride(self) -> Shape:
        """Of the result in eager."""
        return self.builder.sizes.shape(self.val.stride())

    def result(self, element: Callable[[Shape], Value]) -> Tensor:
        """The result, computed element by element."""
        return Tensor(self.size, self.dtype, self.val.device, element, wanted=self.stride)

    def index(self, value: Any) -> Index:
        """An int or symbolic size."""
        if isinstance(value, (Index, int)):
            return index(value)
        raise NoRule(f"a {type(value).__name__} as a size")

    @property
    def is_complex(self) -> bool:
        """Is an argument or the result complex?"""
        values = self.val if isinstance(self.val, (list, tuple)) else [self.val]
        return any(getattr(t, "dtype", None) in COMPLEX for t in (*self.tensors, *values))

    def refuse_unless(self, condition: bool, reason: str) -> None:
        """Raise ``NoRule`` with the reason if the condition does not hold."""
        if not condition:
            raise NoRule(reason)

    def refuse_unless_sized(self, given: Sequence[Index], wanted: Sequence[Index]) -> None:
        """No rule for a source of another size, which the operator itself refuses: torch's stand-ins may not."""
        fits = len(given) == len(wanted) and all(map(self.builder.sizes.are_equal, given, wanted))
        self.refuse_unless(fits, "a source of another size")

    def check(self) -> None:
        """Raise ``NoRule`` unless all tensors are such as loops can handle, on one device."""
        values = self.val if isinstance(self.val, (list, tuple)) else [self.val]
        devices = set()
        for t in (*self.tensors, *values):
            if not isinstance(t, (Tensor, torch.Tensor)) or isinstance(t, Float):
                continue
            if t.dtype in COMPLEX and self.node.target in PAIRS and t.device.type in ("cpu", "cuda"):
                devices.add(t.device)
                continue
            small = t.dtype in FLOAT8 and self.builder.policy.float8 and self.node.target in MOVES
            if not small and not computable(t.dtype, t.device):
                raise NoRule(f"{str(t.dtype).removeprefix('torch.')} on {t.device.type}")
            devices.add(t.device)
        if len(devices) > 1:
            raise NoRule("tensors on several devices")


def registering(table: dict[Any, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator that takes overloads and makes a function the rule of these in a table."""

    def rule_of(*targets: Any) -> Callable[[Rule], Rule]:
        def register(rule: Rule) -> Rule:
            table.update(dict.fromkeys(targets, rule))
            return rule

        return register

    return rule_of


@functools.cache
def parameters(target: Any) -> tuple[tuple[str, Any], ...]:
    """Names and defaults of an operator's arguments, in the order of its schema."""
    return tuple((a.name, a.default_value if a.has_default_value() else _REQUIRED) for a in target._schema.arguments)


def bound(target: Any, args: Sequence[Any], kwargs: Any) -> list[Any]:
    """All arguments in the order of the schema, defaults filled in."""
    found = list(args)
    for name, default in parameters(target)[len(args) :]:
        value = kwargs.get(name, default)
        if value is _REQUIRED:
            raise NoRule(f"{target} without {name}")
        found.append(value)
    return found


def projected(tensor: Tensor, size: Sequence[Index]) -> Callable[[Shape], Shape]:
    """From an index of a tensor of ``size`` to one of ``tensor``, which is broadcast to it."""
    skipped = len(size) - len(tensor.size)
    kept = [
        None if mine == 1 and whole != 1 else skipped + d
        for d, (mine, whole) in enumerate(zip(tensor.size, size[skipped:], strict=True))
    ]
    if None not in kept:
        return lambda at: at[skipped:]
    return lambda at: tuple([ZERO if d is None else at[d] for d in kept])


def is_spread(tensor: Tensor, size: Sequence[Index]) -> bool:
    """Does broadcasting to ``size`` read elements several times?"""
    skipped = len(size) - len(tensor.size)
    return any(s != 1 for s in size[:skipped]) or any(
        mine == 1 and whole != 1 for mine, whole in zip(tensor.size, size[skipped:], strict=True)
    )


def axis(dim: int, rank: int) -> int:
    """A dimension's number, from 0."""
    return dim + max(rank, 1) if dim < 0 else dim


__all__ = ["ONE", "ZERO", "Call", "Rule", "axis", "bound", "is_spread", "parameters", "projected", "registering"]
