"""One ATen graph over several backends: each node goes to the first that takes it, the rest runs eagerly."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from jitney import events
from jitney._util.generated_code import build
from jitney._util.lazy_graph_module import LazyGraphModule
from jitney.backends.backend import Backend, Compiled, CompileRequest
from jitney.backends.backend_fields import supports
from jitney.torch_compat import operator_effects

EAGER = "eagerly"
CALLS = 2  # operators on single numbers of the host for each result that are called rather than made a kernel of
# Operators that torch also has as functions of its own, which take a third of the time to call.
FACES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._local_scalar_dense.default: torch.Tensor.item,
    torch.ops.aten.add.Tensor: torch.add,
    torch.ops.aten.mul.Tensor: torch.mul,
    torch.ops.aten.sub.Tensor: torch.sub,
}
_counter = itertools.count()


@dataclass
class Piece:
    """Nodes that one backend gets as a graph; ``owner`` is its place in the list, -1 for what runs eagerly."""

    owner: int
    nodes: list[fx.Node] = field(default_factory=list)
    before: set[int] = field(default_factory=set)  # pieces that must have run, directly or not
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)


def takes(backend: Backend, node: fx.Node, request: CompileRequest) -> bool:
    """May the node be given to the backend: are its tensors on the backend's devices, and does it support it?"""
    if backend.device_types and not devices(node) <= set(backend.device_types):
        return False
    return supports(backend, node, request)


def devices(node: fx.Node) -> set[str]:
    """The device types of the tensors that a node reads and makes.

    A tensor of the CPU without dimensions beside others is as good as a number there, as in eager.
    """
    made, read = _tensors([node]), _tensors(node.all_input_nodes)
    found = {v.device.type for v in made}
    plain = {v.device.type for v in read if v.dim() or v.device.type != "cpu"}
    return found | (plain if plain and found != {"cpu"} else {v.device.type for v in read})


def _tensors(nodes: Iterable[fx.Node]) -> list[torch.Tensor]:
    values = [n.meta.get("val") for n in nodes]
    return [v for value in values for v in _leaves(value) if isinstance(v, torch.Tensor)]


def _leaves(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in _leaves(v)] if isinstance(value, (list, tuple)) else [value]


def split(graph: fx.Graph, backends: Sequence[Backend], request: CompileRequest) -> list[Piece]:
    """The graph's operators as pieces, in an order in which they may run: as few as a greedy walk finds.

    A node joins the piece of its owner that is youngest, unless something that the node needs waits for that piece.
    """
    pieces: list[Piece] = []
    where: dict[fx.Node, int] = {}
    written: dict[fx.Node, int] = {}  # what an operator has written to, and its piece
    effect: set[int] = set()  # the piece of the last operator that draws random numbers or writes
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        needs = {where[n] for n in node.all_input_nodes if n in where}
        keeps_order = _keeps_order(node)
        needs |= effect if keeps_order else set()
        needs |= {written[n] for n in node.all_input_nodes if n in written}
        targets = _written(node)
        needs |= {where[user] for n in targets for user in n.users if user in where}
        waits = set().union(needs, *(pieces[p].before for p in needs))
        owner = _owner(node, where, pieces, backends, request)
        for number in range(len(pieces) - 1, -1, -1):
            if pieces[number].owner == owner and not any(number in pieces[p].before for p in needs):
                break
        else:
            number = len(pieces)
            pieces.append(Piece(owner))
        pieces[number].nodes.append(node)
        added = waits - {number}
        for other in (pieces[number], *(p for p in pieces if number in p.before)):
            other.before |= added
        where[node] = number
        written |= dict.fromkeys(targets, number)
        effect = {number} if keeps_order else effect
    _connect(graph, pieces, where)
    for piece in pieces if len(pieces) > 1 else ():
        piece.owner = -1 if _counts(piece) else piece.owner
    return _ordered(pieces)


def _counts(piece: Piece) -> bool:
    """Does it do little with single numbers of the host, as step counters? A kernel makes a tensor for each, too."""
    found = _tensors([*piece.nodes, *piece.inputs])
    calls = sum(1 for node in piece.nodes if _tensors([node, *node.all_input_nodes]))  # others are Python's arithmetic
    few = calls <= CALLS * len(piece.outputs)
    return few and bool(found) and all(not t.dim() and t.device.type == "cpu" for t in found)


