"""Tensors while capturing: stand-ins without data, and the FX graph of what is done to them.

``Tracer`` is a torch function mode. Every torch-level call on a stand-in runs on the stand-in (for its shape, dtype,
device, aliasing) and is recorded as one node.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from dataclasses import dataclass
from traceback import FrameSummary
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from jitney._util import negative_powers
from jitney._util.caller_frame import call_here
from jitney.capture import metadata, original_functions
from jitney.capture.codegen.graph_runner import InferenceScope
from jitney.capture.interpreter.signals import Break, Raised
from jitney.capture.kinds import ARRAYS, STAND_INS, is_stand_in
from jitney.capture.marks import DISALLOWED, is_disallowed
from jitney.capture.torch import conversions
from jitney.capture.torch.autograd.tape import Tape
from jitney.capture.torch.autograd.unused_results import drop_unused_results
from jitney.capture.torch.classes import tensor_classes, wrappers
from jitney.capture.torch.destinations import Destinations
from jitney.capture.torch.edge_sizes import Trial
from jitney.capture.torch.function_names import (
    OPERATORS,
    REFLECTED,
    TENSOR_FUNCTIONS,
    first_line,
    function_name,
    identifier,
)
from jitney.capture.torch.symbols import Symbols
from jitney.capture.world.guard_set import GuardSet
from jitney.guards import Source
from jitney.guards.reentry import ReentryWatch
from jitney.torch_compat import subclasses, torch_private
from jitney.torch_compat.default_device import enter_device, exit_device
from jitney.torch_compat.global_state import enter_inference_mode, exit_inference_mode
from jitney.torch_compat.operator_effects import count_writes, writes_statistics

TENSOR_CLASS = type(torch.FloatTensor)
ASSERT = torch.ops.aten._assert_scalar.default
CHECKED_LATE = "a tensor's value has to be checked after a write to an input"


class NeedsValue(Break):
    """An operation that wants a number, and has been given a tensor."""


@dataclass(slots=True)
class GraphInput:
    """One placeholder: a tensor or a symbol's value, and where the emitted code finds it."""

    source: Source
    value: Any
    node: fx.Node


