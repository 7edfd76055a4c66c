"""A captured graph in several pieces, each compiled on its own: where it may be cut, cutting it, running the pieces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney._util import generated_code
from jitney.backends import Argument
from jitney.capture.torch.launches import WRITES
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import DEVICE_CALLS
from jitney.torch_compat.global_state import enter_inference_mode

_counter = itertools.count()
SYMBOLS = (torch.SymInt, torch.SymFloat)
# Normalisations write to their running statistics, which their stand-ins do not show.
WRITES_STATISTICS = ("batch_norm", "instance_norm")


@dataclass
class Piece:
    """Consecutive operations of a captured graph.

    Args:
        module: they, as a graph of their own.
        inputs: FakeTensors and symbols, one per placeholder.
        takes: the whole graph's nodes whose values it gets; where a size alone is needed, (node, dimension).
        gives: the whole graph's nodes that its outputs are.
        arguments: what extensions are told of its inputs.
    """

    module: fx.GraphModule
    inputs: list[Any]
    takes: list[fx.Node | tuple[fx.Node, int]]
    gives: list[fx.Node]
    arguments: tuple[Argument, ...]

    def change_state(self) -> None:
        """Leave torch's global state (grad mode, autocast) as the piece does."""
        for node in self.module.graph.nodes:
            if "changes_state" in node.meta and node.target not in DEVICE_CALLS:
                node.target(*node.args)


# ------------------------------------------------------------------ where it may be cut


def places_of(graph: fx.GraphModule, inputs: Sequence[Any]) -> list[fx.Node]:
    """The nodes before which a captured graph may be cut, in order.

    Args:
        graph: operations as the user called them; ``example_value`` is known of each.
        inputs: FakeTensors and symbols, one per placeholder.
    """
    operations = _operations(graph)
    if any(node.target is enter_inference_mode or _toggles(node) for node in operations):
        return []
    position = {node: i for i, node in enumerate(operations)}
    refused = [False] * (len(operations) + 1)  # by position: before this operation

    def keep_together(first: int, last: int) -> None:
        for i in range(first + 1, last + 1):
            refused[i] = True

    for i, node in enumerate(operations):
        if not _passes(node.meta.get("example_value", ...)):  # extensions may not say what they add
            keep_together(i, max((position.get(user, len(operations)) for user in node.users), default=i))
        region = node.meta.get("checkpoint")
        if region is not None and i and operations[i - 1].meta.get("checkpoint") == region:
            refused[i] = True
    spans = _written(graph, inputs, operations)
    if spans is None:
        return []
    for first, last in spans:
        keep_together(first, last)
    return [node for i, node in enumerate(operations) if i and not refused[i]]