def _written(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operator may write to."""
    schema = getattr(node.target, "_schema", None)
    return node.all_input_nodes if schema is not None and schema.is_mutable else operator_effects.hidden_writes(node)


def _keeps_order(node: fx.Node) -> bool:
    """Does the operator draw random numbers or write?"""
    schema = getattr(node.target, "_schema", None)
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags or (schema is not None and schema.is_mutable)


def _owner(
    node: fx.Node,
    where: Mapping[fx.Node, int],
    pieces: Sequence[Piece],
    backends: Sequence[Backend],
    request: CompileRequest,
) -> int:
    if node.target is operator.getitem and node.args[0] in where:  # a part of what an operator returned
        return pieces[where[node.args[0]]].owner  # type: ignore[index] # a node
    return next((i for i, backend in enumerate(backends) if takes(backend, node, request)), -1)


def _connect(graph: fx.Graph, pieces: Sequence[Piece], where: Mapping[fx.Node, int]) -> None:
    """What each piece is given and gives."""
    for node in graph.nodes:
        for used in node.all_input_nodes:
            inside = where.get(node)
            if used in where and where[used] != inside and used not in pieces[where[used]].outputs:
                pieces[where[used]].outputs.append(used)
            if inside is not None and where.get(used) != inside and used.op != "get_attr":
                if used not in pieces[inside].inputs:
                    pieces[inside].inputs.append(used)


def _ordered(pieces: Sequence[Piece]) -> list[Piece]:
    return [pieces[n] for n in sorted(range(len(pieces)), key=lambda n: (len(pieces[n].before), n))]


def module_of(piece: Piece, owner: fx.GraphModule) -> fx.GraphModule:
    """A piece as a graph of its own; the constants that it reads come along."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in piece.inputs:
        made[node] = graph.placeholder(node.name)
        made[node].meta.update(node.meta)
    for node in piece.nodes:
        for constant in (n for n in node.all_input_nodes if n.op == "get_attr" and n not in made):
            made[constant] = graph.node_copy(constant)
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[n] for n in piece.outputs))
    return LazyGraphModule(owner, graph)


def _eagerly(part: fx.GraphModule) -> Compiled:
    for node in part.graph.nodes:
        node.target = FACES.get(node.target, node.target) if node.op == "call_function" else node.target
    part.recompile()
    return part.forward


# ``compile_piece(number of the backend, graph, inputs, updates)``; updates: see ``CompileRequest``.
CompilePiece = Callable[[int, fx.GraphModule, Sequence[Any], Mapping[int, int]], Compiled]


def place(
    module: fx.GraphModule, backends: Sequence[Backend], compile_piece: CompilePiece, request: CompileRequest
) -> Compiled:
    """The graph with its pieces compiled; emits a ``Placed`` event.

    Args:
        module: an ATen graph with one tuple as output.
        backends: in order of preference.
        compile_piece: compiles one of the graphs.
        request: the whole graph's.
    """
    pieces = split(module.graph, backends, request)
    names = [backends[p.owner].name if p.owner >= 0 else EAGER for p in pieces]
    rows = tuple((name, len(piece.nodes)) for name, piece in zip(names, pieces, strict=True))
    events.emit(events.Placed(request.frame, request.kind, rows))
    if all(piece.owner < 0 for piece in pieces):
        return module.forward
    if len(pieces) == 1:
        inputs = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]
        return compile_piece(pieces[0].owner, module, inputs, request.updates)
    last = last_to_fail(pieces)
    return _joined(module, pieces, compile_piece, last, updates_of(module.graph, pieces, last, request.updates))


def last_to_fail(pieces: Sequence[Piece]) -> int:
    """The number of the last piece, but for those that only count and move single numbers, operator by operator."""
    for number in range(len(pieces) - 1, 0, -1):
        piece = pieces[number]
        harmless = all(map(_never_fails, piece.nodes))
        if piece.owner >= 0 or not harmless or any(t.dim() for t in _tensors(piece.nodes)):
            return number
    return 0


