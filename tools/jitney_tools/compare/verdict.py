"""One graph beside eager: what is wrong with how it was compiled, in one word and one line."""

from __future__ import annotations

import functools
import gc
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from jitney.errors import JitneyError
from jitney.torch_compat.subclasses import leaves
from jitney_tools.compare.copies import copied, tensors
from jitney_tools.compare.float64_oracle import InDoubles, RandomDraws, close, doubled, too_far
from jitney_tools.compare.rounding_noise import RUNS, InShaken, within
from jitney_tools.compare.time_limit import TimeLimit, time_limit

Kind = Literal["raises", "hangs", "dies", "facts", "numbers", "writes", "shares", "reuses", "leaks"]
Place = Literal["results", "gradients", "inputs"]
SEED = 20_23


@dataclass(frozen=True)
class Fault:
    """What a compiled graph does otherwise than eager.

    Args:
        kind: ``raises``; ``hangs``: takes longer than it may; ``dies``: ends the process; ``facts``: a result of
            another shape, dtype or kind; ``numbers``: wrong values; ``writes``: an input is changed (or is not);
            ``shares``: a result is in the memory of an input; ``reuses``: in that of an earlier call's result;
            ``leaks``: each call leaves tensors behind.
        place: where: in results, in gradients, in inputs.
        reason: for people, one line.
        error: the exception, if it raises.
    """

    kind: Kind
    place: Place
    reason: str
    error: BaseException | None = field(default=None, compare=False)

    def like(self, other: Fault | None) -> bool:
        """Is it the same fault, in another graph: of the same kind and place, with the same essential message?"""
        if other is None or (self.kind, self.place) != (other.kind, other.place):
            return False
        return self.kind != "raises" or essence(self.reason) == essence(other.reason)

    def __str__(self) -> str:
        return f"{SAYS[self.kind]} ({self.place}): {self.reason}"


SAYS = {
    "raises": "it raises",
    "hangs": "it hangs",
    "dies": "it takes the process down",
    "facts": "another kind of result",
    "numbers": "wrong numbers",
    "writes": "an input is written to",
    "shares": "a result in the memory of an input",
    "reuses": "a result in the memory of another call's",
    "leaks": "memory leaks",
}


def essence(message: str) -> str:
    """A message without what differs from graph to graph: numbers, addresses, shapes."""
    return re.sub(r"0x[0-9a-f]+|_?\d+(\.\d+)?|\[[\d, ]*\]|\([\d, ]*\)", "", message)


