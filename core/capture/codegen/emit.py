"""What a capture becomes: one Python function with guards, the graph call, pending writes, and the way on."""

from __future__ import annotations

import collections
import functools
import math
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney._util import generated_code
from jitney._util.lazy_graph_module import LazyGraphModule
from jitney.capture.builtin_iterators import item_ahead, parts
from jitney.capture.codegen import cleanups, relations
from jitney.capture.codegen.iterator_positions import move_of, put
from jitney.capture.codegen.rebuild import Rebuilder
from jitney.capture.codegen.rebuild_iterators import escapes
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.frame import NULL, After, Frame
from jitney.capture.interpreter.resume import (
    Exit,
    Layout,
    callee_slot,
    exits,
    layout_of,
    origin,
    quiet_rest,
    stack_kinds,
    step_code,
)
from jitney.capture.interpreter.resume_serialization import Made
from jitney.capture.interpreter.signals import Break, GiveUp
from jitney.capture.marks import frame_only
from jitney.capture.numpy.memory import FETCHES
from jitney.capture.python.containers import dict_base
from jitney.capture.python.logs import waiting_calls
from jitney.capture.torch import rows
from jitney.capture.torch.autograd.backward import backward
from jitney.capture.torch.conversions import CHECKED
from jitney.capture.torch.optimizers import waiting_steps
from jitney.capture.torch.sequences import generators
from jitney.capture.world import draws, late_warnings
from jitney.capture.world.record import ABSENT, Record, empty_slot
from jitney.capture.world.set_order import JOINS
from jitney.config import config
from jitney.guards import Guard, Pool, Program, Source
from jitney.guards.assumptions import Assumptions
from jitney.guards.condition import Condition, conditions
from jitney.guards.frozen import Frozen, with_frozen
from jitney.guards.program import MISS, guards_held
from jitney.guards.source import item_of
from jitney.guards.tensors import TensorFact, tensor_check, tensor_facts
from jitney.torch_compat import markers
from jitney.torch_compat.rng_state import RandomStates
from jitney.torch_compat.subclasses import plain

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter


# The line of an emitted function that makes room for conditions found while the graph is compiled.
LATE_GUARDS = "# conditions on sizes that the compiled graph adds"
FAILED = "return _failed(_error, ({}), {})"
FEW = 64  # items of a deque that are set one by one
MANY = 8  # more tensors than these are passed on as one tuple
RESERVED = re.compile(  # names that emitted code gives its own variables and constants
    r"MISS|_(?:[corv]|at|thunk|resume|globals)\d+|_(?:b|type|state|drive|parts|torch|math|graph|tensors|error|k|x"
    r"|retry|failed|unwritten|handled|item_of|from_numpy|from_readonly|from_scalar|plain"
    r"|inputs|often|guard_errors|facts|value|drawn|random_states|[ds]\d+)"
)
# (code, instruction index, layout, globals) -> the callable that continues there
MakePoint = Callable[[CodeType, int, Layout, dict[str, Any]], Any]


