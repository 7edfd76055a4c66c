"""What one run of a whole program comes to: results, what it changed, gradients; and how two runs differ."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from jitney.debug.reach import reached
from jitney.torch_compat.subclasses import leaves
from jitney_tools.compare.copies import tensors
from jitney_tools.compare.float64_oracle import close, doubled, too_far
from jitney_tools.compare.rounding_noise import RUNS, credible, within
from jitney_tools.compare.verdict import Fault, Kind, Place, memory_of

Row = tuple[Place, Sequence[Any]]
Widened = list[tuple[torch.Tensor, torch.dtype]]  # tensors in float64, and which dtype each has in eager


@dataclass
class Truth:
    """What says whether a number is wrong or only rounded otherwise: the same program in float64.

    Args:
        exact: makes that run; None if the program does not run so.
        shaken: makes such runs with roundings shaken; one that does not end is None.
    """

    exact: Callable[[], Outcome | None] = lambda: None
    shaken: Callable[[], Sequence[Outcome | None]] = lambda: ()


@dataclass
class Outcome:
    """What a run has returned and changed, and gradients.

    Args:
        value: what it returned, the very objects.
        changed: copies of parameters, buffers and arguments, as they were afterwards.
        gradients: of leaves that require them; None where there is none.
    """

    value: Any
    changed: list[torch.Tensor] = field(default_factory=list)
    gradients: list[torch.Tensor | None] = field(default_factory=list)

    def go_back(self, begin: Sequence[torch.Tensor], may: bool) -> None:
        """Gradients: those that the program has left on leaves, and with ``may`` those of what it returned."""
        self.gradients = [leaf.grad.detach().clone() if leaf.grad is not None else None for leaf in begin]
        ends = [t for t in tensors(self.value) if t.requires_grad and t.grad_fn is not None]
        if may and ends and begin:
            ones = [torch.ones_like(end) for end in ends]
            self.gradients += torch.autograd.grad(ends, begin, ones, allow_unused=True)

    def rows(self) -> list[Row]:
        """What is compared, by place."""
        return [("results", _innermost(self.value)), ("inputs", self.changed), ("gradients", self.gradients)]

    def differs(self, expected: Outcome, truth: Truth | None = None, when: str = "") -> Fault | None:
        """What is not as in another run of the same program.

        Args:
            expected: eager's run.
            truth: without one eager's numbers are the measure.
            when: which run this is, for people.
        """
        for (place, ours), (_, theirs) in zip(self.rows(), expected.rows(), strict=True):
            if len(ours) != len(theirs):
                return Fault("facts", place, f"{when}{len(ours)} tensors, {len(theirs)} were expected")
            for number, (got, want) in enumerate(zip(ours, theirs, strict=True)):
                found = _compared(place, got, want, functools.partial(_at, truth or Truth(), place, number))
                if found is not None:
                    kind, reason = found
                    return Fault(kind, place, f"{when}{place.removesuffix('s')} {number}{reason}")
        return None

    def lies_in(self, other: Outcome) -> tuple[int, int] | None:
        """A result that is in the memory of a result of another run: the numbers of both."""
        for number, mine in enumerate(_innermost(self.value)):
            for at, theirs in enumerate(_innermost(other.value)):
                if not memory_of(mine).isdisjoint(memory_of(theirs)):
                    return number, at
        return None


def _at(truth: Truth, place: Place, number: int, shaken: bool = False) -> list[torch.Tensor]:
    """One tensor of the run in float64, or of each with shaken roundings; of a run that has it not, none."""
    found = []
    for run in truth.shaken() if shaken else [truth.exact()]:
        among = dict(run.rows())[place] if run is not None else ()
        value = among[number] if number < len(among) else None
        if isinstance(value, torch.Tensor):
            found.append(value.detach())
    return found


def _innermost(value: Any) -> list[torch.Tensor]:
    """Every tensor in a result; those inside tensors that wrap tensors in their place."""
    return [inner for tensor in tensors(value) for inner in leaves(tensor)]


def _compared(place: Place, got: Any, want: Any, of: Callable[..., list[torch.Tensor]]) -> tuple[Kind, str] | None:
    """The kind of a difference, and what it is; ``of`` gives the tensor in other runs."""
    if (got is None) != (want is None):
        return "facts", f" is {'missing' if got is None else 'new'}"
    if got is None or got.layout is not torch.strided or got.is_nested:
        return None
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return "facts", f" is {got.dtype}{list(got.shape)}, {want.dtype}{list(want.shape)} was expected"
    got, want = got.detach(), want.detach()
    if close(got, want):
        return None
    reason = too_far(got, want, _credible(of(), want))
    if not reason or _is_noise(got, want, of):
        return None
    return "writes" if place == "inputs" else "numbers", f": {reason}"


def _credible(exact: list[torch.Tensor], eager: torch.Tensor) -> torch.Tensor | None:
    """A float64 tensor, if eager is anywhere near it; else the program does something else in float64."""
    if not exact or exact[0].shape != eager.shape:
        return None
    far = (exact[0] - eager).abs().double().square().sum() > exact[0].abs().double().square().sum() * 0.01
    return None if bool(far) else exact[0]


def _is_noise(got: torch.Tensor, eager: torch.Tensor, of: Callable[..., list[torch.Tensor]]) -> bool:
    """Is it within what other roundings make of the number? Eager's must be so, too: else float64 says nothing here."""
    exact = of()
    if not exact or exact[0].shape != eager.shape:
        return False
    runs = [run for run in of(shaken=True) if run.shape == eager.shape]
    return len(runs) == RUNS and credible(eager, exact[0], runs) and within(got, eager, exact[0], runs)


def modules_of(function: Any, values: Sequence[Any]) -> list[torch.nn.Module]:
    """The modules that a function may run: those at hand to it, each once."""
    return [value for value in reached(function, values) if isinstance(value, torch.nn.Module)]


def optimizers_of(function: Any, values: Sequence[Any]) -> list[torch.optim.Optimizer]:
    """The optimizers at hand to a function, each once."""
    return [value for value in reached(function, values) if isinstance(value, torch.optim.Optimizer)]


@contextlib.contextmanager
def put_back(modules: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer] = ()) -> Iterator[None]:
    """Parameters, buffers and gradients of modules, and states of optimizers, are afterwards what they were."""
    states = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
    held = [t for module in modules for t in [*module.parameters(), *module.buffers()]]
    before = [(t, t.detach().clone(), t.grad.detach().clone() if t.grad is not None else None) for t in held]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, data, grad in before:
                if not torch.equal(tensor, data):
                    tensor.copy_(data)
                tensor.grad = grad
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.load_state_dict(state)


@contextlib.contextmanager
def widened(modules: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[Widened]:
    """Parameters, buffers, gradients and states are in float64; use it within ``put_back``.

    Operators alone cannot be run so: some look at the dtypes of their arguments before any mode sees them.
    """
    held = {id(t): t for module in modules for t in [*module.parameters(), *module.buffers()]}
    narrow = [(tensor, tensor.data) for tensor in held.values() if type(tensor.data) is torch.Tensor]
    pairs: Widened = []
    try:
        for tensor, data in narrow:
            tensor.data = doubled(data)
            pairs.append((tensor, data.dtype))
            if type(tensor.grad) is torch.Tensor:
                tensor.grad = doubled(tensor.grad)
        for state in (state for optimizer in optimizers for state in optimizer.state.values()):
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    state[name] = doubled(value)
                    pairs.append((state[name], value.dtype))
        yield pairs
    finally:
        for tensor, data in narrow:
            tensor.grad, tensor.data = None, data
