"""Symbolic sizes in an ATen graph: each expression becomes nodes over the graph's own inputs."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from jitney.aot.signals import NotSplit
from jitney.torch_compat import torch_private
from jitney.torch_compat.operator_effects import CONVERTED_NUMBERS, PROMOTING_NUMBERS
from jitney.torch_compat.scalars import expression_nodes

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_symbolic(value: Any) -> bool:
    """Is it a symbolic size, float or truth value (one that stands for a constant included)?"""
    return isinstance(value, SYMBOLIC)


class SizeNodes:
    """Which node computes which symbol. Inputs are told with ``add``; expressions are asked for with ``node``."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self._inputs: dict[Any, fx.Node] = {}  # symbol -> the placeholder that is it
        self._tensors: dict[Any, tuple[fx.Node, str, int]] = {}  # symbol -> (placeholder, which, dimension)
        self._late: set[Any] = set()  # symbols that nodes in the middle of the graph compute
        self._made: dict[Any, Any] = {}  # expression -> node
        self.at: Any = None  # nodes go after this one: the last placeholder

    def add(self, node: fx.Node, value: Any) -> None:
        """A placeholder: a symbol itself, or a tensor whose sizes or strides are symbols."""
        if is_symbolic(value):
            if value.node.expr.is_Symbol:
                self._inputs.setdefault(value.node.expr, node)
            return
        for which, sizes in (("size", value.shape), ("stride", value.stride())):
            for dim, size in enumerate(sizes):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    self._tensors.setdefault(size.node.expr, (node, which, dim))
        offset = value.storage_offset()
        if isinstance(offset, torch.SymInt) and offset.node.expr.is_Symbol:
            self._tensors.setdefault(offset.node.expr, (node, "offset", 0))

    def knows(self, value: Any) -> bool:
        """Is this symbol an input, or the size of one?"""
        symbol = value.node.expr
        return symbol in self._inputs or symbol in self._tensors

    def known(self, value: Any, node: fx.Node) -> None:
        """A symbol that a node has computed."""
        self._inputs[value.node.expr] = node
        self._late.add(value.node.expr)

    def node(self, value: Any) -> Any:
        """The node, or plain number, that ``value`` is."""
        expr = value.node.expr
        if not expr.free_symbols:
            return value.node.pytype(expr)
        found = self._inputs.get(expr) or self._made.get(expr)
        if found is None:
            found = self._made[expr] = self._make(expr)
        return found

    def symbols(self, value: Any) -> list[fx.Node]:
        """The nodes of the symbols that a size is made of."""
        found = []
        for symbol in sorted(value.node.expr.free_symbols, key=str):
            if symbol not in self._inputs:
                with self.graph.inserting_after(self.at):
                    self.at = self._symbol(symbol)
            found.append(self._inputs[symbol])
        return found

    def _make(self, expr: Any) -> Any:
        if self._late & expr.free_symbols:  # made of what a node computes: after it, so at the end
            return self._expression(expr)
        with self.graph.inserting_after(self.at):
            marker = self.graph.call_function(operator.pos, (0,))  # nodes go before it, in order
        with self.graph.inserting_before(marker):
            made = self._expression(expr)
        if isinstance(made, fx.Node) and made.op != "placeholder":
            self.at = made
        self.graph.erase_node(marker)
        return made

    def _expression(self, expr: Any) -> Any:
        nodes = {symbol: self._symbol(symbol) for symbol in sorted(expr.free_symbols, key=str)}
        return expression_nodes(self.graph, expr, nodes, "val")

    def _symbol(self, symbol: Any) -> fx.Node:
        found = self._inputs.get(symbol)
        if found is not None:
            return found
        known = self._tensors.get(symbol)
        if known is None:
            raise NotSplit(f"the symbolic size {symbol} is not one of an input's")
        tensor, which, dim = known
        name = {"size": "sym_size", "stride": "sym_stride", "offset": "sym_storage_offset"}[which]
        packet = getattr(torch.ops.aten, name)
        node = self.graph.call_function(
            packet.default if which == "offset" else packet.int, (tensor,) if which == "offset" else (tensor, dim)
        )
        fake = tensor.meta["val"]
        node.meta["val"] = {"size": fake.shape, "stride": fake.stride(), "offset": [fake.storage_offset()]}[which][dim]
        self._inputs[symbol] = node
        return node


def refuse_unknown(graph: fx.Graph) -> None:
    """Raise ``NotSplit`` for a graph whose tensors have sizes that only running it tells, or that checks numbers."""
    for node in graph.nodes:
        reason = unknown(node)
        if reason:
            raise NotSplit(reason)


def unknown(node: fx.Node) -> str:
    """Why no functional graph may hold an operation as it was captured: its sizes depend on data; empty if it may."""
    if node.target is torch.ops.aten._assert_scalar.default:
        return "it checks a number read from a tensor"
    if "data_sizes" in node.meta:  # though they may be known to be others
        return "sizes in it depend on the values of tensors"
    values = node.meta.get("example_value")
    for value in values if isinstance(values, (tuple, list)) else (values,):
        sizes: tuple[Any, ...] = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        sizes = tuple(n for n in sizes if type(n) is torch.SymInt)
        if any(map(torch_private.data_symbols, sizes)):
            return "sizes in it depend on the values of tensors"
    return ""


def refuse_overflow(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Guard that a number fits into the dtype, where eager raises if it does not: kernels convert it unseen.

    Raises:
        NotSplit: it does not fit, or is an integer of which nobody knows; or it is negative, and the dtype is not,
            which some operators take.
    """
    if func not in CONVERTED_NUMBERS:
        return
    tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
    dtype = kwargs.get("dtype") or (None if tensor is None else tensor.dtype)
    if dtype in (None, torch.bool, torch.float64) or dtype.is_complex:
        return
    for place, name in _numbers(func):
        number = args[place] if place < len(args) else kwargs.get(name)
        promotes = (
            func in PROMOTING_NUMBERS and isinstance(number, float | torch.SymFloat) and not dtype.is_floating_point
        )
        held = torch.get_default_dtype() if promotes else dtype
        if isinstance(number, int | float | torch.SymInt | torch.SymFloat) and not _fits(number, held):
            raise NotSplit(f"{func} is given a number that {held} may not hold")


@functools.cache
def _numbers(func: Any) -> tuple[tuple[int, str], ...]:
    """Places and names of an operator's arguments that are numbers of any type."""
    arguments = enumerate(func._schema.arguments)
    return tuple((at, a.name) for at, a in arguments if str(a.type).endswith(("number", "number]")))


def _fits(number: Any, dtype: torch.dtype) -> bool:
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    if isinstance(number, int | torch.SymInt) and limits.max >= torch.iinfo(torch.int64).max:
        return True
    if isinstance(number, float) and not math.isfinite(number):
        return dtype.is_floating_point
    if not isinstance(number, int | float) and number.node.hint is None:  # computed of data
        return isinstance(number, torch.SymFloat) and dtype.is_floating_point
    return bool(number >= limits.min and number <= limits.max)