@dataclass(slots=True)
class Emitted:
    """The emitted function's text and namespace, and the graph that it calls (if any) as ``namespace['_graph']``."""

    source: str
    namespace: dict[str, Any]
    graph: fx.GraphModule | None
    inputs: list[Any]
    outputs: int
    guards: list[Guard]
    extra_guards: list[str] = field(default_factory=list)
    changes_state: bool = False
    restarts: bool = False  # does the frame run eagerly where its graph, which writes to inputs, says ``Unwritten``?
    undone: tuple[int, ...] = ()  # inputs whose writes a graph that raises undoes, for a ``try`` of the program's
    op_count: int = 0
    function: Any = None
    tensor_check: Callable[[], Callable[..., bool]] | None = None
    size_guards: Callable[[Callable[[Source], str]], list[str]] | None = None
    expression: Callable[[Source], str] | None = None  # what sources are called in the emitted function, until then
    conditions: list[Condition] = field(default_factory=list)  # what ``size_guards`` says, for reports
    comparisons: list[Any] = field(default_factory=list)  # of numbers on the host, see ``GuardSet``
    tensors: list[TensorFact] = field(default_factory=list)  # what ``_tensors`` checks
    assumptions: Assumptions = field(default_factory=Assumptions)
    origins: list[tuple[str, Any]] = field(default_factory=list)  # of the graph's inputs: name, reference
    made: dict[int, Made] = field(default_factory=dict)  # by id: how code in the namespace was made of the user's

    def add_size_guards(self) -> None:
        """Conditions on symbolic sizes that compiling the graph has found; before the function is built."""
        if self.size_guards is None or self.expression is None:
            return
        found = [text for text in self.size_guards(self.expression) if text not in self.extra_guards]
        self.conditions = conditions(self.size_guards)
        self.size_guards = self.expression = None
        self.extra_guards += found
        lines = self.source.splitlines()
        at = next(i for i, line in enumerate(lines) if line.strip() == LATE_GUARDS)
        space = lines[at][: lines[at].index("#")]
        lines[at : at + 1] = [f"{space}if not ({text}): return MISS" for text in found]
        self.source = "\n".join(lines) + "\n"

    def freeze(self, tensors: Sequence[torch.Tensor]) -> None:
        """The numbers of these inputs are in the compiled graph: it is for them, as long as nobody writes to them."""
        if not tensors:
            return
        self.assumptions.keep_private("the numbers of parameters are in its graph (options={'freeze': True})")
        sources = {id(reference()): name for name, reference in self.origins if reference is not None}
        facts = self.namespace["_facts"]
        at = {source.name: i for i, (source, *_) in enumerate(facts)}
        frozen = {at[sources[id(tensor)]]: Frozen(tensor) for tensor in tensors}
        self.namespace["_tensors"] = with_frozen(self.namespace["_tensors"], frozen)
        self.guards += [Guard(facts[i][0], "frozen", one) for i, one in frozen.items()]

    def forget_capture(self) -> None:
        """Let go of what says how to make this again: the objects of the program that capture went through."""
        self.assumptions, self.made = Assumptions(), {}

    def complete(self) -> None:
        """Make the tensor check; torch's global state must be the user's, since the check remembers it."""
        if self.tensor_check is not None:
            self.namespace["_tensors"] = self.tensor_check()
            self.tensor_check = None


def call_text(signature: str) -> str:
    """The arguments that pass a function's parameters on: ``a, b, /, *args, k=None`` -> ``a, b, *args, k=k``."""
    out = []
    keyword = False
    for part in filter(None, (p.strip() for p in signature.split(","))):
        name = part.partition("=")[0]
        if part == "/":
            continue
        if part == "*":
            keyword = True
        elif part.startswith("*"):
            keyword = True
            out.append(part)
        else:
            out.append(f"{name}={name}" if keyword else name)
    return ", ".join(out)


