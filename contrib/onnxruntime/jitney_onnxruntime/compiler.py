"""From an ATen graph to an ONNX model, and to the function that runs it on torch's memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from jitney.backends import CompileRequest
from jitney_onnxruntime.dtypes import ELEMENT
from jitney_onnxruntime.model import model_of
from jitney_onnxruntime.results import Result, Room, order_of
from jitney_onnxruntime.rules import RULES
from jitney_onnxruntime.sessions import Session
from jitney_onnxruntime.sizes import Symbols
from jitney_onnxruntime.table import Call
from jitney_onnxruntime.writer import Size, Value, Writer

PLANS = 64  # sizes of calls that are kept


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The function of one graph; see ``Backend``. A graph with sizes that its inputs do not say runs as it is."""
    symbols = Symbols(inputs)
    reason = symbols.unknown(graph.graph)
    if reason:
        request.lowered(0, [("the whole graph", reason)])
        return graph.forward
    program = translated(graph)
    if not program.results:
        request.lowered(0, [])
        return Runner(graph, program, symbols, None, []).run
    tensors = [(value, shape) for value, _, shape in program.inputs]
    model, names = model_of(program.writer, tensors, [Value(r.name, r.dtype) for r in program.results])
    request.lowered(1, [])
    if request.detailed:
        request.save("output_code", str(model.graph))
    session = Session(model.SerializeToString(), request.options)
    return Runner(graph, program, symbols, session, names).run


@dataclass
class Program:
    """An ATen graph as ONNX nodes.

    Args:
        writer: the nodes.
        inputs: tensors that the model may read: the value, where it is (a position among the inputs, a pair of a
            place and a position in it, or the tensor itself), its shape.
        results: what the model returns.
        outputs: for each of the graph's outputs where it comes from.
    """

    writer: Writer
    inputs: list[tuple[Value, Any, Sequence[Size]]]
    results: list[Result]
    outputs: list[tuple[Literal["input", "size", "constant", "result", "several"], Any]]


def translated(graph: fx.GraphModule) -> Program:
    """Every node through its rule.

    Raises:
        Refused: by a rule; ``supports`` was not asked.
    """
    w = Writer()
    program = Program(w, [], [], [])
    position = -1
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            position += 1
            w.known[node] = _input(program, node.meta["val"], position)
        elif node.op == "get_attr":
            constant = getattr(graph, node.target)
            w.known[node] = _input(program, constant, constant)
        elif node.op == "call_function" and not isinstance(node.meta["val"], torch.SymInt):
            if node.target is operator.getitem:
                source: Any = node.args[0]
                w.known[node] = w.known[source][node.args[1]]
            else:
                w.known[node] = RULES[node.target](w, Call(node))
    _outputs(graph, program)
    return program


def _input(program: Program, fake: Any, place: Any) -> Any:
    """What the model may read of an input: a tensor, or several, if an operator of another piece returned them."""
    if isinstance(fake, (list, tuple)):
        return tuple(_input(program, part, (place, at)) for at, part in enumerate(fake))
    if not isinstance(fake, torch.Tensor):
        return None
    made = Value(f"i{len(program.inputs)}", fake.dtype)
    program.inputs.append((made, place, fake.shape))
    return made