def cause_of(error: BaseException) -> BaseException:
    """The first exception, where errors of ours say what came of it."""
    while isinstance(error, JitneyError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def raised(error: BaseException, place: Place) -> Fault:
    """The fault of a compiled graph that has raised."""
    if isinstance(error, TimeLimit):
        return Fault("hangs", place, str(error), error)
    cause = cause_of(error)
    reason = cause.reason if isinstance(cause, JitneyError) else str(cause)
    first = reason.strip().partition("\n")[0]
    return Fault("raises", place, f"{type(cause).__name__}: {first}" if first else type(cause).__name__, error)


@dataclass(frozen=True)
class Terms:
    """What is looked at.

    Args:
        numbers: compare values; else only what raises, hangs, or is of another kind.
        gradients: run a backward, too.
        leaks: call it some times more, and see whether tensors are left behind.
        seconds: how long one run may take; 0: for ever.
    """

    numbers: bool = True
    gradients: bool = True
    leaks: bool = False
    seconds: float = 0.0


@dataclass
class Side:
    """One run: results and gradients, by eager, compiled or in float64."""

    inputs: list[Any]
    results: list[torch.Tensor] = field(default_factory=list)
    gradients: list[torch.Tensor | None] = field(default_factory=list)
    whole: Any = None

    def run(self, function: Callable[..., Any]) -> None:
        """Call it, with random numbers that are the same on each side."""
        with _seeded(self.inputs):
            self.whole = function(*self.inputs)
            self.results = list(tensors(_as_containers(self.whole)))

    def go_back(self) -> None:
        """Gradients of the inputs that require them, of results weighted by numbers that are the same on each side."""
        ends = [r for r in self.results if r.requires_grad]
        begin = [t for t in self.inputs if isinstance(t, torch.Tensor) and t.requires_grad]
        if not ends or not begin:
            return
        with _seeded(self.inputs):
            found = torch.autograd.grad(ends, begin, [_tangent(r) for r in ends], allow_unused=True)
        self.gradients = list(found)


def _as_containers(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def _tangent(result: torch.Tensor) -> torch.Tensor:
    """Numbers of both signs that every dtype has exactly, so that all sides begin with the same."""
    steps = torch.arange(result.numel(), device=result.device) * 7 % 17 - 8
    return (steps.to(result.dtype) / 8).reshape(result.shape)


class _seeded:
    """Equal random numbers, and the generators as they were afterwards."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        devices = sorted({t.device.index for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda})
        self.fork = torch.random.fork_rng(devices)

    def __enter__(self) -> None:
        self.fork.__enter__()
        torch.manual_seed(SEED)

    def __exit__(self, *error: Any) -> None:
        self.fork.__exit__(*error)


def judge(
    plain: Callable[..., Any], compiled: Callable[..., Any], inputs: Sequence[Any], terms: Terms = Terms()
) -> Fault | None:
    """The first thing that ``compiled`` does otherwise than ``plain``; None if there is none, or if ``plain`` raises.

    Both get copies of the inputs, of the same strides. Generators are put back.
    """
    eager, random_draws = Side(copied(list(inputs))), RandomDraws()
    try:
        with random_draws:
            eager.run(plain)
            if terms.gradients:
                eager.go_back()
    except Exception:
        return None
    ours = Side(copied(list(inputs)))
    reference = Reference(plain, inputs, random_draws.draws, terms.gradients)
    place: Place = "results"
    try:
        with time_limit(terms.seconds):
            ours.run(compiled)
        found = differing(ours, eager) or (wrong_forward(ours, eager, reference) if terms.numbers else None)
        if found is not None:
            return found
        place = "gradients"
        if terms.gradients:
            with time_limit(terms.seconds):
                ours.go_back()
    except (Exception, TimeLimit) as error:
        return raised(error, place)
    if terms.gradients:
        found = _missing(ours, eager) or (_wrong_backward(ours, eager, reference) if terms.numbers else None)
    return found or (_leak(plain, compiled, inputs) if terms.leaks else None)


def _leak(plain: Callable[..., Any], compiled: Callable[..., Any], inputs: Sequence[Any]) -> Fault | None:
    left = leaking(lambda: Side(copied(list(inputs))).run(compiled))
    if not left or left <= leaking(lambda: Side(copied(list(inputs))).run(plain)):
        return None
    return Fault("leaks", "results", f"each call leaves {left} bytes of tensors behind")


@dataclass
class Reference:
    """The run in float64, made when it is first asked for.

    Args:
        plain, inputs: what runs.
        draws: random numbers that eager has drawn.
        gradients: run a backward, too.
    """

    plain: Callable[..., Any]
    inputs: Sequence[Any]
    draws: list[Any]
    gradients: bool

    @functools.cached_property
    def side(self) -> Side | None:
        """The run; None if the graph does not run so: it says something about dtypes, or looks at bits."""
        return self._run(InDoubles(self.draws))

    @functools.cached_property
    def shaken(self) -> list[Side | None]:
        """Runs with other roundings: which numbers are made of those."""
        return [self._run(InShaken(self.draws, seed)) for seed in range(RUNS)]

    def _run(self, block: InDoubles) -> Side | None:
        given = []
        for value in copied(list(self.inputs)):
            wide = doubled(value.detach()) if isinstance(value, torch.Tensor) else value
            if isinstance(value, torch.Tensor):
                block.know([(wide, value.dtype)])
            given.append(wide.requires_grad_() if isinstance(value, torch.Tensor) and value.requires_grad else wide)
        side = Side(given)
        try:
            with block:
                side.run(self.plain)
                if self.gradients:
                    side.go_back()
        except Exception:
            return None
        return side


def wrong_forward(ours: Side, eager: Side, reference: Reference) -> Fault | None:
    """Inputs and results whose numbers are wrong."""
    return _wrong("inputs", _written(ours), _written(eager), reference, _written) or _wrong(
        "results", ours.results, eager.results, reference, lambda side: side.results
    )


def _numbers(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors whose elements can be compared: itself, or those that it wraps."""
    plain = [t.detach() for t in leaves(tensor)]
    return [t for t in plain if t.layout is torch.strided and not t.is_nested and not t.is_quantized]


def _wrong_backward(ours: Side, eager: Side, reference: Reference) -> Fault | None:
    return _wrong("gradients", ours.gradients, eager.gradients, reference, lambda side: side.gradients)


def differing(ours: Side, eager: Side) -> Fault | None:
    """What is wrong with results before their numbers are looked at."""
    return _facts(ours, eager) or _sharing(ours, eager)


def _facts(ours: Side, eager: Side) -> Fault | None:
    """Results of another number, shape, dtype or kind."""
    if len(ours.results) != len(eager.results):
        return Fault("facts", "results", f"{len(ours.results)} tensors, {len(eager.results)} were expected")
    for number, (got, want) in enumerate(zip(ours.results, eager.results, strict=True)):
        have, expected = _described(got), _described(want)
        if have != expected:
            return Fault("facts", "results", f"result {number} is {have}, {expected} was expected")
    return None


def _described(tensor: torch.Tensor) -> str:
    grad = ", which requires grad" if tensor.requires_grad else ""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}{list(tensor.shape)} on {tensor.device.type}{grad}"


def _sharing(ours: Side, eager: Side) -> Fault | None:
    """Results that share memory with inputs, where eager's do not."""
    for number, (got, want) in enumerate(zip(ours.results, eager.results, strict=True)):
        for at, (mine, theirs) in enumerate(zip(ours.inputs, eager.inputs, strict=True)):
            if isinstance(mine, torch.Tensor) and _shares(got, mine) and not _shares(want, theirs):
                return Fault("shares", "results", f"result {number} shares the memory of input {at}")
    return None


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return not memory_of(a).isdisjoint(memory_of(b))


def memory_of(tensor: torch.Tensor) -> set[int]:
    """Where the data of a tensor is; of a subclass that wraps tensors, of each."""
    plain = [t for t in leaves(tensor) if t.layout is torch.strided and not t.is_nested and t.numel()]
    return {t.untyped_storage().data_ptr() for t in plain} - {0}


def _written(side: Side) -> list[torch.Tensor | None]:
    return [t if isinstance(t, torch.Tensor) else None for t in side.inputs]


def _missing(ours: Side, eager: Side) -> Fault | None:
    for number, (got, want) in enumerate(zip(ours.gradients, eager.gradients, strict=True)):
        if (got is None) != (want is None):
            what = "is missing" if got is None else "was not expected"
            return Fault("facts", "gradients", f"gradient {number} {what}")
        if got is not None and want is not None and _described(got) != _described(want):
            return Fault("facts", "gradients", f"gradient {number} is {_described(got)}, not {_described(want)}")
    return None


def _wrong(
    place: Place,
    ours: Sequence[torch.Tensor | None],
    eager: Sequence[torch.Tensor | None],
    reference: Reference,
    part: Callable[[Side], Sequence[torch.Tensor | None]],
) -> Fault | None:
    for number, (got, want) in enumerate(zip(ours, eager, strict=True)):
        if got is None or want is None:
            continue
        pairs = list(zip(_numbers(got), _numbers(want), strict=False))
        if all(close(mine, theirs) for mine, theirs in pairs):
            continue
        exact = _tensor_of(reference.side, part, number, len(eager))
        known: list[Any] = exact if len(exact) == len(pairs) else [None] * len(pairs)
        reasons = [too_far(mine, theirs, wide) for (mine, theirs), wide in zip(pairs, known, strict=True)]
        reason = next(filter(None, reasons), "")
        if reason and exact:
            runs = [_tensor_of(side, part, number, len(eager)) for side in reference.shaken]
            if all(_explained(*pair, known[at], at, runs) for at, pair in enumerate(pairs) if reasons[at]):
                continue
        if reason:
            kind: Kind = "writes" if place == "inputs" else "numbers"
            return Fault(kind, place, f"{place.removesuffix('s')} {number}: {reason}")
    return None


Part = Callable[[Side], Sequence[torch.Tensor | None]]


def _tensor_of(side: Side | None, part: Part, number: int, count: int) -> list[torch.Tensor]:
    """What can be compared of one tensor of a run; empty if it has none."""
    among = part(side) if side is not None else []
    found = among[number] if len(among) == count else None
    return _numbers(found) if found is not None else []


def _explained(
    found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None, at: int, runs: list[list[torch.Tensor]]
) -> bool:
    """Do runs with other roundings differ as much? That some have no such tensor shows that roundings decide."""
    if exact is None or exact.shape != eager.shape:
        return False
    others = [run[at] for run in runs if at < len(run) and run[at].shape == exact.shape]
    return 0 < len(others) < RUNS or (len(others) == RUNS and within(found, eager, exact, others))


# ---------------------------------------------------------------------- leaks


def leaking(call: Callable[[], Any], times: int = 3) -> int:
    """Bytes of tensors that each call leaves behind; 0 if one of some calls leaves none. What it returns is dropped."""
    call()
    gc.freeze()  # what is there already is not looked at: that would take most of the time
    try:
        counts = [_alive()]
        for _ in range(times):
            call()
            counts.append(_alive())
    finally:
        gc.unfreeze()
    growth = [b - a for a, b in itertools.pairwise(counts)]
    return max(min(growth), 0)


def _alive() -> int:
    """Bytes of the tensors that are new and that somebody holds."""
    gc.collect()
    sizes = {}
    for found in gc.get_objects():
        if type(found) in (torch.Tensor, torch.nn.Parameter) and found.layout is torch.strided and not found.is_nested:
            storage = found.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    held = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
    return sum(sizes.values()) + held