class Emitter:
    """Assembles the emitted function from the interpreter's final state."""

    def __init__(
        self, vm: Interpreter, signature: str, state: Any, drive: Any, make_point: MakePoint, through: Any
    ) -> None:
        taken = [name for name in re.findall(r"\w+", signature) if RESERVED.fullmatch(name)]
        if taken:
            raise GiveUp(f"emitted code needs the name {taken[0]} for itself", "give the parameter another name")
        self.vm = vm
        self.signature = signature
        self.pool = Pool(
            {
                "MISS": MISS,
                "_state": state,
                "_drive": drive,
                "_parts": parts,
                "_ahead": item_ahead,
                "_referent": weakref.ref.__call__,
                "_item_of": item_of,
                **FETCHES,
            }
            | {"_plain": plain}
            | {"_torch": torch, "_math": math}
        )
        self.program = Program(self.pool)
        self.rebuild = Rebuilder(vm, self.pool, self.program)
        self.make_point = make_point
        self.through = through
        self.effects: list[str] = []
        self.late: list[str] = []
        self.late_check: Callable[[], Callable[..., bool]] | None = None
        self.tensors: list[TensorFact] = []
        self.written: dict[type, dict[int, Source]] = {}  # what is written to after the graph, by id
        self.inputs: dict[str, int] = {}  # the graph's arguments and their order, where the prologue makes them a tuple

    # ------------------------------------------------------------------ the two endings

    def returned(self, value: Any) -> Emitted:
        """The frame returned ``value``."""
        result = self.rebuild.expr(value)
        self._pending_writes()
        return self._assemble([f"return {result}"])

    def broken(self) -> Emitted:
        """Capture stopped before the innermost frame's current instruction."""
        frames = self.vm.frames
        cleanups.check(frames)
        self.rebuild.goes_on = True
        tail: list[str] = []
        thunk = "None"
        for depth in range(len(frames) - 1, -1, -1):
            how = "native" if depth == len(frames) - 1 else self._treatment(frames[depth + 1])
            instance = "None" if how != "instance" else self.rebuild.expr(frames[depth + 1].instance)
            call = self._step(frames[depth], how, thunk, instance)
            if depth:
                name = f"_thunk{depth}"
                tail.append(f"def {name}(): return _drive({call})")
                thunk = name
            else:
                tail.append(f"return {call}")
        self._pending_writes()
        return self._assemble(tail)

    @staticmethod
    def _treatment(frame: Frame) -> str:
        return {After.PUSH: "push", After.DISCARD: "drop", After.INSTANCE: "instance"}[frame.after]

    def _step(self, frame: Frame, how: str, thunk: str, instance: str) -> str:
        """The call of a frame's step function, as text."""
        code, at = origin(frame.info.code, frame.at)
        instr = decode(code).instrs[at]
        kinds = stack_kinds(frame.saved)
        here = layout_of(frame, code, at, kinds)
        try:
            leaving = exits(instr, kinds)
        except KeyError:
            raise GiveUp(f"the instruction {instr.op} cannot be run on its own") from None
        if how != "native":
            leaving = [e for e in leaving if not e.jumped]
        leave: list[tuple[Exit, Layout, int | None]] = []
        points: list[str] = []
        for exit_ in leaving:
            there = layout_of(frame, code, exit_.index, exit_.stack)
            if quiet_rest(code, exit_.index) is not None:
                leave.append((exit_, there, None))
                continue
            point = self.make_point(code, exit_.index, there, frame.globals)
            leave.append((exit_, there, len(points)))
            points.append(self.pool.object(point, "resume"))
        kwnames = frame.kwnames if instr.op == "CALL" else ()
        facts = (at, here, tuple(leave), how, self._kwnames(frame, instr) or kwnames)
        made = step_code(code, *facts)
        self.rebuild.made[id(made)] = Made("step", code, facts)
        function = self.rebuild.frame_function(frame, made)
        arguments = self.rebuild.frame_arguments(frame, here, self._through(frame.saved, instr))
        extra = "".join(f"{p}, " for p in points)
        if how != "native":
            extra += f"{thunk}, {instance}"
        return f"{function}({arguments}{extra})"

    def _through(self, stack: list[Any], instr: Any) -> list[Any]:
        """The stack of a broken call, its callee ready for call-through where only its own frame is disabled."""
        at = callee_slot(instr, stack)
        if at is None:
            return stack
        callee = stack[at]
        if frame_only(callee.__func__ if type(callee) is MethodType else callee) is None:
            return stack
        stand_in = object()
        self.rebuild.remember(stand_in, f"{self.pool.object(self.through)}({self.rebuild.expr(callee)})")
        return [*stack[:at], stand_in, *stack[at + 1 :]]

    @staticmethod
    def _kwnames(frame: Frame, instr: Any) -> tuple[str, ...]:
        """The keyword names that a KW_NAMES before this CALL has set."""
        for back in (1, 2):
            if instr.op == "CALL" and frame.at >= back and frame.instrs[frame.at - back].op == "KW_NAMES":
                names = frame.instrs[frame.at - back]
                found = names.argval if isinstance(names.argval, tuple) else frame.info.code.co_consts[names.arg]
                return tuple(found)
        return ()

    # ------------------------------------------------------------------ pending writes

    def _pending_writes(self) -> None:
        """Text of every write that capture postponed. Rebuilding values finds objects to rebuild, but no writes."""
        cleanups.check_replaced(self.vm.world)
        for record in list(self.vm.world.records.values()):
            if record.dirty:
                before = len(self.effects) + len(self.late) + len(self.rebuild.lines)
                self._write_record(record)
                if len(self.effects) + len(self.late) + len(self.rebuild.lines) > before:
                    self._unaliased(record.owner or record)
        self.late += waiting_calls(self.vm, self.rebuild)
        self.late += late_warnings.lines(self.vm, self.rebuild)
        self.late += waiting_steps(self.vm, self.rebuild)
        for record, line in generators.written(self.vm, self.rebuild):
            self.late.append(line)
            self._unaliased(record)

    def _unaliased(self, record: Record) -> None:
        """A written object must not be another one that was read under a different name."""
        if isinstance(record.value, torch.Tensor):  # a training step writes to many: they are compared all at once
            self.vm.world.apart.setdefault(torch.Tensor, {})[id(record.value)] = record.source
            return
        if not record.source.is_const:
            self.written.setdefault(type(record.value), {})[id(record.value)] = record.source

    def _write_record(self, record: Record) -> None:
        target = self.program.expression(record.source)
        value = record.value
        if "advanced" in record.slots and isinstance(record.content, Iterator):
            move, early = move_of(self.vm.world, value, record.content, record.slots["advanced"])
            lines = self.rebuild.lines if early else self.late  # before writes to what it goes through, if it can be
            lines.append(f"{self.pool.object(put)}({target}, {move!r})")
            return
        if record.cell is not None:
            content = record.cell[0]
            text = f"del {target}.cell_contents" if content is NULL else None
            self.effects.append(text or f"{target}.cell_contents = {self.rebuild.expr(content)}")
        for name, found in record.slots.items():
            if found is ABSENT:
                self.effects.append(f"{self.pool.object(empty_slot)}({target}, {name!r})")
                continue
            if name == "grad" and isinstance(value, torch.Tensor):  # a C slot, twice as fast as by ``object``
                self.effects.append(f"{target}.grad = {self.rebuild.expr(found)}")
                continue
            base = "type" if isinstance(value, type) else "object"
            self.effects.append(f"_b.{base}.__setattr__({target}, {name!r}, {self.rebuild.expr(found)})")
        if record.pending:
            self.effects.append(f"_b.list.extend({target}, ({self.rebuild.each(record.pending)}))")
        if isinstance(value, dict):
            self._write_dict(record, target)
        elif isinstance(record.content, set):
            self._write_set(record, target)
        elif record.content is not None:
            self._write_sequence(record, target)

    def _set_item(self, record: Record, target: str, key: Any, value: Any) -> None:
        kind = type(record.value)
        key_text, value_text = self.rebuild.expr(key), self.rebuild.expr(value)
        if kind.__setitem__ is dict.__setitem__:
            self.effects.append(f"{target}[{key_text}] = {value_text}")
        else:
            name = self.pool.object(dict_base(record.value))
            self.effects.append(f"{name}.__setitem__({target}, {key_text}, {value_text})")

    def _write_dict(self, record: Record, target: str) -> None:
        for key, value in record.overlay.items():
            if not self.vm.world.holds(record, key, value):
                self._set_item(record, target, key, value)
        if record.content is None:
            return
        base = self.pool.object(dict_base(record.value))
        before, after = record.original, record.content
        removed = [k for k in before if k not in after]
        kept = [k for k in before if k in after]
        if list(after)[: len(kept)] != kept:
            self.effects.append(f"{base}.clear({target})")
            removed, changed = [], list(after)
        else:
            changed = [k for k in after if k not in before or after[k] is not before[k]]
        for key in removed:
            self.effects.append(f"{base}.__delitem__({target}, {self.rebuild.expr(key)})")
        for key in changed:
            self._set_item(record, target, key, after[key])

    def _write_sequence(self, record: Record, target: str) -> None:
        before, after = record.original, record.content
        items = self.rebuild.each(list(after))
        if isinstance(record.value, list):
            same = len(after) >= len(before) and all(a is b for a, b in zip(before, after, strict=False))
            if same:
                self.effects.append(f"_b.list.extend({target}, ({self.rebuild.each(after[len(before) :])}))")
            else:
                self.effects.append(f"_b.list.__setitem__({target}, _b.slice(None), ({items}))")
        else:
            base = self.pool.object(collections.deque)
            changed = [(i, new) for i, (old, new) in enumerate(zip(before, after, strict=False)) if old is not new]
            if len(after) == len(before) and (2 * len(changed) <= len(after) or len(after) <= FEW):  # iterators go on
                self.effects += [f"{base}.__setitem__({target}, {i}, {self.rebuild.expr(new)})" for i, new in changed]
            else:
                self.effects += [f"{base}.clear({target})", f"{base}.extend({target}, ({items}))"]

    def _write_set(self, record: Record, target: str) -> None:
        """What is in it stays where it is, on which its order depends."""
        for method, args in self.vm.world.set_orders.written(record.content):
            given = "".join(f", {self._joined(arg) if method in JOINS else self.rebuild.expr(arg)}" for arg in args)
            self.effects.append(f"_b.set.{method}({target}{given})")

    def _joined(self, items: Any) -> str:
        text = f"({self.rebuild.each(list(items))})"
        return text if isinstance(items, list | tuple) else f"_b.set({text})"

    # ------------------------------------------------------------------ assembling

    def _undone(self) -> tuple[int, ...]:
        """Inputs whose writes have to be undone where the graph raises within a ``try``, of which all is known."""
        tracer = self.vm.tracer
        if not self.vm.handled or tracer.data_writes or tracer.writes_statistics():
            return ()
        written = set(tracer.written())
        return tuple(i for i, given in enumerate(tracer.inputs) if id(given.value) in written)

    def _assemble(self, tail: list[str]) -> Emitted:
        vm, tracer = self.vm, self.vm.tracer
        outputs = self.rebuild.outputs
        rows.check(vm, outputs)
        graph = None
        graph_lines, restarts = draws.lines(vm, self.rebuild), False
        undone: tuple[int, ...] = ()
        restored: list[str] = []
        used = tracer.op_count > 0 or tracer.changes_state
        for source, flag in tracer.tape.toggle_back(tracer, outputs):
            self.late.append(f"{self.program.expression(source)}.requires_grad_({flag})")
        if used:
            tracer.finish(outputs)
            arguments, given = self._arguments(), call_text(self.signature)
            names = "".join(f"_o{i}, " for i in range(len(outputs)))
            call = f"{names}= _graph({arguments})" if names else f"_graph({arguments})"
            arguments += "," * bool(arguments)
            mutates = tracer.mutates_inputs()
            if tracer.tape.clears_first(tracer.graph.nodes, backward):  # as in eager, before the graph needs memory
                graph_lines += [f"{self.program.expression(source)}.grad = None" for source in tracer.tape.cleared]
            if graph_lines:  # who only asks whether the guards hold stops there, before anything is drawn or dropped
                self.pool.namespace["_held"] = guards_held
                graph_lines.insert(0, "_held()")
            devices = sorted(map(str, tracer.fake_mode.draws))
            undone = self._undone() if mutates and not tracer.checked else ()
            draws_numbers = bool(devices or vm.draws)
            if mutates and not tracer.checked and draws_numbers and not undone:
                graph_lines.append(call)  # states of generators would be noted at each call
            else:
                restarts = mutates and not tracer.checked
                if devices:  # the frame will run eagerly, and is to draw the same numbers as in eager
                    self.pool.namespace["_random_states"] = RandomStates
                    graph_lines.append(f"_drawn = _random_states({devices})")
                noted, restored = draws.keeping(vm, self.rebuild)
                caught = "_unwritten" if restarts else "Exception"
                graph_lines = [*noted, *graph_lines, "try:", f"    {call}", f"except {caught} as _error:"]
                if mutates and tracer.checked:  # what is checked is checked before anything is written
                    graph_lines.append(f"    if not _b.str(_error).startswith({CHECKED!r}): raise")
                graph_lines += ["    _drawn.failed(_error)"] if devices else []
                graph_lines += [f"    {line}" for line in restored]
                graph_lines.append(f"    {FAILED.format(arguments, given)}")
            graph = LazyGraphModule(torch.nn.Module(), tracer.graph)
        elif outputs:
            raise Break("a tensor of unknown origin")
        prologue, extra = self._prologue()
        if escapes(self.rebuild, self.effects):
            raise GiveUp("an iterator over a container that the frame has written to is kept")
        made_late = [line for lines in self.rebuild.after.values() for line in lines]
        writes = [*self.rebuild.lines, *self.effects, *made_late, *self.late]
        body = ["try:", *(f"    {line}" for line in prologue or ["pass"])]
        body += ["except _guard_errors:", "    return MISS", *graph_lines, *writes]
        if markers.wanted():
            body = ["_entered()", *body]  # which ``compiling`` puts in
        lines = [f"def _entry({self.signature}):", *(f"    {line}" for line in [*body, *tail])]
        self.pool.namespace["_guard_errors"] = Exception
        return Emitted(
            source="\n".join(lines) + "\n",
            namespace=self.pool.namespace,
            graph=graph,
            inputs=[tracer.pristine(i.value) for i in tracer.inputs],
            outputs=len(outputs),
            guards=vm.world.guards,
            extra_guards=extra,
            changes_state=tracer.changes_state > 0,
            restarts=restarts,
            undone=undone,
            op_count=tracer.op_count,
            tensor_check=self.late_check,
            size_guards=vm.symbols.guards if vm.symbols.sources else None,
            expression=self.program.expression,
            comparisons=vm.world.comparisons,
            tensors=self.tensors,
            assumptions=vm.world.assumptions,
            made=self.rebuild.made,
            origins=[_origin(given.source, tracer.adopted.get(id(given.value))) for given in tracer.inputs],
        )

    def _arguments(self) -> str:
        """The graph's arguments: one tuple for many of them, where they are the tensors that the prologue checks."""
        expression, tracer = self.program.expression, self.vm.tracer
        names = [expression(given.source) for given in tracer.inputs]
        checked = {expression(source) for _, source in tracer.adopted.values()}
        if len(names) <= MANY or len(names) != len(tracer.adopted) or checked != set(names):
            return ", ".join(names)
        self.inputs = {name: i for i, name in enumerate(names)}
        return "*_inputs"

    def _prologue(self) -> tuple[list[str], list[str]]:
        """Lines that check and fetch; the checks among them that are no single Guard."""
        vm, program = self.vm, self.program
        found = list(vm.tracer.adopted.items())
        if self.inputs:
            found.sort(key=lambda item: self.inputs[program.expression(item[1][1])])
        adopted = [pair for _, pair in found]
        tensor_names = [program.expression(source) for _, source in adopted]
        fakes = [key for key, _ in found]
        strides = []
        by_id = {id(f): f for _, f in (k for k in vm.tracer.kept if isinstance(k, tuple))}
        for key, name in zip(fakes, tensor_names, strict=True):
            text = vm.symbols.strides(vm.tracer.pristine(by_id[key]), program.expression)
            if text is not None:
                name = program.expression(vm.tracer.rules.plain_source(by_id[key], vm.tracer.adopted[key][1]))
                strides.append(f"{name}.stride() == {text}")
        symbol_guards = vm.symbols.guards(program.expression)
        related = [*relations.between(vm, program, self.written, found, by_id)]
        untouched = relations.untouched(program, adopted, self.inputs)
        program.write(vm.world.roots)
        if config.verify:
            program.verify(vm.world.roots, vm.world.guards)
        if adopted:
            self.tensors, self.late_check = tensors_check(vm, [r for r, _ in adopted], [by_id[k] for k in fakes])
            rows = zip(adopted, self.tensors, strict=True)
            facts = [(source, tensor_facts(real, fact.sizes), fact.sizes) for (real, source), fact in rows]
            self.pool.namespace["_facts"] = facts
            if self.inputs:
                program.fetch("_inputs", f"({', '.join(tensor_names)})")
            program.check("_tensors(*_inputs)" if self.inputs else f"_tensors({', '.join(tensor_names)})")
        if untouched:
            program.check(untouched)
        if vm.asks_outside:
            self.pool.namespace["_handled"] = sys.exception
            symbol_guards = ["_handled() is None", *symbol_guards]
        extra = [*dict.fromkeys(related), *symbol_guards, *strides]
        for text in extra:
            program.check(f"({text})")
        late = [LATE_GUARDS] if vm.symbols.sources else []
        return ["if not _state(): return MISS", *program.finish(), *late], extra


