"""A graph compiled for one combination of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import torch
from jax import lax
from torch import fx

from jitney_xla import engine, tiny
from jitney_xla.exchange import DTYPES, array_of, tensor_of
from jitney_xla.layouts import inverse, order_of, with_strides
from jitney_xla.rules import RULES, Call
from jitney_xla.rules.views import VIEWS
from jitney_xla.sizes import NotHere, numbers_of, resolver
from jitney_xla.supported import is_size


@dataclass(frozen=True)
class Input:
    """A tensor that XLA reads.

    Args:
        node: a placeholder or constant.
        shape: of the tensor.
        order: its dimensions from the outermost in memory on; None: it is copied into the usual order.
    """

    node: fx.Node
    shape: tuple[int, ...]
    order: tuple[int, ...] | None


@dataclass(frozen=True)
class Output:
    """A tensor that XLA makes.

    Args:
        node: which computes it.
        order: dimensions from the outermost in memory on.
        strides: if no order gives them, to be copied into; None else.
    """

    node: fx.Node
    order: tuple[int, ...]
    strides: tuple[int, ...] | None


class Form:
    """A graph in certain sizes: XLA's code, and what is left to do around it.

    Args:
        graph: whose nodes ``supports`` has taken.
        values: an argument for each placeholder: tensors (FakeTensors will do) and numbers.

    Raises:
        NotHere: the graph in these sizes is nothing for XLA.
    """

    def __init__(self, graph: fx.GraphModule, values: Sequence[Any]) -> None:
        self.graph = graph
        self.placeholders = graph.graph.find_nodes(op="placeholder")
        given = dict(zip(self.placeholders, values, strict=True))
        fakes = [n.meta["val"] for n in self.placeholders]
        self.resolve = resolver(numbers_of(fakes, values))
        self.numbers = self._numbers(given)
        (returned,) = graph.graph.output_node().args
        self.returned: list[Any] = list(returned)  # type: ignore[arg-type] # a tuple of nodes
        nodes = list(dict.fromkeys(n for n in self.returned if isinstance(n, fx.Node) and n not in self.numbers))
        self.outside, rest = self._parted(nodes)
        self.outputs = [self._output(n) for n in rest]
        self.needed = _needs(rest, self.numbers)
        self.inputs = [self._input(n, given) for n in graph.graph.nodes if n in self.needed and _is_given(n)]
        self.checked = False
        self.code = engine.compiled(self._function, [self._as_compiled(i) for i in self.inputs]) if rest else None
        self.views = self._view_code()

    def __call__(self, values: Sequence[Any]) -> list[Any] | None:
        """The graph's outputs; None if eager raises, or has other numbers."""
        made: dict[fx.Node, Any] = dict(zip(self.placeholders, values, strict=True))
        if self.code is not None:
            arrays = engine.call(self.code, [array_of(self._laid_out(i, made)) for i in self.inputs])
            if self.checked and not arrays.pop():
                return None
            for output, array in zip(self.outputs, arrays, strict=True):
                made[output.node] = _laid_back(output, tensor_of(array))
        if self.outside:
            made.update(zip(self.outside, self.views(*values), strict=True))
        return [self._result(r, made) for r in self.returned]

    def _result(self, returned: Any, made: dict[fx.Node, Any]) -> Any:
        if not isinstance(returned, fx.Node):
            return returned
        return self.numbers[returned] if returned in self.numbers else made[returned]

    # --- what is known before anything runs ---

    def _numbers(self, given: dict[fx.Node, Any]) -> dict[fx.Node, int]:
        """Sizes, by node."""
        found: dict[fx.Node, int] = {n: v for n, v in given.items() if not isinstance(v, torch.Tensor)}
        known = {**given, **found}
        for node in self.graph.graph.nodes:
            if node.op == "call_function" and is_size(node):
                args = fx.node.map_arg(node.args, known.__getitem__)
                found[node] = known[node] = self.resolve(node.target(*args))
        return found

    def _parted(self, nodes: Iterable[fx.Node]) -> tuple[list[fx.Node], list[fx.Node]]:
        """What is a view of an argument, which torch makes without copying, and what XLA computes."""
        outside: list[fx.Node] = []
        inside: list[fx.Node] = []
        for node in nodes:
            (outside if _is_view_of_argument(node) else inside).append(node)
        return outside, inside

    def _view_code(self) -> Callable[..., Any]:
        """What makes the views of arguments."""
        graph = fx.Graph()
        made = {n: graph.placeholder(n.name) for n in self.placeholders}
        wanted = _needs(self.outside, self.numbers)

        def argument(node: fx.Node) -> Any:
            return self.numbers[node] if node in self.numbers else made[node]

        for node in self.graph.graph.nodes:
            if node in wanted and node not in made:
                made[node] = graph.create_node(
                    node.op,
                    node.target,
                    fx.node.map_arg(node.args, argument),
                    fx.node.map_arg(node.kwargs, argument),
                )
        graph.output(tuple(made[n] for n in self.outside))
        return fx.GraphModule(self.graph, graph).forward

    def _input(self, node: fx.Node, given: dict[fx.Node, Any]) -> Input:
        value = given[node] if node in given else getattr(self.graph, str(node.target))
        shape = tuple(self.resolve(n) for n in value.shape)
        if 0 in shape:
            raise NotHere("a tensor is empty")
        return Input(node, shape, order_of(shape, [self.resolve(n) for n in value.stride()]))

    def _output(self, node: fx.Node) -> Output:
        val = node.meta["val"]
        shape, strides = [self.resolve(n) for n in val.shape], [self.resolve(n) for n in val.stride()]
        if 0 in shape:
            raise NotHere("a result is empty")
        order = order_of(shape, strides)
        return Output(node, tuple(range(len(shape))), tuple(strides)) if order is None else Output(node, order, None)

    # --- what XLA compiles ---

    def _as_compiled(self, given: Input) -> tuple[tuple[int, ...], Any]:
        order = given.order or range(len(given.shape))
        return tuple(given.shape[d] for d in order), DTYPES[self._tensor(given.node).dtype]

    def _tensor(self, node: fx.Node) -> torch.Tensor:
        found: torch.Tensor = node.meta["val"] if node.op == "placeholder" else getattr(self.graph, str(node.target))
        return found

    def _function(self, *arrays: Any) -> list[Any]:
        """The graph as a function of JAX arrays; the last result says whether all conditions hold, if there are any."""
        values: dict[fx.Node, Any] = dict(self.numbers)
        for given, array in zip(self.inputs, arrays, strict=True):
            values[given.node] = array if given.order is None else jnp.transpose(array, inverse(given.order))
        normal = [tiny.has_none(array) for array in arrays]
        conditions: list[Any] = [condition for condition in normal if condition is not None]
        for node in self.graph.graph.nodes:
            if node in self.needed and node not in values:
                values[node] = _computed(node, values, conditions)
        results: list[Any] = []
        for output in self.outputs:
            made = jnp.transpose(values[output.node], output.order)
            # JAX would give an argument, or one result, back twice.
            alike = any(made is other for other in (*arrays, *results))
            results.append(lax.optimization_barrier(made) if alike else made)
        self.checked = bool(conditions)
        if conditions:
            results.append(jnp.stack([jnp.all(c) for c in conditions]).all())
        return results

    # --- at each call ---

    def _laid_out(self, given: Input, made: dict[fx.Node, Any]) -> torch.Tensor:
        """The tensor in the order in which XLA reads it."""
        tensor: torch.Tensor = made[given.node] if given.node in made else getattr(self.graph, str(given.node.target))
        if given.order is not None:
            tensor = tensor.permute(given.order)
        return tensor if tensor.is_contiguous() else tensor.contiguous()


