"""The ladder: a function with one step of compiling more each time, until it goes wrong: that step is guilty."""

from __future__ import annotations

import contextlib
import inspect
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from jitney.backends import Backend, BoundBackend, core_decompositions, resolve
from jitney.backends.resolve import LAUNCHER
from jitney.config import config
from jitney.copies import copied, tensors
from jitney.debug import watch
from jitney.debug.doubles import close, too_far
from jitney.debug.limit import TimeLimit, time_limit
from jitney.debug.minifier.case import Case, NotMinified
from jitney.debug.minifier.script import origin_of, write_case
from jitney.debug.verdict import Fault, Place, Terms, leaking, raised
from jitney.errors import JitneyError
from jitney.wrapping import leaves


@dataclass
class Rung:
    """One way to run the function.

    Args:
        name: what users call it.
        phase: what it adds to the rung before: the one to blame if it fails.
        spec, options, mode: how it is compiled; a ``spec`` of None: not at all.
        fault: what went wrong; None if nothing did.
        case: the graph that went wrong, where it is one.
        seconds: how long the rung took.
    """

    name: str
    phase: str
    spec: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    mode: str | None = None
    fault: Fault | None = None
    case: Case | None = None
    seconds: float = 0.0


@dataclass
class Bisection:
    """What the ladder has shown; ``str()`` is a report.

    Args:
        rungs: those that were tried, in order; the last one failed, or none did.
        note: what it could not look at.
        launcher: the program that minifies the graph that failed.
    """

    rungs: list[Rung] = field(default_factory=list)
    note: str = ""
    launcher: Path | None = None

    @property
    def guilty(self) -> Rung | None:
        """The rung that failed."""
        return next((rung for rung in self.rungs if rung.fault is not None), None)

    @property
    def phase(self) -> str:
        """The guilty phase: ``program``, ``capture``, ``aot``, ``decompositions``, ``backend NAME``...; empty: none."""
        return self.guilty.phase if self.guilty is not None else ""

    def __str__(self) -> str:
        width = max(len(rung.name) for rung in self.rungs)
        rows = [f"{r.name:<{width}}  {r.fault or 'works'}" for r in self.rungs]
        if self.guilty is None:
            rows.append("nothing is wrong: results, gradients and writes are eager's on every rung")
        else:
            rows.append(f"guilty: {self.guilty.phase}")
            rows += self._next()
        return "\n".join([*rows, *([f"note: {self.note}"] if self.note else [])])

    def _next(self) -> list[str]:
        assert self.guilty is not None
        case, fault = self.guilty.case, self.guilty.fault
        rows = [f"graph from: {origin_of(case)}"] if case is not None and origin_of(case) else []
        if self.launcher is not None:
            rows.append(f"minify: jitney minify {self.launcher}")
        elif case is None and fault is not None and isinstance(fault.error, JitneyError):
            rows += [f"  {line}" for line in str(fault.error).splitlines()]
        return rows


