"""Compiled graphs under check: those that fail are written down for the minifier, numbers are compared with eager's.

A ``CheckedGraph`` is around a graph only where ``config.repro_after`` or the option ``crosscheck`` asks for it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from jitney.backends import BoundBackend, CompileRequest, warn
from jitney.backends.failure_files import LAUNCHER, REPRO, have_not_written, own_file
from jitney.backends.faults import raises_too
from jitney.config import config
from jitney.errors import AotError, BackendFailed, JitneyError
from jitney_tools.compare.copies import copied, tensors
from jitney_tools.compare.float64_oracle import RandomDraws
from jitney_tools.compare.time_limit import TimeLimit
from jitney_tools.compare.verdict import Fault, Reference, Side, Terms, differing, judge, raised, wrong_forward
from jitney_tools.minifier.case import After, Case, NotMinified, plain_case, python
from jitney_tools.minifier.script import write_case, wrong
from jitney_tools.minifier.search import minify

_numbers = itertools.count(1)
DUMP, MINIFY, EVERY, NUMBERS = 1, 2, 3, 4  # config.repro_level

Compiled = Callable[..., Sequence[Any]]
Tell = Callable[[Case | NotMinified, Fault], None]  # or why the graph cannot be a case


@contextlib.contextmanager
def telling(tell: Tell, graphs: list[CheckedGraph]) -> Iterator[None]:
    """What is found wrong with graphs that this thread compiles in the block is told instead of raised.

    ``graphs`` gets each one.
    """
    _telling.stack.append((tell, graphs))
    try:
        yield
    finally:
        _telling.stack.pop()


class _Telling(threading.local):
    """Who is told, innermost last; what other threads compile meanwhile is none of his business."""

    def __init__(self) -> None:
        self.stack: list[tuple[Tell, list[CheckedGraph]]] = []


_telling = _Telling()


class CheckedGraph:
    """One graph, and what becomes of it.

    Args:
        graph: as the backend, or AOT, is about to get it.
        inputs: FakeTensors and symbols.
        backend: whose compiled form is checked.
        request: what it is told.
        after: at which end of AOT the graph is.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        backend: BoundBackend,
        request: CompileRequest,
        after: After = "capture",
    ) -> None:
        copy = fx.Graph()
        copy.output(copy.graph_copy(graph.graph, {}))  # backends may change what they are given
        self.graph = fx.GraphModule(graph, copy)
        self.inputs = list(inputs)
        self.backend = backend
        self.request = request
        self.after = after
        self.grad = torch.is_grad_enabled()
        self.tell: Tell | None = None
        if _telling.stack:
            self.tell, graphs = _telling.stack[-1]
            graphs.append(self)
        self.calls = 0
        self.last: list[Any] | None = None  # copies of the inputs of the last call

    @property
    def every(self) -> int:
        """How often a call is compared with eager: 1 at each; 0 never."""
        if self.tell is not None or (self.writes and config.repro_level == NUMBERS):
            return 1
        return int(self.backend.own.crosscheck) if self.after == "capture" else 0

    @property
    def writes(self) -> bool:
        """Are faults of this graph to be written down?"""
        wanted = "capture" if self.backend.backend.level == "torch" else config.repro_after
        return bool(config.repro_after) and wanted == self.after

    def compiled(self, make: Callable[[], Compiled]) -> Compiled:
        """What ``make`` returns, under check."""
        if self.writes and config.repro_level == EVERY:
            path = own_file(LAUNCHER)
            self._write(None, path.with_stem(f"{path.stem}_{next(_numbers)}"))
        try:
            made = make()
        except (BackendFailed, AotError, TimeLimit) as error:
            self.failed(error, "results")
            raise

        def run(*inputs: Any) -> Sequence[Any]:
            return self._run(made, inputs)

        run.filled = frozenset()  # type: ignore[attr-defined] # see CompileRequest.updates: it is given none
        return run

    def half(
        self, module: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest, make: Callable[[], Compiled]
    ) -> Compiled:
        """A graph that AOT has made of this one, as ``make`` compiles it: checked by itself, or on this one's behalf.

        The forward runs within this graph, where failures are seen; the backward does not.
        """
        if config.repro_after == "aot":
            return CheckedGraph(module, inputs, self.backend, request, "aot").compiled(make)
        if request.kind != "backward":
            return make()
        try:
            made = make()
        except (BackendFailed, TimeLimit) as error:
            self.failed(error, "gradients")
            raise

        def run(*inputs: Any) -> Sequence[Any]:
            try:
                return made(*inputs)
            except (Exception, TimeLimit) as error:
                self.failed(error, "gradients")
                raise

        return run

    def _run(self, made: Compiled, inputs: tuple[Any, ...]) -> Sequence[Any]:
        self.last = copied(list(inputs))
        self.calls += 1
        if self.every and (self.calls - 1) % self.every == 0:
            return self._beside_eager(made, inputs)
        try:
            return made(*inputs)
        except (Exception, TimeLimit) as error:
            if not raises_too(self.graph.forward, copied(self.last)):
                self.failed(error, "results")
            raise

    # ------------------------------------------------------------------ numbers

    def _beside_eager(self, made: Compiled, inputs: tuple[Any, ...]) -> Sequence[Any]:
        """Eager on copies, then the compiled graph on the inputs themselves, then the backwards of both."""
        assert self.last is not None
        plain, given = self.graph.forward, self.last
        eager, random_draws = Side(copied(given)), RandomDraws()
        devices = sorted({t.device.index for t in tensors(given) if t.is_cuda})
        try:
            with torch.random.fork_rng(devices), random_draws:
                eager.results = list(tensors(plain(*eager.inputs)))
        except Exception:  # the program's own: the compiled graph is to raise it
            return made(*inputs)
        try:
            outputs = made(*inputs)
        except (Exception, TimeLimit) as error:
            self.failed(error, "results")
            raise
        ours = Side(list(inputs), list(tensors(list(outputs))))
        reference = Reference(plain, given, random_draws.draws, gradients=False)
        fault = differing(ours, eager) or wrong_forward(ours, eager, reference)
        if fault is None and any(result.requires_grad for result in eager.results):
            fault = judge(plain, made, given, Terms(seconds=config.minifier_try_seconds))
        if fault is not None:
            self._accuse(fault)
        return outputs

    def _accuse(self, fault: Fault) -> None:
        """Raise what is wrong, with the minified graph under a cross-check."""
        if self.tell is not None:
            self.tell(self.case_or_refusal(), fault)
            return
        if self.writes:
            written = self._write(fault, own_file(LAUNCHER))
            more = f"\nminify: jitney minify {written}" if written is not None else ""
        else:
            more = self._smaller(fault)
        raise wrong(fault, self.backend.name, self.request.user_stack, more)

    def _smaller(self, fault: Fault) -> str:
        """The minified graph as text, and where its program is."""
        try:
            found = minify(self.case(), seconds=config.minifier_seconds)
        except NotMinified as refusal:
            return f"\n(it was not minified: {refusal.reason})"
        text = f"\nminified, {found.before} operations became {found.case.op_count}: {found.fault}"
        text += "\n  " + python(found.case.graph)[0].strip().replace("\n", "\n  ")
        try:
            path = write_case(found.case, found.fault, own_file(REPRO), before=found.before)
        except NotMinified as refusal:
            return f"{text}\n(it was not written: {refusal})"
        return f"{text}\nrun: python {path}"

    # ------------------------------------------------------------------ writing

    def failed(self, error: BaseException, place: Any) -> None:
        """Write down, or tell, that the compiled graph has raised."""
        fault = raised(error, place)
        if self.tell is not None:
            self.tell(self.case_or_refusal(), fault)
        elif self.writes:
            path = own_file(REPRO if config.repro_level == DUMP else LAUNCHER)
            if self._write(fault, path) is None:
                have_not_written(path)
                if isinstance(error, JitneyError):
                    error.drop_command()

    def case_or_refusal(self) -> Case | NotMinified:
        """``case``, or why the graph cannot be one."""
        try:
            return self.case()
        except NotMinified as refusal:
            return refusal

    def case(self) -> Case:
        """The graph with the inputs of its last call, or with made-up ones.

        Raises:
            NotMinified: inputs are tensors of subclasses, which no program of ours can say.
        """
        values = self.last if self.last is not None else [_made_up(value) for value in self.inputs]
        symbolic = any(isinstance(value, (torch.SymInt, torch.SymFloat)) for value in self.inputs)
        kind = self.request.kind if self.after == "aot" else "inference"
        dynamic = None if symbolic and self.after == "capture" else False
        return plain_case(
            self.graph, values, self.backend, after=self.after, kind=kind, dynamic=dynamic, grad=self.grad
        )

    def _write(self, fault: Fault | None, path: Path) -> Path | None:
        """Write the case; None, and a warning, where that is not possible."""
        try:
            return write_case(self.case(), fault, path, launcher=config.repro_level != DUMP)
        except NotMinified as refusal:
            warn(str(refusal))
        except OSError as error:  # the fault itself is what the user must see
            warn(f"nothing is written for the minifier: {error} (config.base_dir)")
        return None


def _number(value: Any) -> Any:
    """A number as it was when captured."""
    return value if isinstance(value, (int, float)) else value.node.hint


def _made_up(value: Any) -> Any:
    """A tensor with the facts of a stand-in, or the number of a symbol."""
    if not isinstance(value, torch.Tensor):
        return _number(value)
    size, stride = [_number(n) for n in value.shape], [_number(n) for n in value.stride()]
    count = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 1
    facts: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    plain = value.is_floating_point() or value.is_complex()
    memory = torch.linspace(-1, 1, count, **facts) if plain else torch.zeros(count, **facts)
    return memory.as_strided(size, stride).requires_grad_(value.requires_grad)
