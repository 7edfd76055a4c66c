"""``torch.func.vjp`` and ``linearize``: what they return is called later, and works on what was there before.

The result is one operation, each call of the returned function another one, around the same graph of the program's
function: it computes the function once more, and AOT, which merges equal operators, has it computed once. That is what
eager does as long as the function draws nothing, writes nothing (``_Effects``), and nobody has written to what it works
on or gave (``_Memory``: the latter may be what eager keeps for the backward). Where that may not be so, and where the
returned function outlives the capture, capture starts over with a break before the transform, which then runs in eager.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.codegen.rebuild import RULES, Rebuilder
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import is_stand_in
from jitney.capture.metadata import version_of
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.autograd import transforms
from jitney.capture.torch.autograd.transforms import HINT, Application, Run
from jitney.capture.torch.tensors import Tracer
from jitney.torch_compat import operator_effects, torch_private
from jitney.torch_compat.global_state import StateKeeper

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()


@dataclass(frozen=True, eq=False)
class Held:
    """What a function that ``vjp`` or ``linearize`` has returned knows.

    Args:
        step: where the transform was called.
        made: the program's function, with the arguments of that call.
        run: the operation that a call comes to.
        memory: of the tensors that it works on, and of its result.
        state: grad mode and autocast then.
    """

    step: int
    made: Application
    run: Run
    memory: _Memory
    state: StateKeeper

    def restart(self, vm: Interpreter, reason: str, hint: str = HINT) -> Restart:
        """The transform is to run in eager, because of this."""
        return Restart(self.step, reason, hint, vm.user_stack())


def apply_held(held: Held, /, *args: Any, **kwargs: Any) -> Any:
    """What the returned function is in a capture, which interprets it specially."""
    raise NotImplementedError


@special(apply_held)
def _apply_held(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    held, *given = args
    what = f"what torch.func.{held.made.name} has returned is called"
    if kwargs:
        raise held.restart(vm, f"{what} with keyword arguments")
    if held.memory.written(vm.tracer):
        raise held.restart(vm, f"{what} after a tensor that it works on, or its result, was written to")
    if held.state.changed():
        raise held.restart(vm, f"{what} in another grad mode or autocast")
    try:
        return held.made.record(vm, held.run, given)
    except Break as stop:
        raise held.restart(vm, stop.reason, stop.hint) from None


def _rebuild(rebuilder: Rebuilder, held: Held) -> str:
    raise held.restart(rebuilder.vm, f"what torch.func.{held.made.name} returns is needed after the graph")


RULES[Held] = _rebuild


class _Effects(torch_private.TorchDispatchMode):
    """Sees what operators do that must not happen twice: ``found`` says what, or is empty.

    Args:
        tensors: what the function works on.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__()
        self.older = _storages(tensors)
        self.found = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self.found = "draws random numbers"
        elif self.older & _storages(operator_effects.written_by(func, args, kwargs)):
            self.found = "writes to something"
        return func(*args, **kwargs)


def _storages(tensors: Iterable[Any]) -> set[int]:
    with torch_private.DisableTorchFunction():
        return {torch_private.storage_of(t) for t in tensors}


class _Memory:
    """Has memory been written to since? By what shares a counter of writes with these tensors, or past autograd.

    Args:
        tracer: that knows all stand-ins.
        tensors: whose memory.
    """

    def __init__(self, tracer: Tracer, tensors: Sequence[Any]) -> None:
        self.storages = _storages(tensors)
        self.seen = {id(t): (t, version_of(t)) for t in (*self._shared(tracer.known()), *tensors)}

    def written(self, tracer: Tracer) -> bool:
        """Has it? What ``.data`` gives counts anew."""
        if any(version_of(t) != version for t, version in self.seen.values()):
            return True
        return any(version_of(t) for t in self._shared(_counting_anew(tracer)) if id(t) not in self.seen)

    def _shared(self, tensors: Iterable[Any]) -> list[Any]:
        with torch_private.DisableTorchFunction():
            return [t for t in tensors if is_stand_in(t) and torch_private.storage_of(t) in self.storages]


def _counting_anew(tracer: Tracer) -> list[Any]:
    """Stand-ins that share memory, but no counter of writes, with what they are made of."""
    around = [tracer]
    while isinstance(around[-1], transforms.Body):
        around.append(around[-1].outer)
    nodes = [n for one in around for n in one.graph.nodes if n.target is getattr and n.args[1] == "data"]
    return [node.meta["example_value"] for node in nodes]


def _held(vm: Interpreter, name: str, fn: Any, primals: Args, first: Run, later: Run) -> tuple[Any, Any]:
    """The result of the transform, and the function that it returns besides."""
    step = vm.break_step()
    made = transforms.application(vm, name, fn, primals, {})
    with _Effects(made.tensors) as effects:
        result = made.record(vm, first)
    if effects.found:
        raise Break(f"torch.func.{name} of a function that {effects.found}", HINT)
    memory = _Memory(vm.tracer, [*made.tensors, *filter(is_stand_in, transforms.flat(vm, result)[0])])
    held = Held(step, made, later, memory, StateKeeper())
    return result, vm.world.mark_fresh(functools.partial(apply_held, vm.world.mark_fresh(held)))


@special(torch.func.vjp)
def _vjp(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not args or not set(kwargs) <= {"has_aux"}:
        raise Break("torch.func.vjp of these arguments", HINT)
    fn, *primals = args
    settings = {key: transforms.setting(vm, value) for key, value in kwargs.items()}

    def first(function: Callable[..., Any], whole: tuple[Any, ...], named: dict[str, Any], more: Any) -> Any:
        result, _, *aux = torch.func.vjp(function, *whole, **settings)
        return (result, *aux)

    def later(function: Callable[..., Any], whole: tuple[Any, ...], named: dict[str, Any], more: Any) -> Any:
        return torch.func.vjp(function, *whole, **settings)[1](*more)

    (result, *aux), pull = _held(vm, "vjp", fn, primals, first, later)
    return (result, pull, *aux)


@special(torch.func.linearize)
def _linearize(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not args or kwargs:
        raise Break("torch.func.linearize of these arguments", HINT)
    if isinstance(vm.tracer, transforms.Body):  # eager takes the primals for constants there
        raise Break("torch.func.linearize in a function that is transformed", HINT)
    fn, *primals = args

    def first(function: Callable[..., Any], whole: tuple[Any, ...], named: dict[str, Any], more: Any) -> Any:
        return function(*whole)

    def later(function: Callable[..., Any], whole: tuple[Any, ...], named: dict[str, Any], more: Any) -> Any:
        return torch.func.jvp(function, whole, tuple(more))[1]

    result, held = _held(vm, "linearize", fn, primals, first, later)
    nodes = held.args[0].made.body.graph.graph.nodes
    if any(hasattr(node.target, "graphs") for node in nodes):  # there eager's gives zeros in some cases
        raise Break("torch.func.linearize of a function that transforms another", HINT)
    with torch_private.DisableTorchFunction():
        tracked = torch.is_grad_enabled() and any(t.requires_grad for t in held.args[0].made.tensors)
    if tracked:  # eager's jvp is differentiable through some of what it has computed beforehand only
        raise Break("torch.func.linearize around tensors that require grad", "detach them, or call it outside")
    return result, held