def bisect(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: Any = "auto",
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Bisection:
    """Run a function with one step of compiling more each time, and name the step with which it goes wrong.

    Each graph is compared with eager, and where they differ with float64: results, writes, and gradients. Tensors in
    the arguments, and parameters and buffers of modules that the function knows, are put back after each rung; other
    things that it changes are not.

    Args:
        function: what fails; compiled already, or not.
        args, kwargs: its arguments.
        backend, options, mode: as in ``compile``.
        say: is told the name of each rung as it begins.
    """
    original = getattr(function, "_jitney_original", function)
    ladder = _Ladder(original, tuple(args), dict(kwargs or {}))
    bound = resolve(backend, options, mode)
    found = Bisection()
    for rung in _rungs(bound):
        say(rung.name)
        found.rungs.append(rung)
        begin = time.perf_counter()
        ladder.climb(rung)
        rung.seconds = time.perf_counter() - begin
        if rung.fault is not None:
            break
    found.note = ladder.note
    if found.guilty is not None and found.guilty.case is not None:
        try:
            path = Path(config.base_dir) / LAUNCHER
            found.launcher = write_case(found.guilty.case, found.guilty.fault, path, launcher=True)
        except NotMinified as refusal:
            found.note = str(refusal)
    return found


def _rungs(bound: BoundBackend) -> Iterator[Rung]:
    """Python, then capture, AOT, decompositions and the backend: those that this backend goes through."""
    assert bound.asked is not None
    yield Rung("the program itself", "program")
    yield Rung("eager", "capture", "eager")
    if bound.backend.level == "aten":
        yield Rung("aot_eager", "aot", "aot_eager")
        yield Rung("aot_eager, core decompositions", "decompositions", "aot_eager", {"decompose": "core"})
        own = bound.decompositions()
        if own and own != core_decompositions():
            plain = Backend(
                f"decompositions_of_{bound.name}",
                lambda graph, inputs, request: graph.forward,
                level="aten",
                decompositions=own,
            )
            yield Rung(f"aot_eager, decompositions of {bound.name}", f"decompositions of {bound.name}", plain)
    if bound.name in ("eager", "aot_eager") and not bound.asked.options:
        return
    yield Rung(bound.name, f"backend {bound.name}", bound.asked.spec, bound.asked.options or {}, bound.asked.mode)


class _Ladder:
    """The function, its arguments, and what eager makes of them.

    Args:
        function: what is run.
        args, kwargs: its arguments.
    """

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.given = (args, kwargs)
        self.modules = list(_modules(function, [*args, *kwargs.values()]))
        self.note = ""
        self.expected: _Outcome | None = None
        self.repeats = True  # does eager give the same numbers twice?
        self.goes_back = True  # may we run a backward, or has the program done so itself?

    def climb(self, rung: Rung) -> None:
        """Run the function as a rung says, and note what is wrong with that."""
        if rung.spec is None:
            self._eagerly(rung)
            return
        compiled = _compile(
            self.function, backend=rung.spec, options={**rung.options, "crosscheck": True}, mode=rung.mode
        )
        told: list[tuple[Case | None, Fault]] = []
        watches: list[watch.Watch] = []
        quiet = config.patch(cache=False, suppress_errors=False, repro_after="", debug_function="")
        with quiet, watch.telling(lambda case, fault: told.append((case, fault)), watches):
            # No limit for what is jitney's own: the first time, all that it imports is imported there.
            limit = config.minifier_try_seconds if rung.phase.startswith("backend") else 0
            found, error = self._outcome(compiled, limit)
            if told:
                rung.case, rung.fault = told[0]
            elif error is not None:
                rung.fault = raised(error, "results")
            else:
                assert found is not None and self.expected is not None
                rung.fault = self._differs(found, rung)
            if rung.fault is None and rung.phase.startswith("backend"):
                self._leaks(rung, compiled, watches)

    def _eagerly(self, rung: Rung) -> None:
        self.expected, error = self._outcome(self.function, 0)
        if error is not None and self.goes_back:
            self.goes_back = False
            self.expected, error = self._outcome(self.function, 0)
        if error is not None:
            rung.fault = raised(error, "results")
            return
        again, _ = self._outcome(self.function, 0)
        assert self.expected is not None
        if again is None or again.differs(self.expected) is not None:
            self.repeats = False
            self.note = "the program itself returns something else each time: its graphs are compared, it is not"

    def _outcome(self, run: Callable[..., Any], seconds: float) -> tuple[_Outcome | None, BaseException | None]:
        """One run on copies, its results and gradients; everything that it changes of modules is put back."""
        args, kwargs = copied(self.given)
        begin = [t for t in tensors((args, kwargs)) if t.requires_grad and t.is_leaf]
        begin += [p for module in self.modules for p in module.parameters() if p.requires_grad]
        with _put_back(self.modules), torch.random.fork_rng():
            torch.manual_seed(0)
            try:
                with time_limit(seconds):
                    found = _Outcome(run(*args, **kwargs))
                    found.changed = [t.detach().clone() for m in self.modules for t in m.state_dict().values()]
                    found.changed += [t.detach().clone() for t in tensors((args, kwargs))]
                    found.go_back(begin, self.goes_back)
            except (Exception, TimeLimit) as error:
                return None, error
        return found, None

    def _differs(self, found: _Outcome, rung: Rung) -> Fault | None:
        """Is what the function returned, changed, or the gradient wrong, though no graph was told to be?"""
        if not self.repeats:
            return None
        assert self.expected is not None
        fault = found.differs(self.expected)
        if fault is None or rung.phase == "capture":
            return fault
        # Every graph's numbers are right beside float64: rounding that grew from graph to graph is nobody's fault.
        return None if fault.kind in ("numbers", "writes") else fault

    def _leaks(self, rung: Rung, compiled: Callable[..., Any], watches: Sequence[watch.Watch]) -> None:
        def call(run: Callable[..., Any]) -> Callable[[], Any]:
            return lambda: self._outcome(run, 0)

        left = leaking(call(compiled))
        if not left or left <= leaking(call(self.function)):
            return
        rung.fault = Fault("leaks", "results", f"each call leaves {left} bytes of tensors behind")
        for seen in watches:
            case = seen.case_or_none()
            fault = case.fault(Terms(leaks=True, seconds=config.minifier_try_seconds)) if case is not None else None
            if fault is not None:
                rung.fault, rung.case = fault, case
                return


@dataclass
class _Outcome:
    """What a run has returned and changed, and gradients."""

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

    def differs(self, expected: _Outcome) -> Fault | None:
        """What is not as in another run of the same function."""
        pairs: list[tuple[Place, Sequence[Any], Sequence[Any]]] = [
            ("results", _innermost(self.value), _innermost(expected.value)),
            ("inputs", self.changed, expected.changed),
            ("gradients", self.gradients, expected.gradients),
        ]
        for place, ours, theirs in pairs:
            if len(ours) != len(theirs):
                return Fault("facts", place, f"{len(ours)} tensors, {len(theirs)} were expected")
            for number, (got, want) in enumerate(zip(ours, theirs, strict=True)):
                fault = _compared(place, number, got, want)
                if fault is not None:
                    return fault
        return None


def _innermost(value: Any) -> list[torch.Tensor]:
    """Every tensor in a result; those inside tensors that wrap tensors in their place."""
    return [inner for tensor in tensors(value) for inner in leaves(tensor)]


def _compared(place: Place, number: int, got: Any, want: Any) -> Fault | None:
    if (got is None) != (want is None):
        return Fault("facts", place, f"{place.removesuffix('s')} {number} is {'missing' if got is None else 'new'}")
    if got is None or got.layout is not torch.strided or got.is_nested:
        return None
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        facts = f"{got.dtype}{list(got.shape)}, {want.dtype}{list(want.shape)} was expected"
        return Fault("facts", place, f"{place.removesuffix('s')} {number} is {facts}")
    got, want = got.detach(), want.detach()
    reason = "" if close(got, want) else too_far(got, want, None)
    if not reason:
        return None
    kind: Any = "writes" if place == "inputs" else "numbers"
    return Fault(kind, place, f"{place.removesuffix('s')} {number}: {reason}")


def _modules(function: Any, values: Sequence[Any]) -> Iterator[torch.nn.Module]:
    """The modules that a function may run: itself, its owner, in arguments, closure and globals; each once."""
    todo = [function, getattr(function, "__self__", None), *values]
    inner = inspect.unwrap(getattr(function, "__func__", function)) if callable(function) else None
    if isinstance(inner, types.FunctionType):
        found = inspect.getclosurevars(inner)
        todo += [*found.nonlocals.values(), *found.globals.values()]
    seen: set[int] = set()
    for value in todo:
        if isinstance(value, torch.nn.Module) and id(value) not in seen:
            seen.add(id(value))
            yield value


@contextlib.contextmanager
def _put_back(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Parameters, buffers and gradients of modules are afterwards what they were."""
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


def _compile(function: Any, **how: Any) -> Any:
    from jitney.api import compile as compile_function  # the face imports debug; here it compiles each rung

    return compile_function(function, **how)