def _origin(source: Source, adopted: tuple[Any, Source] | None) -> tuple[str, Any]:
    return (source.name, None) if adopted is None else (adopted[1].name, Reference(adopted[0]))


class Reference:
    """A weak reference that can be let go of: ``torch.utils.swap_tensors`` refuses tensors to which there is one."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._reference: Callable[[], Any] = weakref.ref(tensor)

    def __call__(self) -> Any:
        """The tensor, as long as it lives."""
        return self._reference()

    def forget(self) -> None:
        """Be as if the tensor had died."""
        self._reference = _nothing


def _nothing() -> None:
    return None


def tensors_check(vm: Interpreter, reals: list[Any], fakes: list[Any]) -> tuple[list[TensorFact], Callable[[], Any]]:
    """What is guarded about these tensors, and what makes the one call that checks it."""
    facts = []
    for real, fake in zip(reals, fakes, strict=True):
        sizes, strides = tuple(real.size()), tuple(real.stride())
        dims = vm.symbols.dynamic.get(id(fake))
        if dims is not None and any(dims):
            before = vm.tracer.pristine(fake)  # the program may transpose it in place
            sizes = tuple([None if isinstance(s, torch.SymInt) else int(s) for s in before.shape])
            strides = tuple([None if isinstance(s, torch.SymInt) else int(s) for s in before.stride()])
        facts.append(TensorFact.of(real, sizes, strides))
    return facts, functools.partial(tensor_check, reals, facts)


def build_function(emitted: Emitted, name: str) -> Any:
    """Compile the emitted text; the debugger and tracebacks find it by its file name."""
    filename = f"<jitney {name} {id(emitted.namespace):x}>"
    emitted.function = generated_code.build(emitted.source, filename, emitted.namespace, "_entry")
    return emitted.function
