"""One case of torch's OpInfo database: eager beside compiled, forward and backward."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from jitney import events
from jitney.api import compile as compile_function
from jitney.api import reset
from jitney.config import config
from jitney_testing.opinfo.compare import Difference, difference, fresh_tangents, same_bits, sharing
from jitney_testing.opinfo.referee import as_good, widened
from jitney_testing.opinfo.samples import Call, Case, random_state, seed_everything
from jitney_tools.compare.copies import copied, tensors

Stage = Literal["forward", "backward"]


@dataclass(frozen=True)
class Failure:
    """A case in which compiled differs from eager."""

    stage: Stage
    kind: str
    detail: str


@dataclass
class Coverage:
    """What a case really tested.

    Args:
        graphs: how many captured graphs had operations.
        halves: the ATen graphs that the backend was given: ``inference``, ``forward``, ``backward``.
        kept: why graphs ran as they were captured.
        breaks: why graphs broke, or frames ran eagerly.
        failed: what graphs raised before their frames ran eagerly.
    """

    graphs: int = 0
    halves: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def note(self, event: Any) -> None:
        """Listen to jitney's events."""
        match event:
            case events.FrameCaptured():
                self.graphs += event.op_count > 0
                if event.graph_break is not None:
                    self.breaks.append(event.graph_break.reason)
            case events.FrameSkipped():
                self.breaks.append(f"frame left eager: {event.reason}")
            case events.GraphKept():
                self.kept.append(event.reason)
            case events.GraphFailed():
                self.failed.append(_message(event.error))
            case events.AtenGraph() if event.kind != "joint":
                self.halves.append(event.kind)


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Args:
        case: which.
        forward: None if eager raises, else whether the compiled forward does the same.
        backward: None without a gradient, or if eager's backward raises; else whether the gradients are equal.
        exact: are all numbers equal to the last bit?
        failure: the first difference.
        coverage: what ran.
        refereed: did float64 have to say that the numbers are as good as eager's?
    """

    case: Case
    forward: bool | None
    backward: bool | None = None
    exact: bool = True
    failure: Failure | None = None
    coverage: Coverage = field(default_factory=Coverage)
    refereed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


@dataclass
class _Side:
    """What one run did."""

    arguments: Any = None
    result: Any = None
    random: Any = None
    sharing: Any = None
    error: Exception | None = None
    tangents: list[torch.Tensor] | None = None
    gradients: Any = None
    backward_error: Exception | None = None


@config.patch(cache=False)
def try_case(call: Call, backend: Any, **options: Any) -> Outcome:
    """Run a case eagerly, then compiled for ``backend``; ``options`` go to ``jitney.compile``."""
    extra = {}
    if call.case.variant == "out":
        out = _room_for_results(call)
        if out is None:
            return Outcome(call.case, None)
        extra["out"] = out
    eager = _run(call.function, call, extra)
    if eager.error is not None:
        return Outcome(call.case, None)
    coverage = Coverage()
    with events.listen(coverage.note):
        compiled = _run(compile_function(_wrapped(call.function), backend=backend, **options), call, extra)
    reset()
    return _judged(call, extra, eager, compiled, coverage)


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Builtins have no bytecode to capture."""

    def operator_call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return operator_call


def _room_for_results(call: Call) -> Any:
    """Tensors for ``out=``; None if eager raises, or its results are not tensors alone."""
    seed_everything()
    try:
        with _quiet(), torch.no_grad():
            made = call.function(*copied(call.args, grad=False), **copied(call.kwargs, grad=False))
    except Exception:
        return None
    if isinstance(made, torch.Tensor):
        return torch.zeros_like(made)
    if isinstance(made, (tuple, list)) and all(isinstance(item, torch.Tensor) for item in made):
        return tuple(torch.zeros_like(item) for item in made)
    return None


# --- running -------------------------------------------------------------------------------------------------------


def _run(
    function: Callable[..., Any], call: Call, extra: dict[str, Any], given: list[torch.Tensor] | None = None
) -> _Side:
    """``given``: tangents for the backward, instead of new ones."""
    args, kwargs = copied((call.args, {**call.kwargs, **extra}), grad=call.trains)
    side = _Side()
    leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]
    seed_everything()
    with _quiet():
        try:
            if call.case.variant == "inplace" and call.trains:
                args = (args[0].clone(), *args[1:])  # leaves may not be written to
            side.result = function(*args, **kwargs)
            side.arguments, side.random = (args, kwargs), random_state()
            side.sharing = sharing(side.result, side.arguments)
        except Exception as error:
            side.error = error
            return side
        if call.trains and leaves:
            try:
                side.gradients = _gradients(call, side, leaves, given)
            except Exception as error:
                side.backward_error = error
    return side


