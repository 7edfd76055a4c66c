"""Random number generators of torch's in the graph, those of the CPU.

A ``torch.Generator`` is its state, a tensor: what draws with it gives the next one, and a generator from outside gets
the last one once the graph has run. The default generator, from which other operations of the graph draw, is seeded,
read and set by operations that stand among these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney.capture.codegen.graph_runner import RUNS_EAGERLY
from jitney.capture.codegen.rebuild import RULES, Rebuilder
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import is_stand_in
from jitney.capture.policy import is_torch_op
from jitney.capture.python.c_boundary import expose, specialise
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.sequences.opaque import recorded
from jitney.capture.torch.tensors import Tracer
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter
    from jitney.capture.world.record import Record

special = FunctionTable()

HINT = "use the global generator, or draw outside the compiled function"
CPU = torch.device("cpu")
# Modules whose functions hold no generator that they could draw with.
KEEP_NO_GENERATOR = ("_operator", "builtins", "torch.nn.functional", "torch.functional", "math")
OPERATIONS: set[Any] = set()  # of this file: they are given a generator's state
STATE = torch.Generator().get_state().shape


def _operation(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__dict__[RUNS_EAGERLY] = True
    OPERATIONS.add(function)
    return function


def _generator(state: torch.Tensor | None = None) -> torch.Generator:
    made = torch.Generator()
    return made if state is None else made.set_state(state)


def _begun() -> torch.Tensor:
    return _generator().get_state()


def _seeded(seed: int) -> torch.Tensor:
    return _generator().manual_seed(seed).get_state()


def _checked(state: torch.Tensor) -> torch.Tensor:
    return _generator(state).get_state()


BEGUN = _operation(_begun, "generator_state")
SEEDED = _operation(_seeded, "seeded_state")
CHECKED = _operation(_checked, "checked_state")


@functools.cache
def _drawn(func: Any) -> Callable[..., Any]:
    """``func`` with a generator of this state: its result, and the state after it."""

    def drawn(state: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[Any, torch.Tensor]:
        generator = _generator(state)
        return func(*args, **kwargs, generator=generator), generator.get_state()

    return _operation(drawn, f"drawn_by_{getattr(func, '__name__', 'function')}")


@functools.cache
def _filled(func: Any) -> Callable[..., Any]:
    """A tensor like this one, which a method writes to with a generator of this state; and the state after it."""

    def filled(state: torch.Tensor, like: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[Any, torch.Tensor]:
        generator = _generator(state)
        made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        return func(made, *args, **kwargs, generator=generator), generator.get_state()

    return _operation(filled, f"filled_by_{func.__name__}")


# ------------------------------------------------------------------ generators of the program's


def _refuse_within(vm: Interpreter, what: str) -> None:
    """A graph within a graph may run more than once, or not at all."""
    if type(vm.tracer) is not Tracer or vm.tracer.region is not None:
        raise Break(f"{what} in a function that is transformed, or computed again")


def _state_of(vm: Interpreter, generator: torch.Generator) -> Any:
    """The stand-in for the generator's state."""
    found = vm.generators.get(id(generator))
    if found is not None:
        return found[1]
    record = vm.world.record_of(generator)
    if record is None and not vm.world.is_fresh(generator):
        raise Break("a torch.Generator of unknown origin", HINT)
    if generator.device != CPU or generator is torch.default_generator:
        raise Break("a torch.Generator argument", HINT)
    if record is None:
        state = _recorded_state(vm, BEGUN)
    else:
        vm.world.guard(record.source.attr("device"), "equals", CPU)
        vm.world.relate(record.source, vm.world.anchor(torch.default_generator).source, False)
        state = vm.tracer.adopt_checked(generator.get_state(), record.source.attr("get_state").step("call"))
    return _move(vm, generator, state)


def _move(vm: Interpreter, generator: torch.Generator, state: Any) -> Any:
    vm.world.assumptions.keep_private("the state of a torch.Generator")
    first = vm.generators[id(generator)][2] if id(generator) in vm.generators else vm.break_step()
    vm.generators[id(generator)] = (generator, state, first)
    return state


def _state_stand_in() -> torch.Tensor:
    return torch.empty(STATE, dtype=torch.uint8, device=CPU)


def _recorded_state(vm: Interpreter, operation: Callable[..., Any], *args: Any) -> Any:
    return recorded(vm, operation, args, {}, _state_stand_in)


