"""The ATen graph of what runs: a dispatch mode that records each operator once, on stand-ins.

It works below autograd and below functionalization: what arrives here is functional, and the operators of a backward
arrive as the engine calls them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from traceback import FrameSummary
from typing import Any

import torch
from torch import fx

from jitney.aot.signals import NotSplit
from jitney.aot.trace import functionalization
from jitney.aot.trace.sizes import SizeNodes, is_symbolic, refuse_overflow
from jitney.torch_compat import torch_private

FORWARD, BACKWARD = "forward", "backward"
GOES_BACK = "goes_back"  # marks what the engine computes where a graph goes back over its own operations
FEW = 16  # elements of constants that are compared
ATOMS = (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
# In eager, too, these give back a tensor of which nobody else knows.
LIFTED = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default)


class AtenTracer(torch_private.TorchDispatchMode):
    """Records operators on FakeTensors as nodes of ``graph``, each with its result in ``meta["val"]``.

    Args:
        fake_mode: the mode of the stand-ins.
        decompositions: operators to be taken apart, as in torch's own tables.
    """

    def __init__(self, fake_mode: Any, decompositions: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.decompositions = decompositions
        self.graph = fx.Graph()
        self.sizes = SizeNodes(self.graph)
        self.nodes: dict[int, fx.Node] = {}  # id(stand-in) -> node
        self.kept: list[Any] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.small: dict[tuple[torch.dtype, torch.Size, bytes], str] = {}  # dtype, size and bits -> the constant
        self.phase = FORWARD
        self.has_subclasses = False  # are there tensors of subclasses that wrap tensors?
        self._functional = False  # is functionalization calling?
        self.stack: tuple[FrameSummary, ...] = ()
        self.draws_in_place = False  # is what is drawn written to a tensor that is there (``bernoulli_``, dropout)?
        self.region: int | None = None  # the checkpointed region that the running operation is part of
        self.stacks: dict[int, tuple[Any, ...]] = {}  # autograd sequence number -> (stack, region)

    # ------------------------------------------------------------------ inputs

    def placeholder(self, name: str, value: Any) -> fx.Node:
        """A new input of the graph: a FakeTensor or a symbol."""
        with self.graph.inserting_after(self.sizes.at):
            node = self.graph.placeholder(name)
        self.sizes.at = node
        node.meta.update(val=value, phase=self.phase)
        if isinstance(value, torch.Tensor):
            self.bind(value, node)
        if isinstance(value, torch.Tensor) or is_symbolic(value):
            self.sizes.add(node, value)
        return node

    def bind(self, value: Any, node: fx.Node) -> None:
        """This stand-in is that node's value."""
        self.nodes[id(value)] = node
        self.kept.append(value)

    # ------------------------------------------------------------------ recording

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.has_subclasses:
            if any(kind is not torch_private.FakeTensor for kind in types):
                return NotImplemented  # the subclass says what happens to its inner tensors
            if not types and not self._functional:
                return self._functionalize(func, args, kwargs)
        if func is torch_private.PRIM_DEVICE:
            return args[0].fake_device
        if func is torch.ops.aten._efficientzerotensor.default:  # see ``StandInMode``
            func = torch.ops.aten.zeros.default
        refuse_overflow(func, args, kwargs)
        rule = self.decompositions.get(func)
        if rule is not None:
            with self:
                result = rule(*args, **kwargs)
            if result is not NotImplemented:
                return result
        elif torch_private.is_composite(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func is torch.ops.aten.bernoulli.p and self.draws_in_place:
            order = functionalization.memory_order(args[0])
            if order != sorted(order):
                return self._drawn_in_order(args, kwargs, order)
        if func is torch.ops.aten.lift_fresh.default and not isinstance(args[0], torch_private.FakeTensor):
            return self._constant(args[0])
        # Its forward looks at grad mode when it runs, and compiled graphs run without.
        if func is torch.ops.aten.mkldnn_rnn_layer_backward.default:
            raise NotSplit("an LSTM's kernel on this device keeps what its backward needs only where autograd sees it")
        result = func(*args, **kwargs)
        if func._schema.is_mutable:
            raise NotSplit(f"{func} writes in place")
        if any(result is a for a in args) and isinstance(result, torch.Tensor) and func not in LIFTED:
            raise NotSplit(f"{func} gives back its argument")  # of which functionalization makes another tensor
        self.record(func, args, kwargs, result)
        return result

    def _drawn_in_order(self, args: tuple[Any, ...], kwargs: dict[str, Any], order: list[int]) -> Any:
        """``bernoulli_``, which goes through memory, as ``bernoulli`` of a view whose rows lie as memory does."""
        back = [order.index(d) for d in range(len(order))]
        with self:
            turned = torch.ops.aten.permute.default(args[0], order)
            drawn = torch.ops.aten.bernoulli.p(turned, *args[1:], **kwargs)
            return torch.ops.aten.permute.default(drawn, back)

    def _functionalize(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator on functional tensors that has not been functionalized yet; it comes back on stand-ins."""
        if torch_private.is_composite(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        self._functional = True
        try:
            with torch_private.functionalization_first(), self:
                return func(*args, **kwargs)
        finally:
            self._functional = False

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> fx.Node:
        """Append the node of one operator that has run on stand-ins."""
        node = self.graph.call_function(func, self.map(args), self.map(kwargs))
        self._describe(node, result)
        if isinstance(result, torch_private.FakeTensor):
            self.bind(result, node)
        elif isinstance(result, (torch.SymFloat, torch.SymInt)) and result.node.expr.is_Symbol:
            self.sizes.known(result, node)
        elif isinstance(result, tuple | list):
            for i, item in enumerate(result):
                self._item(node, i, item)
        return node

    def scalar(self, target: Any, args: tuple[Any, ...], made: Any) -> Any:
        """One operation of Python on numbers, or ``item`` of a tensor: a node of its own. ``made`` is its symbol."""
        if target == "item":
            self.record(torch.ops.aten._local_scalar_dense.default, (functionalization.unwrapped(args[0]),), {}, made)
        else:
            self.record(target, args, {}, made)
        return made

    def _item(self, node: fx.Node, i: int, item: Any) -> None:
        if isinstance(item, torch_private.FakeTensor):
            child = self.graph.call_function(operator.getitem, (node, i))
            self._describe(child, item)
            self.bind(item, child)
        elif item is not None and not isinstance(item, int | float):
            raise NotSplit(f"{node.target} returns a {type(item).__name__} among its results")

    def _describe(self, node: fx.Node, value: Any) -> None:
        stack, region = self.stack, self.region
        if self.phase is BACKWARD:
            running = torch_private.current_autograd_node()
            if running is not None:
                stack, region = self.stacks.get(running._sequence_nr(), ((), None))
        elif torch_private.current_autograd_node() is not None:
            node.meta[GOES_BACK] = True
        node.meta.update(val=value, phase=self.phase, user_stack=stack)
        if region is not None:
            node.meta["checkpoint"] = region

    def _constant(self, value: torch.Tensor) -> Any:
        """A tensor made of Python data: kept with the graph, copied at each run: the program may write to it."""
        name = self._name_of(value)
        self.constants[name] = value
        read = self.graph.create_node("get_attr", name)
        fake = self.fake_mode.from_tensor(value, static_shapes=True)
        self._describe(read, fake)
        self.kept.append(fake)
        copy = torch.ops.aten.clone.default(fake)
        node = self.graph.call_function(torch.ops.aten.clone.default, (read,))
        self._describe(node, copy)
        self.bind(copy, node)
        return copy

    def _name_of(self, value: torch.Tensor) -> str:
        """The name of a constant; that of an equal one, if it is small: each layer of a model makes the same."""
        fresh = f"_constant{len(self.constants)}"
        with torch_private.without_modes():
            plain = value.layout is torch.strided and not value.is_quantized and value.device.type == "cpu"
            if not plain or value.numel() > FEW:
                return fresh
            key = value.dtype, value.shape, bytes(value.contiguous().reshape(-1).view(torch.uint8).tolist())
        return self.small.setdefault(key, fresh)

    def map(self, value: Any) -> Any:
        """Stand-ins to nodes, symbols to nodes, inside any plain container."""
        kind = type(value)
        if kind in ATOMS:
            return value
        if isinstance(value, torch.Tensor):
            node = self.nodes.get(id(value))
            if node is None:
                raise NotSplit("a tensor that is no input of the graph reached an operator")
            return node
        if kind is tuple or kind is torch.Size:
            return tuple([self.map(v) for v in value])
        if kind is list:
            return [self.map(v) for v in value]
        if kind is dict:
            return {k: self.map(v) for k, v in value.items()}
        if is_symbolic(value):
            return self.sizes.node(value)
        if isinstance(value, torch.Generator):
            raise NotSplit("a torch.Generator argument")
        if isinstance(value, fx.node.base_types):
            return value
        raise NotSplit(f"an argument of class {kind.__qualname__} to an operator")