def may_write(graph: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """May a captured graph write to memory, be it an input's or its own?"""
    return _written(graph, inputs, _operations(graph)) != []


def _operations(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]


def _toggles(node: fx.Node) -> bool:
    """Does it change whether an input requires grad? The next piece would not know."""
    while node.target == "requires_grad_" and isinstance(node.args[0], fx.Node):
        node = node.args[0]
        if node.op == "placeholder":
            return True
    return False


def _passes(value: Any) -> bool:
    """May a value be passed from piece to piece? Plain tensors and symbols may; None is passed to nobody."""
    return value is None or type(value) is torch_private.FakeTensor or isinstance(value, SYMBOLS)


def _written(
    graph: fx.GraphModule, inputs: Sequence[Any], operations: Sequence[fx.Node]
) -> list[tuple[int, int]] | None:
    """For each memory that is written to: its first operation, and the last one that writes. None: nobody knows.

    The operations run once more, on stand-ins of their own, which count what is written to them.
    """
    touched: dict[int, list[int]] = {}  # memory -> operations that have it among their arguments or results
    last_write: dict[int, int] = {}
    kept: list[Any] = []  # a memory's number is only its own while it lives
    mode = next((value.fake_mode for value in inputs if isinstance(value, torch_private.FakeTensor)), None)
    if mode is None:
        return None
    values: dict[fx.Node, Any] = {}
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    # Tensors made in inference mode count no writes.
    with mode, torch.inference_mode(False), torch.no_grad(), torch_private.DisableAutocast():
        for node, value in zip(placeholders, inputs, strict=True):
            values[node] = torch.empty_like(value) if isinstance(value, torch.Tensor) else value
        for i, node in enumerate(operations):
            if "changes_state" in node.meta:
                values[node] = None
                continue
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            given = list(_tensors((args, kwargs)))
            before = [t._version for t in given]
            try:
                result = _of_opaque(node, given) if "opaque" in node.meta else operation_result(node, args, kwargs)
            except Exception:  # a rule for stand-ins that wants what capture has arranged: then it stays in one piece
                return None
            values[node] = result
            kept.append(result)
            hidden = any(name in str(getattr(node.target, "__name__", "")) for name in WRITES_STATISTICS)
            for t, version in zip(given, before, strict=True):
                memory = torch_private.storage_of(t)
                touched.setdefault(memory, []).append(i)
                if t._version != version or (hidden and t is not given[0]):
                    last_write[memory] = i
            for t in _tensors(result):
                touched.setdefault(torch_private.storage_of(t), []).append(i)
    return [(touched[memory][0], last) for memory, last in last_write.items()]


def operation_result(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """What the operation of a captured graph gives for these arguments."""
    target: Any = node.target
    return getattr(args[0], target)(*args[1:], **kwargs) if node.op == "call_method" else target(*args, **kwargs)


def _of_opaque(node: fx.Node, given: Sequence[Any]) -> Any:
    """What stands for the results of an operator that runs as it is, and may write to nothing, or to all."""
    if node.meta["opaque"] == WRITES:
        torch.autograd.graph.increment_version(list(given))
    return _like(node.meta["example_value"])


def _like(results: Any) -> Any:
    if isinstance(results, (tuple, list)):
        return tuple(map(_like, results))
    return torch.empty_like(results) if isinstance(results, torch.Tensor) else results


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(_tensors, value.values()))
    elif isinstance(value, (tuple, list)):
        yield from itertools.chain.from_iterable(map(_tensors, value))


# ------------------------------------------------------------------ cutting


def cut(
    graph: fx.GraphModule, inputs: Sequence[Any], arguments: Sequence[Argument], at: Sequence[fx.Node]
) -> list[Piece]:
    """The pieces of a captured graph, in order.

    Args:
        graph: see ``places_of``.
        inputs: FakeTensors and symbols, one per placeholder.
        arguments: what extensions are told of them.
        at: the nodes before which it is cut, of ``places_of``.
    """
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    examples = dict(zip(placeholders, inputs, strict=True))
    known = dict(zip(placeholders, arguments, strict=False))
    groups: list[list[fx.Node]] = [[]]
    for node in _operations(graph):
        if node in at:
            groups.append([])
        groups[-1].append(node)
    last_use = _last_uses(graph, groups)
    return [
        _piece(group, [n for n in group if last_use.get(n, -1) > number], examples, known)
        for number, group in enumerate(groups)
    ]


def _last_uses(graph: fx.GraphModule, groups: Sequence[Sequence[fx.Node]]) -> dict[fx.Node, int]:
    """By node: the last piece that reads it; the number of pieces for what the graph returns."""
    found: dict[fx.Node, int] = {}
    output = next(iter(reversed(graph.graph.nodes)))
    for number, group in enumerate([*groups, [output]]):
        for node in group:
            found.update(dict.fromkeys(node.all_input_nodes, number))
    return found


def _piece(
    group: Sequence[fx.Node], gives: list[fx.Node], examples: dict[fx.Node, Any], known: dict[fx.Node, Argument]
) -> Piece:
    own = set(group)
    read = dict.fromkeys(a for node in group for a in node.all_input_nodes if a not in own)
    outside = [*(n for n in examples if n in read), *(n for n in read if n not in examples)]
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    inputs: list[Any] = []
    for node in outside:
        made[node] = graph.placeholder(node.name)
        made[node].meta.update(node.meta)
        inputs.append(examples.get(node, node.meta["example_value"]))
    takes: list[fx.Node | tuple[fx.Node, int]] = [*outside]
    for node, dim, size in _missing_symbols(group, inputs, examples):
        graph.placeholder(f"size_{len(takes)}").meta["example_value"] = size
        inputs.append(size)
        takes.append((node, dim))
    for node in group:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in gives))
    told = [known.get(t, Argument(t.name)) if isinstance(t, fx.Node) else Argument("a size") for t in takes]
    return Piece(fx.GraphModule(torch.nn.Module(), graph), inputs, takes, gives, tuple(told))


