"""A backward graph as JSON, from which a later process compiles it when a backward is asked for."""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from jitney.aot.partition.split import Half
from jitney.aot.trace.sizes import is_symbolic
from jitney.cache.digest import NotStorable
from jitney.cache.recipes import Reader, Stale, Writer
from jitney.torch_compat import torch_private
from jitney.torch_compat.stand_ins.strides import StandInMode

# By name of the sympy class: sympy's own, and torch's integer functions. They are done again on symbolic sizes.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *args: functools.reduce(operator.add, args),
    "Mul": lambda *args: math.prod(args),
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": lambda *args: functools.reduce(torch.sym_max, args),
    "Min": lambda *args: functools.reduce(torch.sym_min, args),
}


def write_half(half: Half, saved: int) -> tuple[str, list[bytes]]:
    """The graph as text with the number of saved values among its inputs, and the bytes that belong to it.

    Raises:
        NotStorable: something in it has no recipe.
    """
    names = {node: f"%{i}" for i, node in enumerate(half.module.graph.nodes)}
    writer = Writer(known={name: node for node, name in names.items()})
    rows: list[Any] = []
    for node in half.module.graph.nodes:
        if node.op == "output":
            rows.append(["output", writer.ref(_plain(node.args[0]))])
            continue
        row = [node.op, node.name, writer.ref(_plain(node.meta.get("val"), stand_in=True))]
        if node.op == "call_function":
            row += [writer.ref(node.target), writer.ref(_plain(node.args)), writer.ref(_plain(node.kwargs))]
        elif node.op == "get_attr":
            row += [node.target, writer.ref(getattr(half.module, str(node.target)).detach())]
        elif node.op != "placeholder":
            raise NotStorable(f"a {node.op} in a backward graph")
        rows.append(row)
    outputs = writer.ref(_plain(half.outputs, stand_in=True))
    numbers = {"saved": saved, "stops": half.stops}
    return json.dumps({"rows": rows, "objects": writer.objects, "outputs": outputs, **numbers}), writer.blobs


class _Fake:
    """Stands for a FakeTensor: its facts."""

    def __init__(self, tensor: torch.Tensor) -> None:
        size, stride = (
            tuple([_Size(n) if is_symbolic(n) else n for n in sizes]) for sizes in (tensor.shape, tensor.stride())
        )
        self.facts = (size, stride, tensor.dtype, tensor.device, tensor.requires_grad)

    def _jitney_recipe(self, writer: Writer) -> list[Any]:
        return ["fake", *writer.refs(self.facts)]


class _Size:
    """Stands for a symbolic size: a symbol with its value when captured, or a function and its arguments."""

    def __init__(self, size: Any) -> None:
        if not isinstance(size, torch.SymInt):
            raise NotStorable(f"a backward graph with a {type(size).__name__}")
        self.text = _expression(size.node.expr, size.node.shape_env)

    def _jitney_recipe(self, writer: Writer) -> list[Any]:
        return ["symbolic", self.text]


def _plain(value: Any, stand_in: bool = False) -> Any:
    """FX's own lists and dictionaries as plain ones; with ``stand_in``, tensors as their facts."""
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = [_plain(v, stand_in) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {k: _plain(v, stand_in) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*[_plain(v) for v in (value.start, value.stop, value.step)])
    if is_symbolic(value):
        return _Size(value)
    return _Fake(value) if stand_in and isinstance(value, torch.Tensor) else value


def read_half(text: str, blobs: Sequence[bytes]) -> tuple[Half, int]:
    """The graph again, with FakeTensors, and how many of its inputs are saved values.

    Raises:
        Stale: an operator is not there any more.
    """
    data = json.loads(text)
    graph, root, sizes = fx.Graph(), torch.nn.Module(), _Sizes()
    nodes: dict[str, fx.Node] = {}

    def fake(reader: Reader, *numbers: int) -> torch.Tensor:
        size, stride, dtype, device, grad = reader.make_all(numbers)
        with sizes.mode:
            made = torch.empty_strided(size, stride, dtype=dtype, device=device)
        return made.requires_grad_(grad) if grad else made

    kinds = {"fake": fake, "symbolic": lambda reader, text: sizes.make(text)}
    reader = Reader(data["objects"], blobs, nodes, kinds)
    for number, (op, *row) in enumerate(data["rows"]):
        if op == "output":
            graph.output(reader.make(row[0]))
            continue
        node = _node(graph, root, op, row, reader)
        node.meta["val"] = reader.make(row[1])
        nodes[f"%{number}"] = node
    inputs = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    outputs = list(reader.make(data["outputs"]))
    return Half(fx.GraphModule(root, graph), inputs, outputs, tuple(data["stops"])), int(data["saved"])


def _node(graph: fx.Graph, root: torch.nn.Module, op: str, row: Sequence[Any], reader: Reader) -> fx.Node:
    name = row[0]
    if op == "placeholder":
        return graph.placeholder(name)
    if op == "get_attr":
        root.register_buffer(row[2], reader.make(row[3]), persistent=False)
        return graph.create_node("get_attr", row[2], name=name)
    if op != "call_function":
        raise Stale(f"a node of the kind {op}")
    target, args, kwargs = reader.make_all(row[2:5])
    assert isinstance(kwargs, Mapping)
    return graph.create_node("call_function", target, args, dict(kwargs), name)


# ------------------------------------------------------------------ symbolic sizes, by what they are made of


def _expression(expr: Any, env: Any) -> list[Any] | int:
    """In JSON; raises ``NotStorable`` for other functions, and for what only the running graph knows."""
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        hint, known = torch_private.value_when_captured(env, expr), env.var_to_range.get(expr)
        if hint is None or known is None:
            raise NotStorable("a backward graph with sizes that depend on data")
        return ["symbol", str(expr), hint, bool(known.lower >= 2)]
    name = type(expr).__name__
    if name not in FUNCTIONS:
        raise NotStorable(f"a backward graph with a size made by {name}")
    return [name, *[_expression(arg, env) for arg in expr.args]]


class _Sizes:
    """Makes the symbolic sizes of one graph again, for stand-ins of ``mode``."""

    def __init__(self) -> None:
        self.env = torch_private.ShapeEnv(
            duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False
        )
        self.mode = StandInMode(shape_env=self.env, allow_non_fake_inputs=True)
        self._symbols: dict[str, Any] = {}

    def make(self, text: list[Any] | int) -> Any:
        """From the text of a ``_Size``."""
        if isinstance(text, int):
            return text
        name, *args = text
        return self._symbol(*args) if name == "symbol" else FUNCTIONS[name](*map(self.make, args))

    def _symbol(self, name: str, hint: int, is_size: bool) -> Any:
        if name not in self._symbols:
            self._symbols[name] = self._size(name, hint) if is_size else self._number(name, hint)
        return self._symbols[name]

    def _size(self, name: str, hint: int) -> Any:
        context: Any = torch_private.StatelessSymbolicContext(dynamic_sizes=[torch_private.DimDynamic.DYNAMIC])
        like = torch.empty(hint, device="meta")
        made = self.mode.from_tensor(like, symbolic_context=context, source=torch_private.NamedSource(name))
        return made.shape[0]

    def _number(self, name: str, hint: int) -> Any:
        source = torch_private.NamedSource(name)
        return self.env.create_unspecified_symint_and_symbol(hint, source, torch_private.DimDynamic.DYNAMIC)