def _computed(node: fx.Node, values: dict[fx.Node, Any], conditions: list[Any]) -> Any:
    args: Any = fx.node.map_arg(node.args, values.__getitem__)
    kwargs: Any = fx.node.map_arg(node.kwargs, values.__getitem__)
    rule = RULES.get(node.target)
    if rule is None:  # a part of several results
        return args[0][args[1]]
    made = rule.make(Call(node, conditions), *args, **kwargs)
    if getattr(made, "size", None) == 0:
        raise NotHere("a tensor in between is empty")
    return made


def _laid_back(output: Output, tensor: torch.Tensor) -> torch.Tensor:
    if output.strides is not None:
        return with_strides(tensor, output.strides)
    return tensor.permute(inverse(output.order))


def _is_given(node: fx.Node) -> bool:
    return node.op in ("placeholder", "get_attr")


def _is_view_of_argument(node: fx.Node) -> bool:
    while not _is_given(node):
        if node.target in VIEWS:
            node = node.args[0]  # type: ignore[assignment] # views are of their first argument
        elif node.target not in RULES and isinstance(node.args[0], fx.Node):  # a part of what was split
            node = node.args[0]
        else:
            return False
    return True


def _needs(nodes: Iterable[fx.Node], known: dict[fx.Node, int]) -> set[fx.Node]:
    """Everything that these nodes are made of, themselves included, but for numbers."""
    found: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found and node not in known:
            found.add(node)
            waiting += node.all_input_nodes
    return found