def _missing_symbols(
    group: Sequence[fx.Node], inputs: Sequence[Any], examples: dict[fx.Node, Any]
) -> list[tuple[fx.Node, int, Any]]:
    """Symbols of the piece that are no input of it and no size of one: which size of the graph's inputs each is."""
    have = {s for value in inputs for size in _sizes(value) if (s := size.node.expr).is_Symbol}
    wanted = [*inputs, *(node.meta["example_value"] for node in group)]
    missing = {s for value in wanted for size in _sizes(value) for s in size.node.expr.free_symbols} - have
    found: list[tuple[fx.Node, int, Any]] = []
    for node, value in examples.items():
        shape: Any = value.shape if missing and isinstance(value, torch.Tensor) else ()
        for dim, size in enumerate(shape):
            if isinstance(size, torch.SymInt) and size.node.expr in missing:
                missing.discard(size.node.expr)
                found.append((node, dim, size))
    return found


def _sizes(value: Any) -> list[Any]:
    """The symbolic numbers that a value is made of."""
    if isinstance(value, SYMBOLS):
        return [value]
    if not isinstance(value, torch.Tensor):
        return []
    return [s for s in (*value.shape, *value.stride(), value.storage_offset()) if isinstance(s, torch.SymInt)]


# ------------------------------------------------------------------ running


def in_turn(
    pieces: Sequence[Piece], compiled: Sequence[Callable[..., Sequence[Any]]], name: str
) -> Callable[..., tuple[Any, ...]]:
    """The function that runs the pieces one after the other; values that no later one reads are let go.

    Args:
        pieces: of one graph, in order.
        compiled: what each became.
        name: the user's function.
    """
    graph_output = _Whole.of(pieces)
    space: dict[str, Any] = {f"_piece{i}": run for i, run in enumerate(compiled)}
    names = {node: f"a{i}" for i, node in enumerate(graph_output.placeholders)}
    names.update({node: f"v{i}" for i, node in enumerate(n for piece in pieces for n in piece.gives)})
    returned = "".join(f"{names[n] if isinstance(n, fx.Node) else repr(n)}, " for n in graph_output.returned)
    lines = [f"def _run({', '.join(names[n] for n in graph_output.placeholders)}):"]
    alive = {*graph_output.returned}
    dead: list[str] = []  # from the end on: what each piece is the last to read
    body: list[str] = []
    for i, piece in reversed(list(enumerate(pieces))):
        read = dict.fromkeys(t if isinstance(t, fx.Node) else t[0] for t in piece.takes)
        dead = [names[n] for n in read if n not in alive]
        alive |= read.keys()
        given = ", ".join(names[t] if isinstance(t, fx.Node) else f"{names[t[0]]}.shape[{t[1]}]" for t in piece.takes)
        results = "".join(f"{names[n]}, " for n in piece.gives)
        call = f"{results}= _piece{i}({given})" if results else f"_piece{i}({given})"
        body[:0] = [call, *([f"del {', '.join(dead)}"] if dead else [])]
    lines += [f"    {line}" for line in [*body, f"return ({returned})"]]
    return generated_code.build("\n".join(lines) + "\n", f"<jitney pieces {name} {next(_counter)}>", space, "_run")


@dataclass
class _Whole:
    """What the graph that was cut takes and returns."""

    placeholders: list[fx.Node]
    returned: tuple[Any, ...]

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> _Whole:
        node = next(n for piece in pieces for n in (*piece.gives, *(t for t in piece.takes if isinstance(t, fx.Node))))
        nodes = list(node.graph.nodes)
        return cls([n for n in nodes if n.op == "placeholder"], tuple(nodes[-1].args[0]))