def draw(vm: Interpreter, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation gives that draws with the generator among its arguments."""
    _refuse_within(vm, "a torch.Generator")
    given = dict(kwargs)
    generator = given.pop("generator")
    state = _state_of(vm, generator)
    writes = func.__name__.endswith("_")
    if given.get("out") is not None or (writes and not (args and is_stand_in(args[0]))):
        raise Break("a torch.Generator argument", HINT)

    def stand_ins() -> Any:
        if not writes:
            return func(*args, **given), _state_stand_in()
        like = args[0]
        made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        return func(made, *args[1:], **given), _state_stand_in()

    made, after = recorded(vm, (_filled if writes else _drawn)(func), (state, *args), given, stand_ins)
    _move(vm, generator, after)
    if writes:
        with vm.tracer:
            return args[0].copy_(made)
    return made


def method(vm: Interpreter, fn: Any, owner: torch.Generator, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of a generator."""
    if type(owner) is not torch.Generator or kwargs or len(args) != (name in ("manual_seed", "set_state")):
        raise Break(f"call of the C method Generator.{name}", "call it outside the compiled function")
    _refuse_within(vm, f"Generator.{name}")
    if owner is torch.default_generator:
        if name == "get_state":
            return _get_state(vm, args, kwargs)
        raise Break(f"call of the C method Generator.{name} of the default generator", "call torch's function")
    if name == "get_state":
        with vm.tracer:
            return _state_of(vm, owner).clone()
    _state_of(vm, owner)
    if name == "manual_seed":
        _move(vm, owner, _recorded_state(vm, SEEDED, _seed(args[0])))
    elif name == "set_state":
        _move(vm, owner, _recorded_state(vm, CHECKED, _given_state(vm, args[0])))
    else:
        raise Break(f"call of the C method Generator.{name}", "call it outside the compiled function")
    return owner


def _seed(value: Any) -> Any:
    """A seed that torch takes, or a number that only the running graph knows."""
    if type(value) is torch.SymInt:
        return value
    try:
        torch.Generator().manual_seed(value)
    except Exception as error:
        raise Break(f"a generator is seeded with what it does not take: {type(error).__name__}") from None
    if type(value) is not int:
        raise Break(f"a generator is seeded with a {type(value).__qualname__}", "give it an int")
    return value


def _given_state(vm: Interpreter, value: Any) -> Any:
    state = expose(vm, value)
    if not is_stand_in(state) or state.dtype != torch.uint8 or state.device != CPU or tuple(state.shape) != STATE:
        raise Break("a generator is set to what is not its state")
    return state


@special(torch.Generator)
def _make(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    device = specialise(*args, *kwargs.values()) if len(args) + len(kwargs) == 1 else "cpu"
    if len(args) + len(kwargs) > 1 or type(device) not in (str, torch.device) or torch.device(device) != CPU:
        raise Break("an instance of the C class torch.Generator is made")
    return vm.world.mark_fresh(vm.native(torch.Generator, device))


def _may_draw(node: fx.Node) -> bool:
    """May the operation find a generator by itself, in its state of before? The program's own code may."""
    target: Any = node.target
    if node.op != "call_function" or "changes_state" in node.meta or target in OPERATIONS:
        return False
    if isinstance(target, torch_private.OPERATOR_CLASSES):
        return getattr(target, "namespace", "") not in ("aten", "prims")
    return not is_torch_op(target) and (getattr(target, "__module__", None) or "") not in KEEP_NO_GENERATOR


def written(vm: Interpreter, rebuild: Rebuilder) -> Iterator[tuple[Record, str]]:
    """What gives generators from outside the states that the graph has computed."""
    for generator, state, step in list(vm.generators.values()):
        if any(map(_may_draw, vm.tracer.graph.nodes)):
            raise Restart(step, "a torch.Generator, in a graph with code that may use it, too", HINT)
        record = vm.world.record_of(generator)
        if record is not None and id(state) not in vm.tracer.adopted:
            yield record, f"{rebuild.expr(generator)}.set_state({rebuild.expr(state)})"


def _rebuilt(rebuild: Rebuilder, value: torch.Generator) -> str:
    found = rebuild.vm.generators.get(id(value))
    if not rebuild.vm.world.is_fresh(value):
        return rebuild._constant(value)
    name = rebuild.assign(value, f"{rebuild.constant(torch.Generator)}()")
    if found is not None:
        rebuild.lines.append(f"{name}.set_state({rebuild.expr(found[1])})")
    return name


RULES[torch.Generator] = _rebuilt

# ------------------------------------------------------------------ the default generator


def _effect(vm: Interpreter, operation: Callable[..., Any], *args: Any) -> None:
    """Record an operation on the default generator; a graph that fails puts it back."""
    recorded(vm, operation, args, {}, lambda: torch.empty(0))  # a node gives a tensor
    vm.tracer.changes_state += 1
    vm.tracer.fake_mode.draws.add(CPU)


def _seed_all(function: Callable[[int], Any]) -> Any:
    def seed_all(seed: int) -> torch.Tensor:
        function(seed)
        return torch.empty(0)

    operation = _operation(seed_all, f"{function.__module__.rpartition('.')[2]}_{function.__name__}")

    def handler(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        _refuse_within(vm, "torch.manual_seed")
        (seed,) = (*args, *kwargs.values())
        _effect(vm, operation, _seed(seed))
        return vm.world.wrap(torch.default_generator, vm.world.const(torch).attr("default_generator"))

    return handler


def _set_state(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    _refuse_within(vm, "torch.set_rng_state")
    (state,) = (*args, *kwargs.values())
    _effect(vm, SET, _given_state(vm, state))


def _get_state(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    _refuse_within(vm, "torch.get_rng_state")
    return _recorded_state(vm, GET)


def _set_default(state: torch.Tensor) -> torch.Tensor:
    torch.set_rng_state(state)
    return torch.empty(0)


def _get_default() -> torch.Tensor:
    return torch.get_rng_state()


SET = _operation(_set_default, "set_rng_state")
GET = _operation(_get_default, "get_rng_state")
special(torch.random.manual_seed)(_seed_all(torch.random.manual_seed))  # torch._dynamo puts another around it
special(torch.set_rng_state)(_set_state)
special(torch.get_rng_state)(_get_state)
