"""What a backend owes to who calls it: options, the graph that it is handed, what it keeps."""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import fx

from jitney.api import compile as compile_function
from jitney.api import reset
from jitney.backends import Backend, CompileRequest, SerializedGraph, registry, resolve
from jitney.backends.backend import Compile
from jitney.cache.digest import NotStorable
from jitney.config import config
from jitney.errors import InvalidOption, JitneyError
from jitney_testing.examples import example, examples_on
from jitney_testing.opinfo.compare import Difference
from jitney_testing.program import Program, docstring
from jitney_testing.same import compare
from jitney_testing.suite.check import Case, Check, Subject, whole

Look = Callable[[Subject], Difference | None]


def looked(name: str, says: str, look: Look) -> Check:
    """A check that is a function of this module: None if all is well."""

    def cases(subject: Subject) -> Iterator[Case]:
        yield Case("1", functools.partial(look, subject), functools.partial(_script, look, subject))

    return Check(name, says, cases)


def _script(look: Look, subject: Subject, headline: str) -> str:
    backend, lines = subject.naming
    where = f", device={subject.device!r}" if subject.device != "cpu" else ""
    where += f", options={dict(subject.options)!r}" if subject.options else ""
    parts = [docstring(headline), "", *lines, "from jitney_testing.suite.check import Subject"]
    parts.append(f"from {look.__module__} import {look.__name__}")
    parts += ["", f"found = {look.__name__}(Subject({backend}{where}))", "assert found is None, found", ""]
    return "\n".join(parts)


def _described(subject: Subject) -> Backend | None:
    """The backend's description of itself; None for a callable, which has none."""
    if isinstance(subject.backend, Backend):
        return subject.backend
    return registry.get(subject.backend) if isinstance(subject.backend, str) else None


