"""What one run of a whole program comes to: results, what it changed, gradients; and how two runs differ."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from jitney.copies import tensors
from jitney.debug.doubles import close, too_far
from jitney.debug.reach import reached
from jitney.debug.verdict import Fault, Kind, Place, memory_of
from jitney.wrapping import leaves

Row = tuple[Place, Sequence[Any]]


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

    def differs(
        self, expected: Outcome, exact: Callable[[], Outcome | None] = lambda: None, when: str = ""
    ) -> Fault | None:
        """What is not as in another run of the same program.

        Args:
            expected: eager's run.
            exact: makes a run in float64, which says whether a number is wrong or only rounded otherwise; without
                one eager's numbers are the measure.
            when: which run this is, for people.
        """
        for (place, ours), (_, theirs) in zip(self.rows(), expected.rows(), strict=True):
            if len(ours) != len(theirs):
                return Fault("facts", place, f"{when}{len(ours)} tensors, {len(theirs)} were expected")
            for number, (got, want) in enumerate(zip(ours, theirs, strict=True)):
                found = _compared(place, got, want, functools.partial(_at, exact, place, number))
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


def _at(exact: Callable[[], Outcome | None], place: Place, number: int) -> torch.Tensor | None:
    """One tensor of a run, if it has it."""
    run = exact()
    found = dict(run.rows())[place] if run is not None else ()
    value = found[number] if number < len(found) else None
    return value.detach() if isinstance(value, torch.Tensor) else None


def _innermost(value: Any) -> list[torch.Tensor]:
    """Every tensor in a result; those inside tensors that wrap tensors in their place."""
    return [inner for tensor in tensors(value) for inner in leaves(tensor)]


def _compared(place: Place, got: Any, want: Any, exact: Callable[[], torch.Tensor | None]) -> tuple[Kind, str] | None:
    """The kind of a difference, and what it is."""
    if (got is None) != (want is None):
        return "facts", f" is {'missing' if got is None else 'new'}"
    if got is None or got.layout is not torch.strided or got.is_nested:
        return None
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return "facts", f" is {got.dtype}{list(got.shape)}, {want.dtype}{list(want.shape)} was expected"
    got, want = got.detach(), want.detach()
    reason = "" if close(got, want) else too_far(got, want, _credible(exact(), want))
    return ("writes" if place == "inputs" else "numbers", f": {reason}") if reason else None


def _credible(exact: torch.Tensor | None, eager: torch.Tensor) -> torch.Tensor | None:
    """A float64 tensor, if eager is anywhere near it; else the program does something else in float64."""
    if exact is None or exact.shape != eager.shape:
        return None
    far = (exact - eager).abs().double().square().sum() > exact.abs().double().square().sum() * 0.01
    return None if bool(far) else exact


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
