"""The ladder: a function with one step of compiling more each time, until it goes wrong: that step is guilty."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from jitney.backends import Backend, BoundBackend, core_decompositions, resolve
from jitney.backends.failure_files import LAUNCHER, own_file
from jitney.config import config
from jitney.debug.compiled_as import CompiledAs, compiled_as
from jitney.errors import BackendFailed, JitneyError
from jitney_tools import graph_check
from jitney_tools.compare.copies import copied, tensors
from jitney_tools.compare.float64_oracle import InDoubles, RandomDraws, doubled, mapped
from jitney_tools.compare.outcome import Outcome, Truth, modules_of, optimizers_of, put_back, widened
from jitney_tools.compare.rounding_noise import RUNS, InShaken
from jitney_tools.compare.time_limit import TimeLimit, time_limit
from jitney_tools.compare.verdict import Fault, Terms, leaking, raised
from jitney_tools.minifier.case import Case, NotMinified
from jitney_tools.minifier.script import origin_of, write_case


@dataclass
class Rung:
    """One way to run the function.

    Args:
        name: what users call it.
        phase: what it adds to the rung before: the one to blame if it fails.
        spec, options, mode: how it is compiled; a ``spec`` of None: not at all.
        fault: what went wrong; None if nothing did.
        case: the graph that went wrong, where it is one.
        alone: does that graph fail by itself, so that it can be minified?
        refusal: why a graph that went wrong is no case.
        seconds: how long the rung took.
    """

    name: str
    phase: str
    spec: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    mode: str | None = None
    fault: Fault | None = None
    case: Case | None = None
    alone: bool = False
    refusal: str = ""
    seconds: float = 0.0


@dataclass
class Bisection:
    """What the ladder has shown; ``str()`` is a report.

    Args:
        rungs: those that were tried, in order; the last one failed, or none did.
        note: what it could not look at.
        launcher: the program that minifies the graph that failed.
        compared: were whole runs compared? Not if the program itself returns something else each time.
        stopped: the rung at which Ctrl-C ended it; empty if it went to the end.
    """

    rungs: list[Rung] = field(default_factory=list)
    note: str = ""
    launcher: Path | None = None
    compared: bool = True
    stopped: str = ""

    @property
    def guilty(self) -> Rung | None:
        """The rung that failed."""
        return next((rung for rung in self.rungs if rung.fault is not None), None)

    @property
    def phase(self) -> str:
        """The guilty phase: ``program``, ``capture``, ``aot``, ``decompositions``, ``backend NAME``...; empty: none."""
        return self.guilty.phase if self.guilty is not None else ""

    def __str__(self) -> str:
        width = max((len(rung.name) for rung in self.rungs), default=0)
        rows = [f"{r.name:<{width}}  {self._said(r)}" for r in self.rungs]
        rows += [f"guilty: {self.guilty.phase}", *self._next()] if self.guilty is not None else [self._innocent()]
        return "\n".join([*rows, *([f"note: {self.note}"] if self.note else [])])

    def _said(self, rung: Rung) -> str:
        return "stopped by Ctrl-C" if rung.name == self.stopped and rung.fault is None else str(rung.fault or "works")

    def _innocent(self) -> str:
        if self.stopped:
            return "nothing is known of the rung that was stopped, nor of those after it; nothing was written"
        if not self.compared:
            return "no graph is wrong: the results, gradients and writes of each are eager's on every rung"
        return "nothing is wrong: results, gradients and writes are eager's on every rung"

    def _next(self) -> list[str]:
        assert self.guilty is not None
        case, fault = self.guilty.case, self.guilty.fault
        rows = [f"graph from: {origin_of(case)}"] if case is not None and origin_of(case) else []
        if self.launcher is not None:
            rows.append(f"minify: jitney minify {self.launcher}")
        elif case is None and fault is not None and isinstance(fault.error, JitneyError):
            rows += [f"  {line}" for line in str(fault.error).splitlines()]
        elif not self.guilty.alone and not self.guilty.refusal and self.guilty.spec is not None:
            rows += TOGETHER
        return rows


TOGETHER = (
    "no graph does this by itself, so there is no small program: it takes several graphs, or several calls",
    "  a usual cause: memory of a result, or of an input, that the compiled graph uses again while somebody holds it",
    "  try: the function in parts, each compiled with fullgraph=True; JITNEY_REPRO_AFTER=capture JITNEY_REPRO_LEVEL=3 "
    "writes every graph as a program",
)


def bisect(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: Any = None,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Bisection:
    """Run a function with one step of compiling more each time, and name the step with which it goes wrong.

    On each rung every graph is compared with eager, and where they differ with float64: results, writes, and gradients.
    Then the program runs as it is, twice, and the whole is compared: what only shows where graphs or calls follow each
    other is a fault, too. Tensors in the arguments, parameters and buffers of modules that the function has at hand,
    and states of such optimizers, are put back after each run; other things that it changes are not. Ctrl-C ends it;
    what is known by then is returned.

    Args:
        function: what fails; compiled already, or not.
        args, kwargs: its arguments.
        backend, options, mode: as in ``compile``; by default those with which ``function`` was compiled, or ``"auto"``.
        say: is told the name of each rung as it begins.
    """
    how = compiled_as(function, backend, options, mode)
    ladder = _Ladder(how, tuple(args), dict(kwargs or {}))
    given = how.arguments()
    bound = resolve(given["backend"], given["options"], given["mode"])
    found = Bisection()
    for rung in _rungs(bound):
        say(rung.name)
        found.rungs.append(rung)
        begin = time.perf_counter()
        try:
            ladder.climb(rung)
        except KeyboardInterrupt:
            found.stopped = rung.name
        rung.seconds = time.perf_counter() - begin
        if rung.fault is not None or found.stopped:
            break
    found.note, found.compared = ladder.note, ladder.repeats
    _write(found)
    return found


def _write(found: Bisection) -> None:
    """Write the graph that fails as a program that minifies it."""
    rung = found.guilty
    if rung is None or rung.case is None or not rung.alone:
        refusal = rung.refusal if rung is not None else ""
    else:
        refusal = ""
        try:
            found.launcher = write_case(rung.case, rung.fault, own_file(LAUNCHER), launcher=True)
        except NotMinified as error:
            refusal = str(error)
        except OSError as error:
            refusal = f"nothing is written for the minifier: {error} (config.base_dir)"
    found.note = "; ".join(filter(None, (found.note, refusal)))


def _rungs(bound: BoundBackend) -> Iterator[Rung]:
    """Python, then capture, AOT, decompositions and the backend: those that this backend goes through."""
    assert bound.asked is not None
    yield Rung("the program itself", "program")
    yield Rung("eager", "capture", "eager")
    if bound.backend.level == "aten":
        yield Rung("aot_eager", "aot", "aot_eager")
        yield Rung("aot_eager, core decompositions", "decompositions", "aot_eager", {"decompose": "core"})
        try:
            own = bound.decompositions()
        except BackendFailed:  # which the backend's own rung says
            own = {}
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
        how: the function, and how it is compiled.
        args, kwargs: its arguments.
    """

    def __init__(self, how: CompiledAs, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.how = how
        self.function = how.function  # which may call something that is compiled
        self.plain = _uncompiled(how.function)
        self.given = (args, kwargs)
        self.modules = modules_of(self.function, [*args, *kwargs.values()])
        self.optimizers = optimizers_of(self.function, [*args, *kwargs.values()])
        self.note = how.note
        self.expected: Outcome | None = None
        self.repeats = True  # does eager give the same numbers twice?
        self.reuses = False  # does the program itself return the same memory twice?
        self.goes_back = True  # may we run a backward, or has the program done so itself?

    def climb(self, rung: Rung) -> None:
        """Run the function as a rung says, and note what is wrong with that."""
        if rung.spec is None:
            self._eagerly(rung)
            return
        quiet = config.patch(
            cache=False, suppress_errors=False, repro_after="", debug_function="", error_on_recompile=False
        )
        with quiet:
            checked = self._graphs(rung)
            if rung.fault is None:
                self._whole(rung, checked)
            elif rung.case is not None:
                rung.alone = rung.fault.kind == "hangs" or rung.fault.like(rung.case.fault(_terms(rung.fault)))

    def _compiled(self, rung: Rung, **own: Any) -> Callable[..., Any]:
        how = {"dynamic": self.how.dynamic, "fullgraph": self.how.fullgraph, "mode": rung.mode}
        compiled: Callable[..., Any] = _compile(
            self.function, backend=rung.spec, options={**rung.options, **own} or None, **how
        )
        return compiled

    def _limit(self, rung: Rung) -> float:
        """None for what is jitney's own: the first time, all that it imports is imported there."""
        return config.minifier_try_seconds if rung.phase.startswith("backend") else 0

    def _graphs(self, rung: Rung) -> list[graph_check.CheckedGraph]:
        """Each graph beside eager; returns them."""
        compiled = self._compiled(rung, crosscheck=True)
        told: list[tuple[Case | NotMinified, Fault]] = []
        checked: list[graph_check.CheckedGraph] = []
        with graph_check.telling(lambda case, fault: told.append((case, fault)), checked):
            _, error = self._outcome(compiled, self._limit(rung))
        if told:
            case, rung.fault = told[0]
            if isinstance(case, NotMinified):
                rung.refusal = str(case)
            else:
                rung.case = case
        elif error is not None:
            rung.fault = raised(error, "results")
        return checked

    def _whole(self, rung: Rung, checked: Sequence[graph_check.CheckedGraph]) -> None:
        """The program as it runs without anybody looking, twice: its graphs are right, is the whole?"""
        compiled = self._compiled(rung)
        runs: list[Outcome] = []
        for when in ("", "at the second call, "):
            found, error = self._outcome(compiled, self._limit(rung))
            if error is not None:
                rung.fault = raised(error, "results")
                return
            assert found is not None and self.expected is not None
            runs.append(found)
            if self.repeats:
                rung.fault = found.differs(self.expected, self._truth(rung), when)
            if rung.fault is not None:
                return
        shared = runs[1].lies_in(runs[0])
        if shared is not None and not self.reuses:
            reason = (
                f"result {shared[0]} of a second call is in the memory of result {shared[1]} of the first, still held"
            )
            rung.fault = Fault("reuses", "results", reason)
        elif rung.phase.startswith("backend"):
            self._leaks(rung, compiled, checked)

    def _truth(self, rung: Rung) -> Truth | None:
        """Float64, which tells rounding from wrong numbers; capture alone must not even round otherwise."""
        return None if rung.phase == "capture" else Truth(lambda: self._in_doubles, lambda: self._shaken)

    @functools.cached_property
    def _draws(self) -> list[Any] | None:
        """The random numbers that eager draws; None if the program fails."""
        random_draws = RandomDraws()
        _, error = self._outcome(self.plain, 0, random_draws)
        return random_draws.draws if error is None else None

    @functools.cached_property
    def _in_doubles(self) -> Outcome | None:
        """The program itself in float64, with the random numbers that eager draws; None if it does not run so."""
        if self._draws is None:
            return None
        return self._outcome(self.plain, 0, InDoubles(self._draws))[0]

    @functools.cached_property
    def _shaken(self) -> list[Outcome | None]:
        """The same with roundings shaken."""
        blocks = [InShaken(self._draws or [], seed) for seed in range(RUNS)]
        return [self._outcome(self.plain, 0, block)[0] for block in blocks]

    def _eagerly(self, rung: Rung) -> None:
        self.expected, error = self._outcome(self.plain, 0)
        if error is not None and self.goes_back:
            self.goes_back = False
            self.expected, error = self._outcome(self.plain, 0)
        if error is not None:
            rung.fault = raised(error, "results")
            return
        again, _ = self._outcome(self.plain, 0)
        assert self.expected is not None
        self.reuses = again is not None and again.lies_in(self.expected) is not None
        if again is None or again.differs(self.expected) is not None:
            self.repeats = False
            differs = "the program itself returns something else each time: its graphs are compared, it is not"
            self.note = "; ".join(filter(None, (self.note, differs)))

    def _outcome(
        self,
        run: Callable[..., Any],
        seconds: float,
        mode: contextlib.AbstractContextManager[Any] | None = None,
    ) -> tuple[Outcome | None, BaseException | None]:
        """One run on copies, its results and gradients; everything that it changes of modules is put back."""
        args, kwargs = copied(self.given)
        if isinstance(mode, InDoubles):
            narrow, (args, kwargs) = tensors((args, kwargs)), mapped((args, kwargs), _widened)
            known = [(wide, t.dtype) for wide, t in zip(tensors((args, kwargs)), narrow, strict=True)]
        begin = [t for t in tensors((args, kwargs)) if t.requires_grad and t.is_leaf]
        begin += [p for module in self.modules for p in module.parameters() if p.requires_grad]
        with put_back(self.modules, self.optimizers), torch.random.fork_rng(), contextlib.ExitStack() as stack:
            torch.manual_seed(0)
            try:
                if isinstance(mode, InDoubles):
                    known += stack.enter_context(widened(self.modules, self.optimizers))
                    mode.know(known)
                with time_limit(seconds), mode or contextlib.nullcontext():
                    found = Outcome(run(*args, **kwargs))
                    found.changed = [t.detach().clone() for m in self.modules for t in m.state_dict().values()]
                    found.changed += [t.detach().clone() for t in tensors((args, kwargs))]
                    found.go_back(begin, self.goes_back)
            except (Exception, TimeLimit) as error:
                return None, error
        return found, None

    def _leaks(self, rung: Rung, compiled: Callable[..., Any], checked: Sequence[graph_check.CheckedGraph]) -> None:
        def call(run: Callable[..., Any]) -> Callable[[], Any]:
            return lambda: self._outcome(run, 0)

        left = leaking(call(compiled))
        if not left or left <= leaking(call(self.plain)):
            return
        rung.fault = Fault("leaks", "results", f"each call leaves {left} bytes of tensors behind")
        for seen in checked:
            case = seen.case_or_refusal()
            fault = case.fault(_terms(rung.fault)) if isinstance(case, Case) else None
            if fault is not None and isinstance(case, Case):
                rung.fault, rung.case, rung.alone = fault, case, True
                return


def _terms(fault: Fault) -> Terms:
    return Terms(leaks=fault.kind == "leaks", seconds=config.minifier_try_seconds)


def _widened(value: Any) -> Any:
    """A tensor in float64, a leaf where it was one."""
    if not isinstance(value, torch.Tensor):
        return value
    return doubled(value.detach()).requires_grad_(value.requires_grad)


def _compile(function: Any, **how: Any) -> Any:
    from jitney.api import compile as compile_function  # the face imports debug; here it compiles each rung

    return compile_function(function, **how)


def _uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what it calls that is compiled as its user wrote it."""
    from jitney.api import running_originals

    def run(*args: Any, **kwargs: Any) -> Any:
        with running_originals():
            return function(*args, **kwargs)

    return run