class Tracer(TorchFunctionMode):
    """The graph under construction, and which stand-in is which node.

    Args:
        symbols: the sizes and numbers of the capture.
        guards: gets what the tensors and the operations depend on.
        origin: which lines of the program are running.
        reads_numbers: may a number be read out of a tensor in the graph?
        dense_gradients: is the backward a graph, which cannot hold sparse tensors?
        witness: sees the program's code run.
        by_rules: what tensors' classes and the program's modes make of an operation.
        by_generator: records an operation that draws with a generator of the program's.
        held: the number that a tensor of the host holds, which is guarded, or None.
    """

    def __init__(
        self,
        symbols: Symbols,
        guards: GuardSet,
        origin: Callable[[], tuple[FrameSummary, ...]],
        reads_numbers: Callable[[], bool] = lambda: False,
        dense_gradients: bool = False,
        witness: ReentryWatch | None = None,
        caller: Callable[[], Callable[..., Any]] = lambda: call_here,
        step: Callable[[], int] = lambda: 0,
        by_rules: Callable[..., Any] = tensor_classes.nobody,
        by_generator: Callable[..., Any] = tensor_classes.nobody,
        held: Callable[[Any], Any] = lambda _: None,
    ) -> None:
        super().__init__()
        self.caller, self.step, self.by_generator = caller, step, by_generator
        self.reads_numbers, self.held = reads_numbers, held
        self.symbols, self.guards = symbols, guards
        self.origin = origin
        self.dense_gradients = dense_gradients
        self.witness = witness
        self.fake_mode = symbols.fake_mode
        self.graph = fx.Graph()
        self.nodes: dict[int, fx.Node] = {}
        self.inputs: list[GraphInput] = []
        self.adopted: dict[int, tuple[Any, Source]] = {}  # id(stand-in) -> (real tensor, source)
        self.stand_ins: dict[int, Any] = {}  # id(real tensor) -> stand-in
        self.rules = tensor_classes.Rules(guards, by_rules)
        self.attributes: dict[int, dict[str, Any]] = {}  # id(stand-in) -> what the frame has set on a tensor of its own
        self.kept: list[Any] = []
        self.versions: dict[int, int] = {}
        self.op_count = 0
        self.checked = False  # does the graph check what tensors hold?
        self.changes_state = 0  # how many calls in the graph do
        self.grad_questions = 0  # how often the program has asked whether gradients are computed
        self.data_writes = 0  # how many give a tensor from outside other data
        self.tape = Tape()
        self.pause = False
        self.region: int | None = None  # the checkpointed region that is being captured
        self._regions = 0
        self.open_scopes: list[InferenceScope] = []
        self.open_devices: list[fx.Node] = []  # the beginnings of blocks of another default device

    # ------------------------------------------------------------------ tensors from outside

    def adopt_checked(self, real: Any, source: Source) -> Any:
        """The stand-in for a tensor that is older than the frame; the same one each time."""
        found = self.stand_ins.get(id(real))
        if found is not None:
            first = self.adopted[id(found)][1]
            if first is not source:
                self.guards.relate(first, source, True)
            return found
        ruled = tensor_classes.check(real)
        with torch_private.without_modes():
            self.tape.check_view(self, real)
            if real.layout is not torch.strided or real.is_quantized or real.is_nested:
                raise Break(f"a tensor with layout {real.layout} is not captured", "use dense tensors in compiled code")
            if real.is_conj() or real.is_neg():
                raise Break("a tensor that is conjugated or negated lazily", "call resolve_conj() or resolve_neg()")
            if real._is_zerotensor():
                raise Break("a tensor of zeros without memory", "call clone()")
            if subclasses.wraps(type(real)):
                fake = self._wrapper(real, source)
            else:  # guards run nothing of the program's
                fake = self.symbols.fake(real, source.step("plain") if ruled else source)
            if issubclass(type(real), torch.nn.Buffer):
                fake._is_buffer = True
                fake.persistent = getattr(real, "persistent", True)
        self.stand_ins[id(real)] = fake
        self.adopted[id(fake)] = (real, source)
        if ruled:
            self.rules.know(fake, type(real))
        tensor_classes.guard_special(self.guards, type(real))
        self.kept.append((real, fake))
        self.versions[id(fake)] = metadata.version_of(fake)
        return fake

    def _wrapper(self, real: Any, source: Source) -> Any:
        """The stand-in for a tensor of a subclass: of that subclass, around stand-ins for its inner tensors."""
        parts = wrappers.take_apart(real)
        with self.symbols.sizes_fixed(not wrappers.may_vary(type(real))):
            inner = [self.adopt_checked(t, source.attr(n)) for n, t in zip(parts.names, parts.inner(real), strict=True)]
            fake = self.symbols.wrapper(real, parts, inner, source)
        wrappers.guard(self.guards, source, real, parts, fake)
        STAND_INS.add(type(fake))
        return fake

    def real_of(self, value: Any) -> Any:
        """The real tensor behind a stand-in from outside; anything else is itself."""
        found = self.adopted.get(id(value)) if is_stand_in(value) else None
        return value if found is None else found[0]

    def source_of(self, fake: Any) -> Source | None:
        """Where a stand-in came from; None for one made by an operation."""
        found = self.adopted.get(id(fake))
        return None if found is None else found[1]

    def node_of(self, fake: Any) -> fx.Node:
        """The node that computes a stand-in; one from outside becomes a placeholder on first use."""
        if not self.pause:
            self.rules.refuse(fake)
        node = self.nodes.get(id(fake))
        if node is None:
            found = self.adopted.get(id(fake))
            if found is None:
                raise Break("a tensor of unknown origin", "this is a limit of capture; please report it")
            node = self._placeholder(fake, self.rules.plain_source(fake, found[1]))
            self.nodes[id(fake)] = node
        return node

    def _placeholder(self, value: Any, source: Source) -> fx.Node:
        if self.inputs:
            context = self.graph.inserting_after(self.inputs[-1].node)
        else:
            context = self.graph.inserting_before(next(iter(self.graph.nodes), None))
        with context:
            node = self.graph.placeholder(f"arg{len(self.inputs)}_{identifier(source.name)}")
        node.meta["example_value"] = value
        source.wanted = True
        self.inputs.append(GraphInput(source, value, node))
        return node

    # ------------------------------------------------------------------ recording

    def __torch_function__(
        self, func: Any, classes: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.pause:
            return func(*args, **kwargs)
        if self.rules.have_a_say(args, kwargs):
            return self.rules.by_program(func, classes, args, kwargs)
        if not original_functions.is_own(func):
            func = original_functions.behind(func)
        if func is torch.Tensor.new and any(type(a) is torch.Size for a in (*args[1:], *kwargs.values())):
            func = torch.Tensor.new_empty  # the same; in a graph sizes are a tuple, which ``new`` takes for numbers
        name = getattr(func, "__name__", "")
        if is_disallowed(func):
            raise Break(f"{function_name(func)} is disallowed in graphs", DISALLOWED)
        if name in conversions.READS:
            read = conversions.read(self, name, args)
            if read is not conversions.UNREAD:
                return read
        otherwise = conversions.in_other_terms(self, func, name, args, kwargs)
        if otherwise is not conversions.UNREAD:
            return otherwise
        if metadata.OUTSIDE.get(name):
            raise Break(f"Tensor.{name}() {metadata.OUTSIDE[name]}", "move it out of the compiled function")
        if name == "__set__":
            field = getattr(getattr(func, "__self__", None), "__name__", "?")
            raise Break(f"assignment to Tensor.{field}", "change the tensor outside compiled code")
        self.rules.refuse_writes(self, func, args, kwargs)
        self.grad_questions += metadata.question(func) in metadata.OF_GRADIENTS
        if metadata.question(func) in metadata.ASKED:
            return self._asked(func, args, kwargs)
        kwargs = conversions.named_arguments(self, kwargs) if kwargs else kwargs
        if name == "requires_grad_" and id(args[0]) in self.adopted:
            with torch_private.DisableTorchFunction():
                before = args[0].requires_grad
            if before is (*args[1:], *kwargs.values(), True)[0]:
                return args[0]
            self.tape.toggle(self, args[0], self.step())
        if self.dense_gradients and (kwargs.get("sparse") or kwargs.get("sparse_grad")) and torch.is_grad_enabled():
            raise Break(f"{function_name(func)} with sparse gradients", "leave out sparse=True to compile it")
        if isinstance(kwargs.get("generator"), torch.Generator):
            return self.by_generator(func, args, kwargs)
        destinations = Destinations(func, args, kwargs)
        trial = Trial.of(self.symbols, args, kwargs)
        try:
            if name == "__getitem__" and conversions.has_tensor_end(args[1]):
                raise NeedsValue("a slice needs the values of a tensor", "keep the ends of slices as numbers")
            result = self.run(func, args, kwargs)
        except NeedsValue:
            given_numbers = conversions.in_place_of_tensors(self, name, func, args, kwargs)
            if given_numbers is None:
                raise
            args, kwargs = given_numbers
            result = self.run(func, args, kwargs)
        with torch_private.DisableTorchFunction():
            count_writes(name.partition(".")[0], args, kwargs)
        destinations.check(result)
        if isinstance(result, torch.Tensor) and result.layout is not torch.strided:
            raise Break(f"{function_name(func)} makes a tensor with layout {result.layout}", "use dense tensors")
        if trial is not None:
            trial.check(func, result)
        self.record(func, args, kwargs, result)
        return result

    def call_whole(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a function as one operation, without the modes that it would ask first."""
        if any(isinstance(a, type) for a in (*args, *kwargs.values())):
            raise Break(f"{function_name(func)} is called with a class")
        modes = torch_private.function_modes()
        torch_private.set_function_modes([mode for mode in modes if mode is not self])
        try:
            result = self.run(func, args, kwargs)
        finally:
            torch_private.set_function_modes(modes)
        self.record(func, args, kwargs, result)
        return result

    def _asked(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a tensor answers to what is not guarded of every tensor. One from outside must answer the same again."""
        name = metadata.question(func)
        answer = func(*args, **kwargs)
        found = self.adopted.get(id(args[0]))
        if found is not None:
            real, source = found
            if id(args[0]) in self.rules.classes and not tensor_classes.has_default_rules(type(real)):
                raise Break(f"Tensor.{name} of a {type(real).__qualname__}, which has its own __torch_function__")
            before = metadata.ask(real, name)
            asked = source.attr(name)
            self.guards.guard(asked.step("call") if metadata.ASKED[name] else asked, "equals", before)
            if metadata.version_of(args[0]) == self.versions[id(args[0])]:
                return before
        if name not in metadata.KNOWN_OF_RESULTS:
            raise Break(f"Tensor.{name} of a tensor that the frame has made or changed", "ask outside compiled code")
        return answer

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation on stand-ins. What it cannot do without data breaks the graph.

        The program's code that it enters is part of it: an operator's meta function, a subclass's rules.
        """
        before = self.witness.allow() if self.witness is not None else ("", False)
        try:
            return torch_private.run_on_stand_ins(func, args, kwargs, self.caller())
        except (torch_private.DataDependentOutputException, torch_private.GuardOnDataDependentSymNode):
            raise NeedsValue(
                f"{function_name(func)} needs the values of a tensor",
                "keep the value as a tensor, or move this line out of the compiled function",
            ) from None
        except torch_private.DynamicOutputShapeException:
            raise Break(
                f"the shape of {function_name(func)}'s result depends on the values of a tensor",
                "use a form with a fixed shape, such as torch.where(condition, a, b) or a mask",
            ) from None
        except torch_private.UnsupportedFakeTensorException as error:
            raise Break(f"{function_name(func)}: {error}") from None
        except NotImplementedError as error:
            raise Break(f"{function_name(func)} cannot run without data: {first_line(error)}") from None
        except Exception as error:
            raise Raised(f"{function_name(func)} raised {type(error).__name__}: {first_line(error)}") from None
        finally:
            if self.witness is not None:
                self.witness.latest, self.witness.ends = before

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> fx.Node | None:
        """Append the node for a call that has run on stand-ins, if the graph needs it; that node."""
        if not _has_tensor(result) and not self._has_effect(func, args, kwargs, result):
            self._check_constant(func, result)
            if _has_tensor((args, kwargs)) and not metadata.follows(func):
                name = metadata.question(func)
                raise Break(f"Tensor.{name} is not among what is guarded about a tensor", "ask outside compiled code")
            return None
        self.rules.refuse_written_leaves(self)
        if self.rules.modes:
            raise Break(f"{function_name(func)} does not ask the torch function mode", wrappers.HINT)
        target, call_args, kind = self._target(func, args)
        mapped, named = self._map(call_args), self._map(conversions.with_dtype(func, args, kwargs, result))
        node = self.graph.create_node(kind, negative_powers.as_a_call(target, mapped), mapped, named)
        node.meta.update(self.symbols.fake_mode.sized_meta(), example_value=result, user_stack=self.origin())
        if self.region is not None:
            node.meta["checkpoint"] = self.region
        self.op_count += 1
        self._bind(result, node)
        self.record_checks(node)
        return node

    def check_argument(self, value: Any) -> None:
        """Break where the graph cannot hold this, before an operation that may write to it has run."""
        self._map(value)

    def record_checks(self, node: fx.Node | None = None) -> None:
        """Append checks of what the stand-ins take for granted of numbers that only the running graph knows."""
        for expr in self.symbols.checks(node):
            condition = self.symbols.expression(expr, self.graph, self._placeholder)
            if condition is not True:
                if self.mutates_inputs():  # where the check fails, the frame would begin again and write once more
                    raise Break(CHECKED_LATE, "read the number before the write")
                checked = self.graph.call_function(ASSERT, (condition, f"{conversions.CHECKED}: {expr}"))
                checked.meta.update(example_value=None, user_stack=self.origin())
                self.op_count += 1
                self.checked = True

    def enter_scope(self, scope: InferenceScope) -> None:
        """Begin inference mode, here and in the graph."""
        scope.real = enter_inference_mode(scope.mode)
        scope.node = self.graph.call_function(enter_inference_mode, (scope.mode,))
        scope.node.meta["example_value"] = None
        self.open_scopes.append(scope)
        self.changes_state += 1

    def exit_scope(self, scope: InferenceScope) -> None:
        """End inference mode, here and in the graph."""
        exit_inference_mode(scope.real)
        self.graph.call_function(exit_inference_mode, (scope.node,)).meta["example_value"] = None
        self.open_scopes.remove(scope)

    def close_scopes(self) -> None:
        """Leave what the captured program was still in."""
        for scope in reversed(self.open_scopes):
            exit_inference_mode(scope.real)
        self.open_scopes.clear()

    def record_state(self, func: Callable[..., Any], *args: Any) -> Any:
        """Append a call that changes torch's global state (grad mode, autocast), after having run it."""
        result = func(*args)
        node = self.graph.call_function(func, args)
        node.meta["user_stack"] = self.origin()
        node.meta.update(example_value=result, changes_state=True)
        self.changes_state += 1
        return result

    def enter_device(self, device: torch.device) -> torch.device:
        """Begin a block of another default device, here and, unless it ends before, in the graph."""
        if self.rules.modes:
            raise Break("a default device begins within a torch function mode", "begin it outside")
        self.record_state(enter_device, device)
        self.open_devices.append(next(iter(reversed(self.graph.nodes))))
        return device

    def exit_device(self, device: torch.device) -> None:
        """End a block of another default device, here and in the graph, if it was begun there or before."""
        if torch_private.function_modes()[-1] is self:
            raise Break("a default device ends that was not begun")
        if not self.open_devices:
            self.record_state(exit_device, device)
            return
        exit_device(device)
        self.graph.erase_node(self.open_devices.pop())
        self.changes_state -= 1

    @staticmethod
    def _has_effect(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
        """Without a result it was called for what it does to its arguments; reading an attribute does nothing."""
        name = getattr(func, "__name__", "")
        return result is None and name != "__get__" and (name.endswith("_") or _has_tensor((args, kwargs)))

    @staticmethod
    def _check_constant(func: Any, result: Any) -> None:
        """A result without tensors is a constant of the capture; only plain data may be one."""
        allowed = (type(None), bool, int, float, complex, str, tuple, list, torch.Size, torch.dtype, torch.device)
        more = (torch.layout, torch.memory_format, torch.SymInt, torch.SymFloat, torch.SymBool, dict)
        if not isinstance(result, allowed + more):
            name = function_name(func)
            raise Break(f"{name} gives a {type(result).__qualname__}, which a graph cannot hold")

    def _target(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], str]:
        """FX target, arguments and node kind for a function as torch hands it to a mode."""
        name = getattr(func, "__name__", "")
        if isinstance(func, types.MethodWrapperType) and name == "__get__":
            descriptor: Any = func.__self__
            return self._named(getattr), (args[0], descriptor.__name__), "call_function"
        name = TENSOR_FUNCTIONS.get(id(func), name)
        if getattr(torch.Tensor, name, None) is func:
            self.guards.guard_path(f"torch.Tensor.{name}", func)
            if name in OPERATORS:
                return OPERATORS[name], args, "call_function"
            if name in REFLECTED:
                return REFLECTED[name], (args[1], args[0], *args[2:]), "call_function"
            if args and (source := self.source_of(args[0])) is not None:  # the graph asks the tensor for it
                self.guards.guard_disjoint(source.step("dict_of"), name)
            return name, args, "call_method"
        return self._named(func), args, "call_function"

    def _named(self, func: Any) -> Any:
        """The function, if generated code finds it by its name, which is guarded; else one that calls it."""
        try:
            path = original_functions.path_of(func)
        except LookupError:
            return original_functions.pinned(func)
        if path is None:
            return func
        if original_functions.at_path(path) is not func:
            return original_functions.pinned(func)
        self.guards.guard_path(path, func)
        return func

    def _map(self, value: Any) -> Any:
        """Stand-ins to nodes, symbols to nodes of their expressions, inside any plain container."""
        kind = type(value)
        if is_stand_in(value):
            return self.node_of(value)
        if kind is InferenceScope:
            return value.node
        if kind in (torch.SymInt, torch.SymFloat, torch.SymBool):
            return self.symbols.node(value, self.graph, self._placeholder)
        if kind in (tuple, torch.Size):
            return tuple(map(self._map, value))
        if kind is list:
            return [self._map(v) for v in value]
        if kind is dict:
            return {k: self._map(v) for k, v in value.items()}
        if kind is slice:
            return slice(self._map(value.start), self._map(value.stop), self._map(value.step))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*map(self._map, value))
        if isinstance(value, torch.Tensor):
            raise Break("a real tensor reached a captured operation", "this is a limit of capture; please report it")
        if kind in ARRAYS and value.scalar and (number := value.number()) is not None:
            if type(number) is bool:  # torch takes it for a float, or for none of its numbers
                raise Break("a numpy.bool_ in an operation of torch", "give it bool(...)")
            return self._map(number)
        if isinstance(value, np.generic) and value.dtype.kind in "if":
            return self._map(value.item())
        if kind is TENSOR_CLASS:  # code finds it by no name; torch takes the text
            return f"{value.__module__}.{value.__name__}"
        if isinstance(value, fx.node.base_types) or value is None or kind in (range, types.EllipsisType):
            return value
        if isinstance(value, torch.Generator):
            raise Break("a torch.Generator argument", "use the global generator, or draw outside the compiled function")
        if kind is type and value in conversions.DTYPES:  # code finds a class by no name
            return conversions.DTYPES[value]
        raise Break(f"an argument of class {kind.__qualname__} to a captured operation")

    def _bind(self, result: Any, node: fx.Node) -> None:
        """Name the tensors of a result."""
        if isinstance(result, torch_private.FakeTensor) or self._is_wrapper(result):
            self.nodes[id(result)] = node
            self.kept.append(result)
            self.symbols.learn_sizes(result, node)
        elif isinstance(result, torch.Tensor):
            raise Break(f"{node.target} gave a real tensor", "this is a limit of capture; please report it")
        elif isinstance(result, tuple | list | dict):
            for key, item in result.items() if isinstance(result, dict) else enumerate(result):
                if _has_tensor(item):
                    child = self.graph.call_function(operator.getitem, (node, key))
                    child.meta["example_value"] = item
                    child.meta["user_stack"] = node.meta["user_stack"]
                    self._bind(item, child)

    @staticmethod
    def _is_wrapper(result: Any) -> bool:
        """Is it a stand-in of a subclass? Breaks at one of a class that capture does not know."""
        if not subclasses.wraps(type(result)):
            return False
        wrappers.check_result(result)
        STAND_INS.add(type(result))
        return True

    def mutates_inputs(self) -> bool:
        """May the graph have changed a tensor from outside by the time it fails?"""
        return bool(self.written()) or self.data_writes + self.writes_statistics() > 0

    def writes_statistics(self) -> int:
        """How many operations so far may write to running statistics."""
        return sum(map(writes_statistics, self.graph.nodes))

    def new_region(self) -> int:
        """The number of another checkpointed region."""
        self._regions += 1
        return self._regions

    def written(self) -> list[int]:
        """Which tensors from outside have been written to."""
        memory = self.fake_mode.written  # of inference mode's tensors, and by ``x.data``, no version counter tells
        return [
            key
            for key, fake in self._adopted_fakes()
            if metadata.version_of(fake) != self.versions[key]
            or (memory and type(fake) is torch_private.FakeTensor and metadata.storage(fake) in memory)
        ]

    def outside(self) -> list[Any]:
        """The stand-ins for tensors from outside."""
        return [fake for _, fake in self._adopted_fakes()]

    def known(self) -> list[Any]:
        """Every stand-in so far, older and younger than the frame."""
        return [*self.kept, *(fake for _, fake in self._adopted_fakes())]

    def snapshot(self) -> list[tuple[Any, int]]:
        """Every tensor so far, and how often it has been written to."""
        return [(k, metadata.version_of(k)) for k in self.known() if is_stand_in(k)]

    def pristine(self, value: Any) -> Any:
        """An input's stand-in with the metadata that the tensor has when the graph is called."""
        found = self.adopted.get(id(value)) if is_stand_in(value) else None
        if found is None:
            return value
        with torch_private.without_modes():
            same = metadata.version_of(value) == self.versions[id(value)] and not metadata.is_reshaped(value, found[0])
            if same and value.requires_grad == found[0].requires_grad:
                return value
            return self.symbols.again(value, found[0])

    def _adopted_fakes(self) -> list[tuple[int, Any]]:
        return [(id(fake), fake) for _, fake in (k for k in self.kept if isinstance(k, tuple))]

    def take_back(self, earlier: set[fx.Node]) -> bool:
        """Drop what the graph has computed since, of constants; False: of something else."""
        last = dict.fromkeys(node for node in self.graph.nodes if node not in earlier)
        if any(node.op == "placeholder" or not last.keys() >= set(node.all_input_nodes) for node in last):
            return False
        for node in reversed(last):
            self.graph.erase_node(node)
        for key in [key for key, node in self.nodes.items() if node in last]:
            del self.nodes[key]
        return True

    def finish(self, outputs: list[Any]) -> None:
        """Close the graph over these stand-ins (or symbols), and drop look-ups that nothing uses."""
        with self.rules.as_plain():
            self.graph.output(tuple(self._map(o) for o in outputs))
        drop_unused_results(self.graph)
        for node in reversed(self.graph.nodes):
            if node.op == "call_function" and node.target is operator.getitem and not node.users:
                self.graph.erase_node(node)


def _has_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return any(map(_has_tensor, inside))
