"""From an ATen graph to a ``Program``: walks the graph once and asks each operator's rule for its value."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from jitney.config import config
from jitney.errors import BackendFailed
from jitney.torch_compat import operator_effects, torch_private
from jitney_lowering.aten.builder import Builder
from jitney_lowering.aten.call import Call, Rule, axis, bound
from jitney_lowering.aten.limits import limit_of
from jitney_lowering.aten.overflow import must_fit
from jitney_lowering.aten.picks import Picks
from jitney_lowering.aten.python_floats import computed
from jitney_lowering.aten.tensor import ZERO, Float, Tensor, contiguous, corner, dense, overlaps, unrepeated
from jitney_lowering.aten.torch_sizes import Sizes
from jitney_lowering.aten.updates import IN_PLACE, Write, part_of, writes
from jitney_lowering.graph_nodes import (
    is_mutable,
    is_strided,
    live_nodes,
    made_of,
    read_results,
    shown_nodes,
    uses,
    why_not,
)
from jitney_lowering.index import Index, Size
from jitney_lowering.ir.loops import Extern, Number, Program, Strided
from jitney_lowering.ir.values import Constant, Load, Pair, apply, constant, walk
from jitney_lowering.policy import CPU, Policy
from jitney_lowering.repeats.boundary import Watch
from jitney_lowering.repeats.result_order import in_order
from jitney_lowering.repeats.short_graph import shortened
from jitney_lowering.rules import COMPLEX_RULES, RULES, VIEWS
from jitney_lowering.signals import NoFormula, NoRule, NotLowered

# Of operators that find elements by their places in a storage, which argument says where the first one is.
_STORAGE_OFFSETS: dict[Any, int] = {
    torch.ops.aten.as_strided.default: 3,
    torch.ops.aten.as_strided_copy.default: 3,
    torch.ops.aten.as_strided_scatter.default: 4,
}
PLAIN = (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


def lower(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    relaxed_math: bool = False,
    policy: Policy = CPU,
    whole: Mapping[fx.Node, str] | None = None,
    updates: Mapping[int, int] = MappingProxyType({}),
    inlined: bool = False,
    once: bool = False,
) -> Program:
    """What the graph computes, as loops and extern calls.

    Args:
        graph: functional ATen operators, each node with its FakeTensor (or symbol) in ``meta["val"]``; one tuple as
            output.
        inputs: a FakeTensor, ``SymInt`` or plain value for each placeholder.
        relaxed_math: results of float16 and bfloat16 operators need not be rounded before the next operator.
        policy: what suits the machine.
        whole: operators that run as a whole though they could be loops, and why.
        updates: outputs that the caller copies into an input: see ``CompileRequest``. Some are written there instead,
            and are that input.
        inlined: is nothing kept in memory because several values are computed of it, or much of few?
        once: of equal blocks that follow each other, lower only some, unless the policy has readers compute anew;
            ``schedule`` adds the others, or raises
            ``NotRepeated``. The program is that of a shorter graph then: see ``Program.repetition``.

    Raises:
        NotLowered: the graph has values that loops and extern calls cannot express, such as sizes that depend on data.
    """
    shapes = next((v.fake_mode.shape_env for v in inputs if isinstance(v, torch_private.FakeTensor)), None)
    known = len(shapes.guards) if shapes is not None else 0
    short = None
    if once and not updates and not whole and not policy.recompute:  # a reader computes layers that are left out
        short = shortened(graph)
    if short is not None:
        graph, inputs = short[0], [inputs[n] for n in short[1].positions]
    lowering = _Lowering(graph, inputs, relaxed_math, policy, whole or {}, updates, inlined)
    if short is not None:
        lowering.watch = Watch(short[1])
    program = lowering.program()
    if lowering.watch is not None:
        program.repetition = lowering.watch.repetition
    if lowering.unsafe_updates:
        less = {output: argument for output, argument in updates.items() if output not in lowering.unsafe_updates}
        program = _Lowering(graph, inputs, relaxed_math, policy, whole or {}, less).program()
    if config.verify:
        program.verify()
        if shapes is not None and len(shapes.guards) != known:  # the entry's guards have been written already
            raise BackendFailed(f"the lowering took a size for a constant: {shapes.guards[known].expr}")
    return program


class _Lowering:
    def __init__(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        relaxed: bool,
        policy: Policy,
        whole: Mapping[fx.Node, str],
        updates: Mapping[int, int],
        inlined: bool = False,
    ) -> None:
        self.graph = graph
        self.whole = whole
        self.inlined = inlined
        self.given = list(inputs)
        self.sizes = Sizes(inputs)
        # A graph that writes in place must not read later what it means to read now: nothing is put off there.
        self.writes = any(is_mutable(n) for n in graph.graph.nodes)
        shown = frozenset(graph.graph.nodes) if self.writes else shown_nodes(graph.graph, updates)
        self.builder = Builder(self.sizes, relaxed, policy, shown)
        self.values: dict[fx.Node, Any] = {}  # Tensor, Index, plain values; lists of these
        self.inputs: list[str | Size | None] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.floats: set[int] = set()
        self.numbers: list[Index] = []
        self.moved: dict[tuple[Strided, torch.device], Tensor] = {}  # numbers of the CPU -> their copies elsewhere
        self.outputs: list[Any] = []
        self.watch: Watch | None = None
        self.live = live_nodes(graph.graph)
        self.in_place = {} if self.writes else writes(graph.graph, updates, self.live)
        # The numbers of a complex input are another name of its memory.
        self.in_place = {n: w for n, w in self.in_place.items() if not w.input.meta["val"].is_complex()}
        self.by_kernels = self._wholes() if policy.scatters or policy.scatters_in_order else set()
        # What comes before each: steps, what kernels look at, all that is looked at.
        self.input_writes: list[tuple[Write, int, int, int]] = []

    def program(self) -> Program:
        for node in self.graph.graph.nodes:
            if node in self.live or node.op == "placeholder":
                if self.watch is not None:
                    self.watch.look(node, self.values, self.builder)
                self.builder.node = node
                before = len(self.builder.steps)
                getattr(self, f"_{node.op}")(node)
        if not self.writes and not self.in_place:
            self.builder.steps = in_order(self.builder.steps, before)  # the last node is the output
        self.builder.end()
        return Program(
            self.builder.buffers,
            self.inputs,
            self.builder.steps,
            self.outputs,
            self.sizes.readings,
            self.builder.checks,
            self.constants,
            frozenset(self.floats),
            tuple(dict.fromkeys(self.numbers)),
            frozenset(self.builder.lazy),
        )

    @property
    def unsafe_updates(self) -> frozenset[int]:
        """Outputs whose input would be written though eager might have to do the call again, or fails before it."""
        copy = torch.ops.aten.copy_.default  # which does not fail
        fail = [n for n, step in enumerate(self.builder.steps) if isinstance(step, Extern) and step.target is not copy]
        last, caught = max(fail, default=-1), self.builder.caught
        # What kernels look at before a write comes before it in eager, and they do so when they run.
        unsafe = [
            write for write, at, asserts, before in self.input_writes
            if asserts or (not write.repeatable and (at < last or before < caught))
        ]  # fmt: skip
        return frozenset(write.output for write in unsafe)

    # ------------------------------------------------------------------ where values come from

    def _placeholder(self, node: fx.Node) -> None:
        value = self.given[len(self.inputs)]
        self.inputs.append(None)
        if isinstance(value, torch.SymInt):
            made = self.sizes.index(value)
            self.values[node] = made
            self.inputs[-1] = made if isinstance(made, Size) else None
        elif isinstance(value, torch.SymFloat):
            if node in self.live:
                buffer = self.builder.buffer(torch.float64, (), (), torch.device("cpu"), "in")
                self.inputs[-1] = buffer.name
                self.floats.add(len(self.inputs) - 1)
                held = self.builder.tensor(buffer)
                self.values[node] = Float(lambda at: held.load(()))
        elif isinstance(value, torch.SymBool):
            if node in self.live:
                raise NotLowered("a symbolic truth value as input")
        elif isinstance(value, torch.Tensor):
            if node in self.live:
                self.values[node] = self._input(value)
                self.inputs[-1] = self.values[node].strided.buffer
        else:
            self.values[node] = value

    def _input(self, value: torch.Tensor) -> Tensor:
        size, stride = self._geometry(value)
        buffer = self.builder.buffer(value.dtype, size, stride, value.device, "in")
        self.builder.given.add(buffer.name)
        return self.builder.filled(buffer, value)

    def _geometry(self, value: torch.Tensor) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
        size = self.sizes.shape(value.shape)
        if not is_strided(value):  # sparse, quantised, opaque: only extern calls handle it, as it is
            return size, contiguous(size)
        stride = self.sizes.shape(value.stride())
        return size, dense(size, stride, self.sizes.hint) or stride

    def _get_attr(self, node: fx.Node) -> None:
        value: Any = self.graph
        for name in str(node.target).split("."):
            value = getattr(value, name)
        if not isinstance(value, torch.Tensor):
            raise NotLowered(f"the attribute {node.target} is no tensor")
        with torch_private.without_modes():
            plain = is_strided(value) and value.dtype is not torch.complex32
            if not value.dim() and value.device.type == "cpu" and plain:
                element = constant(value.item(), value.dtype)
                self.values[node] = Tensor((), value.dtype, value.device, lambda at: element)
                return
        made = self.values[node] = self._input(value)
        assert made.strided is not None
        self.constants[made.strided.buffer] = value.detach()

    # ------------------------------------------------------------------ operators

    def _call_function(self, node: fx.Node) -> None:
        val = node.meta.get("val")
        if isinstance(val, torch.SymInt):
            made = self.values[node] = self.sizes.index(val)
            if must_fit(node, made):
                self.numbers.append(made)
        elif node.target is operator.getitem:
            source, number = node.args
            self.values[node] = self.values[source][number]  # type: ignore[index]
        elif isinstance(val, torch.SymFloat):
            self.values[node] = self._float(node)
        elif isinstance(val, torch.SymBool):
            raise NotLowered(f"the truth value {node.target} of symbolic numbers")
        else:
            self.values[node] = self._operator(node, val)

    def _float(self, node: fx.Node) -> Float:
        args = self._arguments(node.args)
        if node.target is not torch.ops.aten._local_scalar_dense.default:
            made = computed(self.builder, node.target, args)
        else:
            source = args[0]
            corner_of = tuple([ZERO] * len(source.size))
            made = Float(lambda at: apply("cast", source.load(corner_of), dtype=torch.float64))
        if self.writes or (uses(node, None, self.live) > 1 and not self.builder.is_trivial(made)):
            self.builder.realise(made)
        return made

    def _operator(self, node: fx.Node, val: Any) -> Any:
        write = self.in_place.get(node)
        if write is not None and write.output not in self.by_kernels:
            if (written := self._written(write)) is not None:
                return written
        self._before_writes(set(operator_effects.hidden_writes(node)))
        try:
            made = self._by_rule(node, val)
        except NoRule as refusal:
            if write is not None and self.values[node.args[0]] is self.values[write.input]:  # type: ignore[index]
                self.by_kernels.discard(write.output)  # so the operators write, this one and those that follow
                if (written := self._written(write)) is not None:
                    return written
            return self._extern(node, val, refusal.reason)
        results = made if isinstance(made, (list, tuple)) else [made]
        for number, result in enumerate(results):
            fake = val[number] if isinstance(made, (list, tuple)) else val
            if fake is not None and result.dtype is not fake.dtype:
                raise NotLowered(f"{node.target} gives {result.dtype}, where {fake.dtype} is expected")
            if result.wanted is None and result.strided is None:
                result.wanted = self._geometry(fake)[1]
            self._settle(node, result, number if isinstance(made, (list, tuple)) else None)
        return made

    def _by_rule(self, node: fx.Node, val: Any) -> Any:
        """What the operator's rule makes; raises ``NoRule``."""
        if node in self.whole:
            raise NoRule(self.whole[node])
        if node.target not in RULES and node.target not in COMPLEX_RULES:
            raise NoRule(why_not(node))
        arguments = self._arguments(bound(node.target, node.args, node.kwargs))
        call = Call(self.builder, node, self._beside(arguments, val), val)
        call.check()
        if not call.is_complex:
            try:
                return self._made(call, RULES.get(node.target))
            except NoFormula as error:  # torch's stand-ins take dtypes that eager's operator refuses
                raise NoRule(str(error)) from error
        if self.writes:
            raise NoRule("complex numbers beside writes")
        try:
            return self._made(call, COMPLEX_RULES.get(node.target) or RULES.get(node.target))
        except TypeError as error:  # no formula
            raise NoRule(str(error)) from error

    def _made(self, call: Call, rule: Rule | None) -> Any:
        if rule is None:
            raise NoRule(why_not(call.node))
        made = rule(call)
        for result in made if isinstance(made, (list, tuple)) else [made]:
            result.load(corner(result.size))  # what cannot be computed says so now
        return made

    def _wholes(self) -> set[int]:
        """Outputs for which elements of a whole input are replaced: kernels do, where ``memory/scatters.py`` can."""
        parts = {write.output for write in self.in_place.values() if write.parts}
        return {write.output for write in self.in_place.values()} - parts

    def _written(self, write: Write) -> Tensor | None:
        """The input after a write to it; None if the part that is written is no tensor over its memory."""
        whole = self.values[write.input]
        place = whole
        try:
            for part in write.parts:
                where = self._arguments(bound(part.target, part.args, part.kwargs)[2:])
                place = part_of(place, self._arguments(part.args[1]), part.target, where)
        except NoRule:
            return None
        if place.strided is None:
            return None
        self._before_writes({write.input})
        if write.adds and place.device.type == "cpu" and not self._refuse_outside(write, place):
            return None
        after = self.builder.checks_so_far()
        if write.last is None:
            self.builder.assign(place, self.values[write.source], after=after)
            self._note(write)
            return self.builder.tensor(self.builder.buffers[whole.strided.buffer])
        args = [place.strided, *(self._passed(a) for a in write.last.args[1:])]
        kwargs = {name: self._passed(a) for name, a in write.last.kwargs.items()}
        target, buffer = IN_PLACE[write.last.target], whole.strided.buffer
        self.builder.extern(
            Extern(
                (None,), target, tuple(args), kwargs, frozenset({buffer}), "writes", self.builder.nodes(), after=after
            )
        )
        self._note(write)
        return self.builder.tensor(self.builder.buffers[buffer])

    def _refuse_outside(self, write: Write, place: Tensor) -> bool:
        """Look at the indices before: a sum that stops half-way must not be done again. False if nobody knows how."""
        assert write.last is not None
        arguments = self._arguments(bound(write.last.target, write.last.args, write.last.kwargs))
        if isinstance(arguments[1], list):
            picked = [(d, index, True) for d, index in enumerate(arguments[1]) if index is not None]
        else:
            picked = [(axis(arguments[1], len(place.size)), arguments[2], False)]
        if not place.size or any(index.dtype not in (torch.int64, torch.int32) for _, index, _ in picked):
            return False
        for dim, index, wraps in picked:
            Picks(self.builder, index, place.size[dim], "index out of range", IndexError, wraps=wraps, used=False)
        return True

    def _note(self, write: Write) -> None:
        made = self.builder
        self.input_writes.append((write, len(made.steps) - 1, made.asserts_caught, made.caught))

    def _before_writes(self, nodes: set[fx.Node]) -> None:
        """What is put off, and reads what is written to, is computed now."""
        written = {a for a in nodes if isinstance(self.values.get(a), Tensor)}
        if not written:
            return
        buffers = {self.builder.realise(self.values[a]).buffer for a in written}
        readers = made_of({root for a in written for root in self._made_there(a, buffers)}, self.values)
        for node in [n for n in self.values if n in readers]:
            value = self.values[node]
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(tensor, Tensor) and tensor.strided is None:
                    if any(isinstance(v, Load) and v.buffer in buffers for v in walk(tensor.load(corner(tensor.size)))):
                        self.builder.realise(tensor)

    def _made_there(self, node: fx.Node, buffers: Collection[str]) -> Iterator[fx.Node]:
        """The node, and all that it is another name for: what it is made of and lies in one of the buffers."""
        seen, waiting = {node}, [node]
        while waiting:
            at = waiting.pop()
            yield at
            for source in at.all_input_nodes:
                value = self.values.get(source)
                several = value if isinstance(value, (list, tuple)) else [value]
                lies = any(isinstance(t, Tensor) and t.strided and t.strided.buffer in buffers for t in several)
                if lies and source not in seen:
                    seen.add(source)
                    waiting.append(source)

    def _settle(self, node: fx.Node, result: Tensor, number: int | None) -> None:
        """Decide whether the value becomes a buffer now."""
        if result.strided is not None:
            return
        if self.writes:
            self.builder.realise(result)
        elif not self.inlined and (self.builder.is_large(result) or self._is_shared(node, number, result)):
            self.builder.keep(result)

    def _is_shared(self, node: fx.Node, number: int | None, result: Tensor) -> bool:
        """Is it worth computing once for all its readers? Of a view, that is asked of what it is a view of."""
        return node.target not in VIEWS and uses(node, number, self.live) > 1 and not self.builder.is_trivial(result)

    def _arguments(self, value: Any) -> Any:
        """Nodes replaced by what they stand for."""
        if isinstance(value, fx.Node):
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return [self._arguments(v) for v in value]
        if isinstance(value, dict):
            return {k: self._arguments(v) for k, v in value.items()}
        if isinstance(value, slice):
            raise NoRule("a slice object as argument")
        return value

    def _beside(self, value: Any, result: Any) -> Any:
        """The arguments; tensors of the CPU without dimensions are moved to the device of what is computed of them."""
        one = result[0] if isinstance(result, (list, tuple)) and result else result
        if not isinstance(one, torch.Tensor) or one.device.type == "cpu":
            return value
        if isinstance(value, list):
            return [self._beside(v, one) for v in value]
        if not isinstance(value, Tensor) or isinstance(value, Float) or value.size or value.device.type != "cpu":
            return value
        element = value.load(())
        if all(isinstance(v, (Constant, Pair)) for v in walk(element)):
            return Tensor((), value.dtype, one.device, lambda at: element)
        place = self.builder.realise(value)
        if self.writes or (place, one.device) not in self.moved:
            copy = torch.ops.aten._to_copy.default
            buffer = self.builder.buffer(value.dtype, (), (), one.device, "x")
            self.builder.extern(
                Extern(
                    (buffer.name,), copy, (place,), {"device": one.device}, reason="moves", nodes=self.builder.nodes()
                )
            )
            self.moved[place, one.device] = self.builder.tensor(buffer)
        return self.moved[place, one.device]

    # ------------------------------------------------------------------ extern calls

    def _extern(self, node: fx.Node, val: Any, reason: str) -> Any:
        schema = getattr(node.target, "_schema", None)
        written: set[str] = set()
        args = [self._passed(a) for a in node.args]
        kwargs = {name: self._passed(a) for name, a in node.kwargs.items()}
        if node.target in _STORAGE_OFFSETS:
            args, kwargs = self._in_own_storage(node, args, kwargs)
        if schema is not None and schema.is_mutable:
            for number, parameter in enumerate(schema.arguments):
                given = args[number] if number < len(args) else kwargs.get(parameter.name)
                if parameter.alias_info is not None and parameter.alias_info.is_write:
                    written |= {s.buffer for s in (given if isinstance(given, list) else [given])
                                if isinstance(s, Strided)}  # fmt: skip
        written |= {self.values[a].strided.buffer for a in operator_effects.hidden_writes(node)}
        several = isinstance(val, (list, tuple))
        read = read_results(node, self.live) if several else set()
        results: list[Any] = []
        for number, fake in enumerate(val if several else [val]):
            if isinstance(fake, torch.Tensor) and (not several or number in read):
                size, stride = self._geometry(fake)
                results.append(
                    self.builder.filled(self.builder.buffer(fake.dtype, size, stride, fake.device, "x"), fake)
                )
            else:
                if isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                    raise NotLowered(f"{node.target} gives a number that only the graph knows")
                results.append(None)
        names = tuple([r.strided.buffer if r is not None else None for r in results])
        self._note_limit(node, names)
        self.builder.extern(
            Extern(names, node.target, tuple(args), kwargs, frozenset(written), reason, self.builder.nodes())
        )
        return results if several else results[0]

    def _in_own_storage(
        self, node: fx.Node, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of an operator that counts places from where its tensor's storage begins.

        Temporaries lie somewhere in a larger storage: such an operator is given a copy with a storage of its own.
        """
        at = _STORAGE_OFFSETS[node.target]
        first, x = args[at] if len(args) > at else kwargs.get("storage_offset"), args[0]
        if first is None or x.buffer in self.builder.given:
            return args, kwargs
        given = node.args[0].meta["val"]  # type: ignore[union-attr]
        size, stride = self._geometry(given)
        buffer = self.builder.buffer(x.dtype, size, stride, given.device, "x")
        clone = torch.ops.aten.clone.default
        self.builder.extern(Extern((buffer.name,), clone, (x,), {}, reason="a storage", nodes=self.builder.nodes()))
        return [self.builder.tensor(buffer).strided, *args[1:at], first - given.storage_offset()], {}

    def _note_limit(self, node: fx.Node, names: Sequence[str | None]) -> None:
        """Results that are indices are in range, until somebody writes to them."""
        limit = None if self.writes else limit_of(node, self.sizes)
        name = None if limit is None else names[limit[0]]
        if limit is not None and name is not None:
            self.builder.limits[name] = limit[1]

    def _passed(self, value: Any) -> Any:
        """An argument as extern calls get it."""
        if isinstance(value, fx.Node):
            found = self.values[value]
            fake = value.meta["val"]
            if isinstance(found, Float):
                return self._number(found)
            if isinstance(found, Tensor):
                return self._in_memory(found, fake)
            if isinstance(found, (list, tuple)):
                return [self._in_memory(f, v) if isinstance(f, Tensor) else f for f, v in zip(found, fake, strict=True)]
            return found
        if isinstance(value, (list, tuple)):
            return type(value)([self._passed(v) for v in value])
        if isinstance(value, dict):
            return {k: self._passed(v) for k, v in value.items()}
        return value

    def _number(self, value: Float) -> Number:
        where = self.builder.realise(value)
        return Number(where.buffer, where.dtype, where.size, where.stride, where.offset)

    def _in_memory(self, tensor: Tensor, fake: Any) -> Strided:
        """The tensor with the strides that it has in eager: operators choose the strides of their results by them.

        Of an expanded tensor any whole one is as good, but where rows begin at multiples of something, as those of a
        mask must that attention reads.
        """
        strided = self.builder.realise(tensor)
        if not is_strided(fake):
            return strided
        stride = self._geometry(fake)[1]
        if any(s == 0 for s in tensor.size) or not self._differ(strided, stride):
            return Strided(strided.buffer, strided.dtype, strided.size, stride, strided.offset)
        if not overlaps(tensor.size, stride, self.sizes.hint):
            return self.builder.stored(tensor, stride)
        if dense(unrepeated(tensor.size, stride), stride, self.sizes.hint) is not None:
            return strided
        return self._expanded(tensor, stride) or strided

    @staticmethod
    def _differ(strided: Strided, stride: Sequence[Index]) -> list[int]:
        """Dimensions along which these strides lead elsewhere."""
        return [d for d, s in enumerate(strided.size) if s != 1 and strided.stride[d] is not stride[d]]

    def _expanded(self, tensor: Tensor, stride: Sequence[Index]) -> Strided | None:
        """A new buffer with these strides, without what those of 0 repeat; None if elements would still overlap."""
        narrow = unrepeated(tensor.size, stride)
        if overlaps(narrow, stride, self.sizes.hint):
            return None
        source = tensor.view(
            narrow, lambda at: [ZERO if t == 0 else i for i, t in zip(at, stride, strict=True)], whole=False
        )
        made = self.builder.stored(source, stride)
        return Strided(made.buffer, made.dtype, tensor.size, tuple(stride), made.offset)

    # ------------------------------------------------------------------ results

    def _output(self, node: fx.Node) -> None:
        (results,) = node.args
        for result in results:  # type: ignore[union-attr]
            if not isinstance(result, fx.Node):
                self.outputs.append(self.sizes.index(result) if isinstance(result, torch.SymInt) else result)
                continue
            self.builder.node = result
            value = self.values[result]
            if isinstance(value, Float):
                value = self._number(value)
            self.outputs.append(self._result(value, result.meta["val"]) if isinstance(value, Tensor) else value)

    def _result(self, tensor: Tensor, fake: Any) -> Strided:
        """The tensor with eager's strides, expanded dimensions included."""
        strided = self.builder.realise(tensor)
        if not is_strided(fake):
            return strided
        stride = self._geometry(fake)[1]
        if any(s == 0 for s in tensor.size):
            return Strided(strided.buffer, strided.dtype, strided.size, stride, strided.offset)
        if self._differ(strided, stride):
            return self._expanded(tensor, stride) or strided
        return Strided(strided.buffer, strided.dtype, tensor.size, stride, strided.offset)