def _outputs(graph: fx.GraphModule, program: Program) -> None:
    places = {node: at for at, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
    made: dict[fx.Node, int] = {}
    (output,) = graph.graph.find_nodes(op="output")
    returned: Any = output.args[0]
    for item in returned:
        if not isinstance(item, fx.Node):
            program.outputs.append(("constant", item))
        elif item in places:
            program.outputs.append(("input", places[item]))
        elif isinstance(item.meta["val"], torch.SymInt):
            program.outputs.append(("size", item.meta["val"]))
        else:
            value, fake = program.writer.known[item], item.meta["val"]
            if isinstance(fake, (list, tuple)):  # what an operator of another piece takes apart
                pairs = list(zip(value, fake, strict=True))
                program.outputs.append(("several", [one and _result(program, one, other) for one, other in pairs]))
                continue
            if item not in made:
                made[item] = _result(program, value, fake)
            program.outputs.append(("result", made[item]))


def _result(program: Program, value: Any, fake: Any) -> int:
    """The tensor as a result of the model, its dimensions in the order of eager's memory; which one it is."""
    w, order = program.writer, order_of(fake)
    if order == tuple(range(fake.dim())):
        value = w.op("Identity", value)  # an output has a name of its own
    else:
        value = w.op("Transpose", value, perm=list(order))
    program.results.append(Result(value.name, value.dtype, tuple(fake.shape), tuple(fake.stride()), order))
    return len(program.results) - 1


@dataclass(frozen=True)
class Plan:
    """What a call with some sizes needs."""

    sizes: list[tuple[str, torch.Tensor]]
    rooms: list[Room]


def _found(values: Sequence[Any], place: Any) -> torch.Tensor:
    """The tensor of a call, or the constant, that a ``Program`` has for an input."""
    if isinstance(place, tuple):
        whole: Any = _found(values, place[0])
        return whole[place[1]]
    return values[place] if isinstance(place, int) else place


class Runner:
    """Runs a model on torch's memory; may be called by several threads.

    Args:
        graph: run operator by operator if an input has not the dtype that torch's stand-in has, as happens.
        program: what the graph has become.
        symbols: of its inputs.
        session: of the model; None if all that the graph returns are inputs and numbers.
        names: the inputs that the model has.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        program: Program,
        symbols: Symbols,
        session: Session | None,
        names: Sequence[str],
    ) -> None:
        self.eagerly, self.program, self.symbols, self.session = graph.forward, program, symbols, session
        self.feeds = [(v.name, place, v.dtype) for v, place, _ in program.inputs if v.name in names]
        self.sizes = {name: s for name, s in program.writer.sizes_given.items() if name in names}
        self.plans: dict[tuple[int, ...], Plan] = {}

    def plan(self, read: tuple[int, ...]) -> Plan:
        """The plan for some sizes; the last ones are kept."""
        found = self.plans.get(read)
        if found is None:
            sizes = [
                (name, torch.tensor([self.symbols.computed(n, read) for n in given]))
                for name, given in self.sizes.items()
            ]
            found = Plan(sizes, [result.planned(self.symbols, read) for result in self.program.results])
            if len(self.plans) >= PLANS:
                self.plans.clear()
            self.plans[read] = found
        return found

    def run(self, *values: Any) -> Sequence[Any]:
        """The graph's outputs."""
        read = self.symbols.read(values)
        given = [_found(values, place) for _, place, _ in self.feeds]
        if any(tensor.dtype is not dtype for tensor, (_, _, dtype) in zip(given, self.feeds, strict=True)):
            return self.eagerly(*values)
        tensors = self.computed(given, self.plan(read)) if self.session is not None else []
        found: list[Any] = []
        for kind, what in self.program.outputs:
            if kind == "result":
                found.append(tensors[what])
            elif kind == "input":
                found.append(values[what])
            elif kind == "several":
                found.append(tuple(None if at is None else tensors[at] for at in what))
            else:
                found.append(self.symbols.computed(what, read) if kind == "size" else what)
        return tuple(found)

    def computed(self, given: Sequence[torch.Tensor], plan: Plan) -> list[torch.Tensor]:
        """What the model returns, in new memory, of the tensors that it reads."""
        assert self.session is not None
        session = self.session.get()
        binding = session.io_binding()
        held = [tensor.detach().resolve_neg().contiguous() for tensor in given]  # until the model has run
        for (name, _, dtype), tensor in zip(self.feeds, held, strict=True):
            binding.bind_input(name, "cpu", 0, ELEMENT[dtype], tensor.shape, tensor.data_ptr())
        for name, sizes in plan.sizes:
            binding.bind_input(name, "cpu", 0, ELEMENT[torch.int64], sizes.shape, sizes.data_ptr())
        made = [torch.empty(room.shape, dtype=room.dtype) for room in plan.rooms]
        for result, tensor in zip(self.program.results, made, strict=True):
            binding.bind_output(result.name, "cpu", 0, ELEMENT[result.dtype], tensor.shape, tensor.data_ptr())
        session.run_with_iobinding(binding)
        return [room.finished(tensor) for room, tensor in zip(plan.rooms, made, strict=True)]
