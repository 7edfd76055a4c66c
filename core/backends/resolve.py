"""From what the user wrote in ``backend=`` to one backend with its options, ready to be given graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from traceback import FrameSummary
from typing import Any

from torch import fx

from jitney import events
from jitney.backends.backend import Backend, Compiled, CompileRequest, Kind
from jitney.backends.options import check_kinds, validate, warn_of_mode
from jitney.backends.registry import registry
from jitney.errors import BackendFailed, BackendNotFound, InvalidOption, PluginError

Spec = str | Backend | Callable[..., Any] | Sequence[str]

# What "auto" takes if several are installed: the first of these that imports.
PREFERENCE = ("llvm_cpu", "eager", "aot_eager")


@dataclass(frozen=True)
class BoundBackend:
    """A backend with validated options."""

    backend: Backend
    options: Any

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.backend.name

    def request(
        self, kind: Kind, frame: str, user_stack: Sequence[FrameSummary] = (), cache_key: str | None = None
    ) -> CompileRequest:
        """What is told to the backend along with a graph; see ``CompileRequest``."""
        return CompileRequest(self.name, self.options, kind, frame, tuple(user_stack), cache_key)

    def transform(self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> fx.GraphModule:
        """Let extensions rewrite a captured graph; raises ``BackendFailed`` with what one of them raised."""
        arguments = {"inputs": inputs, "request": request}
        implementations = registry.hooks().hook.jitney_transform_graph.get_hookimpls()
        for implementation in reversed(implementations):  # pluggy keeps them last-called first
            phase = f"extension {implementation.plugin_name}"
            values = [graph if name == "graph" else arguments[name] for name in implementation.argnames]
            with events.phase(phase, request.frame):
                try:
                    result = implementation.function(*values)
                except Exception as error:
                    raise _failed(f"raised {type(error).__name__}: {error}", phase, request) from error
            if result is not None and not isinstance(result, fx.GraphModule):
                raise _failed(f"returned a {type(result).__name__}, not a GraphModule", phase, request)
            graph = graph if result is None else result
        return graph

    def compile(self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Compiled:
        """Let the backend compile a graph that extensions have seen, or one half of it.

        Args:
            graph: inputs and outputs flat; not used by the caller afterwards.
            inputs: FakeTensors and SymInts, one per placeholder.
            request: made by ``request``.

        Raises:
            BackendFailed: whatever the backend raised, as the cause; or its result is not callable.
        """
        phase = f"backend {self.name}"
        if self.backend.level == "aten":
            phase += f", {request.kind}"
        with events.phase(phase, request.frame):
            try:
                compiled = self.backend.compile(graph, inputs, request)
            except Exception as error:
                raise _failed(f"raised {type(error).__name__}: {error}", phase, request) from error
        if not callable(compiled):
            raise _failed(f"returned {compiled!r:.100}, which is not callable", phase, request)
        return compiled

    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        """The operators to be taken apart before an ATen graph arrives."""
        table = self.backend.decompositions
        return (table(self.options) if callable(table) else table) or {}

    def reject(self, reason: str, request: CompileRequest) -> None:
        """Raise ``BackendFailed``: a compiled graph did not keep to what its graph says."""
        raise BackendFailed(
            f"a graph of {request.frame}: {reason}", user_stack=request.user_stack, phase=f"backend {self.name}"
        )

    def reject_outputs(self, outputs: object, expected: int, request: CompileRequest) -> None:
        """Raise ``BackendFailed`` if ``outputs`` is no list or tuple of ``expected`` items; for the slow path."""
        if isinstance(outputs, (list, tuple)) and len(outputs) == expected:
            return
        got = f"{len(outputs)} items" if isinstance(outputs, (list, tuple)) else f"a {type(outputs).__name__}"
        self.reject(f"returned {got}; its {expected} outputs were expected as a list or tuple", request)


def resolve(spec: Spec, options: Mapping[str, Any] | None = None, mode: str | None = None) -> BoundBackend:
    """The backend that the user meant, with options validated.

    Args:
        spec: a name, ``"auto"``, a ``Backend``, a callable ``(gm, example_inputs) -> callable`` or a list of names.
        options: what the user wrote in ``options=``.
        mode: what the user wrote in ``mode=``; see ``options.validate``.

    Raises:
        BackendNotFound: no package offers it.
        PluginError: a package offers it and it cannot be used.
        InvalidOption: an option that the backend does not have; an unknown mode.
    """
    check_kinds(options, mode)
    if isinstance(spec, Backend):
        backend = spec
    elif isinstance(spec, str):
        backend = _automatic() if spec == "auto" else registry.get(spec)
    elif callable(spec):
        backend, options, mode = _from_callable(spec, options, mode), None, None
    elif isinstance(spec, Sequence) and all(isinstance(name, str) for name in spec):
        backend = _only_usable(spec)
    else:
        raise BackendNotFound(
            f"backend={spec!r:.100} is a {type(spec).__name__}",
            hint="a name, a list of names, a Backend, or a callable (graph_module, example_inputs) -> callable",
        )
    return BoundBackend(backend, validate(backend, options, mode))


def _from_callable(compiler: Callable[..., Any], options: Mapping[str, Any] | None, mode: str | None) -> Backend:
    """A backend around torch.compile's contract; like there, what is given is passed as ``options=`` and ``mode=``."""
    name = getattr(compiler, "__name__", type(compiler).__name__)
    keywords: dict[str, Any] = {}
    if options:
        if not _takes(compiler, "options"):
            raise InvalidOption(
                f"the backend function {name!r} takes no options, got {', '.join(map(repr, options))}",
                hint=f"no options=, or a parameter `options` for {name}",
            )
        keywords["options"] = dict(options)
    if mode not in (None, "default"):
        if _takes(compiler, "mode"):
            keywords["mode"] = mode
        else:
            warn_of_mode(name, mode)

    def compile_with(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Compiled:
        return compiler(graph, list(inputs), **keywords)

    return Backend(name, compile_with)


def _takes(compiler: Callable[..., Any], keyword: str) -> bool:
    try:
        parameters = inspect.signature(compiler).parameters
    except (TypeError, ValueError):
        return True
    return keyword in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _automatic() -> Backend:
    usable = registry.usable()
    if not usable:
        raise BackendNotFound("no backend is installed", hint="pip install jitney-eager")
    preferred = [name for name in PREFERENCE if name in usable]
    if not preferred and len(usable) > 1:
        raise BackendNotFound(
            f"backend='auto' cannot choose between {', '.join(usable)}: placing over several backends comes later",
            hint=f"backend={usable[0]!r}",
        )
    failures: list[PluginError] = []
    for name in preferred or usable:
        try:
            return registry.get(name)
        except PluginError as error:
            failures.append(error)
    raise failures[0]


def _only_usable(names: Sequence[str]) -> Backend:
    usable = [name for name in names if name in registry.usable()]
    if len(usable) == 1:
        return registry.get(usable[0])
    if not usable:
        raise BackendNotFound(
            f"none of {list(names)} is installed and enabled", hint=f"one of {', '.join(registry.names()) or 'none'}"
        )
    raise BackendNotFound(
        f"backend={list(names)}: placing a graph over several backends comes later", hint=f"backend={usable[0]!r}"
    )


def _failed(what: str, phase: str, request: CompileRequest) -> BackendFailed:
    return BackendFailed(
        f"{what} (while compiling the {request.kind} graph of {request.frame})",
        user_stack=request.user_stack,
        hint="backend='eager', to see whether the program runs without it" if request.backend != "eager" else "",
        phase=phase,
    )