def imported_lazily(subject: Subject) -> Difference | None:
    """Listing backends imports no plugin."""
    rows = [row for row in registry.listings() if row.name == subject.backend and row.status != "in-process"]
    if not rows:
        return None
    home = str(registry.get(subject.backend).compile.__module__).partition(".")[0]
    code = (
        "import sys; from jitney.backends import list_backends; import jitney; list_backends(); "
        f"jitney.compile(lambda: None, backend=lambda graph, inputs: graph.forward); print({home!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    if done.stdout.strip() == "False":
        return None
    if done.stdout.strip() == "True":
        return Difference("import", f"{home} is imported when backends are listed")
    return Difference("import", f"a process that lists backends fails: {done.stderr.strip()[-300:]}")


def refuses_unknown_options(subject: Subject) -> Difference | None:
    """An option that the backend does not have is an error that lists those that it has."""
    if _described(subject) is None:
        return None
    try:
        compile_function(torch.sin, backend=subject.backend, options={"no_such_option": 1})
    except InvalidOption:
        return None
    except Exception as error:
        return Difference("exception", f"{type(error).__name__}, InvalidOption was expected: {error}")
    return Difference("exception", "options={'no_such_option': 1} is accepted")


def takes_each_default(subject: Subject) -> Difference | None:
    """Each option may be given with its default value."""
    backend = _described(subject)
    if backend is None or backend.options is None:
        return None
    given = backend.options()
    for option in dataclasses.fields(backend.options):
        value = getattr(given, option.name)
        try:
            compiled = compile_function(lambda x: x + 1, backend=subject.backend, options={option.name: value})
            with examples_on(subject.device):
                compiled(example((3,)))
        except JitneyError as error:
            return Difference("exception", f"options={{{option.name!r}: {value!r}}}: {error}")
        finally:
            reset()
    return None


def leaves_the_graph_alone(subject: Subject) -> Difference | None:
    """A graph that the backend was given is as it was: others read it, such as the minifier and the debug folder."""
    problems: list[str] = []

    def spy(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest, compile_graph: Compile) -> Any:
        before, described = _picture(graph), _descriptions(graph)
        compiled = compile_graph(graph, inputs, request)

        def run(*values: Any) -> Any:
            results = compiled(*values)
            if _picture(graph) != before:
                problems.append(f"its {request.kind} graph was another after the call: {_picture(graph)[:300]}")
            return results

        if _picture(graph) != before:
            problems.append(f"its {request.kind} graph was another when it was compiled: {_picture(graph)[:300]}")
        lost = [name for name, value in described.items() if _descriptions(graph).get(name) is not value]
        if lost:
            problems.append(f"its {request.kind} graph has another meta['val'] than it had: {', '.join(lost)[:300]}")
        return run

    _train(subject, spy)
    return Difference("graph", problems[0]) if problems else None


def keeps_graphs(subject: Subject) -> Difference | None:
    """When nobody has the compiled function any more, the graphs that the backend was given are gone, too."""
    given: list[weakref.ref[fx.GraphModule]] = []

    def spy(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest, compile_graph: Compile) -> Any:
        given.append(weakref.ref(graph))
        return compile_graph(graph, inputs, request)

    times = 3
    for _ in range(times):
        _train(subject, spy)
    gc.collect()
    alive = sum(graph() is not None for graph in given)
    if alive < times:  # one may be what it has compiled last
        return None
    return Difference("leaks", f"of {len(given)} graphs that were compiled and forgotten, {alive} are still there")


def _train(subject: Subject, spy: Callable[..., Any]) -> None:
    """Compile a program, run it forward and backward, and forget it; ``spy`` is asked for each graph."""
    described = _described(subject) or resolve(subject.backend, None, None).backend
    compile_graph = functools.partial(spy, compile_graph=described.compile)
    backend = dataclasses.replace(described, compile=compile_graph, load=None)
    with examples_on(subject.device):
        x, y = example((4, 3), grad=True), example((3,), seed=1)
    try:
        with config.patch(cache=False):
            compile_function(_some_program, backend=backend, **subject.compiling)(x, y).sum().backward()
    finally:
        reset()


def wrong_when_loaded(subject: Subject) -> Difference | None:
    """A graph that a later process makes again, from what the backend has put on disk, does what it did."""
    described = _described(subject) or resolve(subject.backend, None, None).backend
    if described.load is None:
        return None
    load = described.load

    def compile_and_load(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Any:
        compiled = described.compile(graph, inputs, request)
        try:
            serialized = compiled.serialize() if hasattr(compiled, "serialize") else None
        except NotStorable:
            return compiled
        if serialized is None:
            return compiled
        return load(SerializedGraph(json.loads(json.dumps(serialized.data)), serialized.blobs), request)

    backend = dataclasses.replace(described, compile=compile_and_load)
    with examples_on(subject.device):
        return next(filter(None, (compare(p, backend, **subject.compiling) for p in _PROGRAMS)), None)


def wrong_with_an_option(subject: Subject) -> Difference | None:
    """Whatever options are chosen, results are right: each one of True and False or of named choices is tried."""
    backend = _described(subject)
    if backend is None or backend.options is None:
        return None
    given = {**dataclasses.asdict(backend.options()), **subject.options}
    kinds = get_type_hints(backend.options)
    for option in dataclasses.fields(backend.options):
        kind = kinds[option.name]
        values: Sequence[Any] = (True, False) if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
        for value in values:
            if value != given[option.name]:
                found = _with_option(subject, option.name, value)
                if found is not None:
                    return Difference(found.kind, f"options={{{option.name!r}: {value!r}}}: {found.detail}")
    return None


def _with_option(subject: Subject, name: str, value: Any) -> Difference | None:
    options = {**subject.options, name: value}
    try:
        resolve(subject.backend, options, None)
    except InvalidOption:  # it cannot be had here
        return None
    with examples_on(subject.device):
        return compare(_PROGRAMS[0], subject.backend, options=options)


def _some_program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = torch.relu(x * 2 + y).sum(0)
    made.add_(1)
    return made.softmax(-1) @ y + x.t().contiguous().mean()


_PROGRAMS = tuple(
    Program(whole(text))
    for text in (
        """
        def program(x, y):
            return torch.relu(x * 2 + y).sum(0), x.softmax(-1) @ y, x.t() + 1, torch.cat([x, x]).cumsum(0)

        def inputs():
            return [example((4, 3), grad=True), example((3,), seed=1, grad=True)]
        """,
        """
        def program(x):
            x.add_(1)
            return x.sum(-1) / x.shape[0], x[1:] * 2, F.dropout(x, 0.5)

        OPTIONS = {"dynamic": True}
        SIZES = (4, 6)

        def inputs(n):
            return [example((n, 3), seed=n)]
        """,
    )
)


def _descriptions(graph: fx.GraphModule) -> dict[str, Any]:
    """What is known of each value."""
    return {node.name: node.meta.get("val") for node in graph.graph.nodes}


def _picture(graph: fx.GraphModule) -> str:
    """The operations of a graph, without what describes them."""
    return "\n".join(f"{node.op} {node.name} {node.target} {node.args} {node.kwargs}" for node in graph.graph.nodes)


CHECKS = (
    looked("contract.imports_early", imported_lazily.__doc__ or "", imported_lazily),
    looked("contract.accepts_unknown_options", refuses_unknown_options.__doc__ or "", refuses_unknown_options),
    looked("contract.refuses_a_default", takes_each_default.__doc__ or "", takes_each_default),
    looked("contract.changes_the_graph", leaves_the_graph_alone.__doc__ or "", leaves_the_graph_alone),
    looked("contract.keeps_graphs", keeps_graphs.__doc__ or "", keeps_graphs),
    looked("contract.wrong_when_loaded", wrong_when_loaded.__doc__ or "", wrong_when_loaded),
    looked("contract.wrong_with_an_option", wrong_with_an_option.__doc__ or "", wrong_with_an_option),
)