def _never_fails(node: fx.Node) -> bool:
    """Is it an operator on floats, element by element, or a copy? Python's own arithmetic, and integers, may raise."""
    value = node.meta.get("val")
    floats = isinstance(value, torch.Tensor) and value.dtype.is_floating_point
    copies = node.target in (torch.ops.aten._to_copy.default, torch.ops.aten.clone.default, torch.ops.aten.copy.default)
    return floats and (copies or torch.Tag.pointwise in getattr(node.target, "tags", ()))


def updates_of(
    graph: fx.Graph, pieces: Sequence[Piece], number: int, updates: Mapping[int, int]
) -> dict[int, tuple[fx.Node, fx.Node]]:
    """Outputs that one piece makes, and the inputs that it may write them to, if nothing fails after it.

    Nobody else may see the input's old value: neither as a result, nor through what another piece has made of it, nor
    in what comes after.
    """
    last, placeholders = pieces[number], graph.find_nodes(op="placeholder")
    results: Any = graph.output_node().args[0]
    here, after = set(last.nodes), {node for piece in pieces[number + 1 :] for node in piece.nodes}
    found = {}
    for at, argument in updates.items():
        new, old = results[at], placeholders[argument]
        if not after.isdisjoint(old.users):
            continue
        elsewhere = [user for user in old.users if user not in here]
        plain = results.count(new) == 1 and old not in results and not any(map(_may_be_a_view, elsewhere))
        if plain and new in last.outputs and old in last.inputs:
            found[at] = (new, old)
    return found


def _may_be_a_view(node: fx.Node) -> bool:
    """May the result share memory with an argument?"""
    schema = getattr(node.target, "_schema", None)
    if schema is None or node.target in operator_effects.VIEWS:
        return True
    return any(made.alias_info is not None for made in schema.returns)


def _joined(
    module: fx.GraphModule,
    pieces: Sequence[Piece],
    compile_piece: CompilePiece,
    writes: int,
    updates: Mapping[int, tuple[fx.Node, fx.Node]],
) -> Compiled:
    """One function that calls the pieces in order, of which the one of number ``writes`` may do these updates."""
    names: dict[fx.Node, str] = {}
    namespace: dict[str, Any] = {}
    parameters: list[str] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            names[node] = f"i{len(parameters)}"
            parameters.append(names[node])
        elif node.op == "get_attr":
            names[node] = f"c{len(namespace)}"
            namespace[names[node]] = getattr(module, node.target)
    lines = []
    filled: frozenset[int] = frozenset()
    for number, piece in enumerate(pieces):
        part = module_of(piece, module)
        inputs = [n.meta["val"] for n in piece.inputs]
        if piece.owner >= 0:
            last = updates if number == writes else {}
            own = {piece.outputs.index(new): piece.inputs.index(old) for new, old in last.values()}
            made_of = compile_piece(piece.owner, part, inputs, own)
            places = {piece.outputs[at] for at in getattr(made_of, "filled", ())}
            filled = frozenset(at for at, (new, _) in last.items() if new in places)
            namespace[f"piece{number}"] = made_of
        else:
            namespace[f"piece{number}"] = _eagerly(part)
        given = ", ".join(names[n] for n in piece.inputs)
        names |= {node: f"t{number}_{at}" for at, node in enumerate(piece.outputs)}
        made = "".join(f"{names[n]}, " for n in piece.outputs)
        lines.append(f"    {made}= piece{number}({given})" if made else f"    piece{number}({given})")
    (output,) = module.graph.find_nodes(op="output")
    constants = {i: value for i, value in enumerate(output.args[0]) if not isinstance(value, fx.Node)}
    namespace |= {f"k{i}": value for i, value in constants.items()}
    results = "".join(f"k{i}, " if i in constants else f"{names[n]}, " for i, n in enumerate(output.args[0]))
    source = "\n".join([f"def run({', '.join(parameters)}):", *lines, f"    return ({results})", ""])
    run: Any = build(source, f"<jitney placement {next(_counter)}>", namespace, "run")
    run.filled = filled
    return run