def _gradients(call: Call, side: _Side, leaves: list[torch.Tensor], given: list[torch.Tensor] | None) -> Any:
    """Gradients of all results together; then, where there are several, of the last one alone."""
    finished = [t for t in tensors(call.finish(side.result)) if t.requires_grad]
    if not finished:
        return None
    several = len(finished) > 1
    tangents = fresh_tangents(finished)
    if given is not None:
        tangents = [t.to(out.dtype) for t, out in zip(given, finished, strict=True)]
    side.tangents = tangents
    found = torch.autograd.grad(finished, leaves, tangents, allow_unused=True, retain_graph=several)
    alone = torch.autograd.grad(finished[-1:], leaves, tangents[-1:], allow_unused=True) if several else None
    return found, alone


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- judging -------------------------------------------------------------------------------------------------------


def _judged(call: Call, extra: dict[str, Any], eager: _Side, compiled: _Side, coverage: Coverage) -> Outcome:
    counted = True if eager.gradients is not None else None
    failure = _forward_failure(call, eager, compiled)
    backward = None if failure is not None else _backward_failure(eager, compiled)
    refereed = "values" in [f.kind for f in (failure, backward) if f] and _as_good(call, extra, eager, compiled)
    if refereed:
        failure = _forward_failure(call, eager, compiled, values=False)
        backward = None if failure is not None else _backward_failure(eager, compiled, values=False)
    if failure is None and coverage.failed:
        failure = Failure("forward", "graph raises", coverage.failed[0])
    if failure is not None:
        return Outcome(call.case, False, False if counted else None, False, failure, coverage)
    exact = same_bits((eager.result, eager.gradients), (compiled.result, compiled.gradients))
    ran = counted and backward is None
    return Outcome(call.case, True, ran, exact or call.undefined, backward, coverage, refereed)


def _as_good(call: Call, extra: dict[str, Any], eager: _Side, compiled: _Side) -> bool:
    """Are the numbers of the compiled run, rounded otherwise than eager's, no further from those of float64?

    Not asked of what draws random numbers: those of float64 are others. Of what writes to ``out``, the result is it.
    """
    seed_everything()
    if not all(map(torch.equal, random_state(), eager.random)):
        return False
    truth = _run(call.function, widened(call), {}, eager.tangents)
    if truth.error is not None or (truth.gradients is None) != (eager.gradients is None):
        return False
    if extra:
        return as_good(eager.result, compiled.result, truth.result)
    sides = [(side.result, side.arguments, side.gradients) for side in (eager, compiled, truth)]
    return as_good(*sides)


def _forward_failure(call: Call, eager: _Side, compiled: _Side, *, values: bool = True) -> Failure | None:
    if compiled.error is not None:
        return Failure("forward", "raises", _message(compiled.error))
    values = values and not call.undefined
    found = difference(eager.result, compiled.result, "result", values=values)
    found = found or difference(eager.arguments, compiled.arguments, "argument", values=values)
    if found is None and eager.sharing != compiled.sharing:
        found = Difference("aliasing", f"results share memory as {compiled.sharing}, {eager.sharing} was expected")
    if found is None and not all(map(torch.equal, eager.random, compiled.random)):
        found = Difference("random state", "the generator is left in another state")
    return None if found is None else Failure("forward", found.kind, found.detail)


def _backward_failure(eager: _Side, compiled: _Side, *, values: bool = True) -> Failure | None:
    if eager.backward_error is not None:
        if compiled.backward_error is not None:
            return None
        return Failure("backward", "does not raise", f"eager raises {_message(eager.backward_error)}")
    if compiled.backward_error is not None:
        return Failure("backward", "raises", _message(compiled.backward_error))
    found = difference(eager.gradients, compiled.gradients, "gradients", values=values, strides=False)
    if found is None:
        return None
    kind = "None for zeros" if found.kind == "structure" and _same_but_for_zeros(eager, compiled) else found.kind
    return Failure("backward", kind, found.detail)


def _same_but_for_zeros(eager: _Side, compiled: _Side) -> bool:
    """Are the gradients equal if those that are None are taken as zeros?"""
    for expected, found in zip(eager.gradients, compiled.gradients, strict=True):
        for a, b in zip(expected or (), found or (), strict=True):
            one = a if b is None else b if a is None else None
            if (one is None and difference(a, b, "", strides=False)) or (one is not None and one.count_nonzero()):
                return False
    return True


def _message(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:400]}"
