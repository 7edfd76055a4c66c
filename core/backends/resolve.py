"""From what the user wrote in ``backend=`` to one backend with its options, ready to be given graphs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from traceback import FrameSummary
from typing import Any

import pluggy
import torch
from torch import fx

from jitney import events
from jitney._util import callers
from jitney.backends.backend import Backend, Compiled, CompileRequest, ExtensionOptions, Kind, SerializedGraph
from jitney.backends.backend_fields import (
    PartFailed,
    decompositions_of,
    lacks_of,
    rules_by_device,
    run_captured_pass,
    run_joint_pass,
)
from jitney.backends.common_options import OwnOptions, own_options
from jitney.backends.extension_calls import Extended, require, transformed, watched
from jitney.backends.failure_files import LAUNCHER, REPRO, is_missing, own_file
from jitney.backends.faults import error_text
from jitney.backends.hookspecs import TrainingRun
from jitney.backends.options import check_kinds, take_extensions, validate_all, warn_of_mode
from jitney.backends.placement import place
from jitney.backends.registry import registry
from jitney.cache.digest import NotStorable
from jitney.cache.recipes import RECIPE, Recipe, Stale, Writer
from jitney.config import config
from jitney.errors import BackendFailed, BackendNotFound, InvalidOption, JitneyError, PluginError
from jitney.torch_compat import markers
from jitney.torch_compat.out_of_memory import advice, is_exhausted

Spec = str | Backend | Callable[..., Any] | Sequence[str]

# What a backend may say of a compiled graph, as attributes of the callable.
ATTRIBUTES = ("boxed", "filled", "located", "serialize")


@dataclass(frozen=True)
class Asked:
    """What the user wrote: the arguments ``backend``, ``options`` (less jitney's own) and ``mode`` of ``compile``."""

    spec: Spec
    options: Mapping[str, Any] | None = None
    mode: str | None = None


@dataclass(frozen=True)
class BoundBackend:
    """A backend with validated options.

    Args:
        backend: what compiles.
        options: an instance of its options dataclass, or None.
        parts: the backends that it stands for, where it places operators over several.
        extensions: the options that extensions own.
        own: the options that are jitney's own.
        asked: what the user wrote; None for one of several.
    """

    backend: Backend
    options: Any
    parts: tuple[BoundBackend, ...] = ()
    extensions: ExtensionOptions = field(default_factory=ExtensionOptions)
    own: OwnOptions = field(default_factory=OwnOptions)
    asked: Asked | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.backend.name

    @property
    def transforms(self) -> bool:
        """May extensions rewrite captured graphs now?"""
        return bool(registry.acting("jitney_transform_graph"))

    def request(
        self, kind: Kind, frame: str, user_stack: Sequence[FrameSummary] = (), cache_key: str | None = None
    ) -> CompileRequest:
        """What is told to the backend along with a graph; see ``CompileRequest``."""
        return CompileRequest(
            self.name,
            self.options,
            kind,
            frame,
            tuple(user_stack),
            cache_key,
            extensions=self.extensions,
            level=self.backend.level,
        )

    def transform(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        request: CompileRequest,
        implementations: Sequence[pluggy.HookImpl] | None = None,
    ) -> fx.GraphModule:
        """Let extensions rewrite a captured graph; with ``implementations`` (``aten_transforms``), an ATen graph.

        Raises:
            BackendFailed: with what one of them raised.
        """
        hook = "jitney_transform_graph" if implementations is None else "jitney_transform_aten"
        for implementation in registry.acting(hook) if implementations is None else implementations:
            graph = transformed(_extended(hook, implementation, request), graph, inputs)
        return graph

    def aten_transforms(self) -> list[pluggy.HookImpl]:
        """Who rewrites the ATen graphs of a captured graph, later ones (its backward) included."""
        return registry.acting("jitney_transform_aten")

    def split(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        request: CompileRequest,
        places_of: Callable[[fx.GraphModule, Sequence[Any]], Sequence[fx.Node]],
    ) -> list[fx.Node]:
        """The nodes before which an extension wants the captured graph to be cut; see ``jitney_split_graph``.

        Args:
            places_of: from the graph and its inputs to where it may be cut; only called if somebody asks.
        """
        implementations = registry.acting("jitney_split_graph")
        places = places_of(graph, inputs) if implementations else ()
        for implementation in implementations:
            arguments = {"graph": graph, "inputs": inputs, "request": request, "places": places}
            extended = _extended("jitney_split_graph", implementation, request)
            found = extended.call(arguments)
            if found is None:
                continue
            if not isinstance(found, (list, tuple)) or not all(isinstance(node, fx.Node) for node in found):
                raise extended.failed(f"returned {found!r:.100}, not a list of nodes")
            order = {node: i for i, node in enumerate(places)}
            at = [order.get(node, -1) for node in found]
            if -1 in at or at != sorted(set(at)):
                raise extended.failed("returned nodes that are not among the places, or not in their order")
            return list(found)
        return []

    def watch(self, request: CompileRequest) -> Callable[[], TrainingRun | None] | None:
        """What an extension wants to be told of each run of a training graph; see ``jitney_watch_training``."""
        for implementation in registry.acting("jitney_watch_training"):
            found = watched(_extended("jitney_watch_training", implementation, request))
            if found is not None:
                return found
        return None

    def module_call(
        self, module: torch.nn.Module, compile_module: Callable[[torch.nn.Module], torch.nn.Module]
    ) -> Callable[..., Any] | None:
        """What a compiled module runs in place of its compiled ``__call__``; see ``jitney_wrap_module``.

        Raises:
            PluginError: an extension raised; a ``JitneyError`` is raised as it is.
        """
        arguments = {"module": module, "compile": compile_module, "options": self.extensions}
        for implementation in registry.implementations("jitney_wrap_module"):
            try:
                found: Any = implementation.function(*[arguments[name] for name in implementation.argnames])
            except JitneyError:
                raise
            except Exception as error:
                raise registry.extension_error("jitney_wrap_module", implementation, error) from error
            if found is not None and not callable(found):
                did = f"returned {found!r:.100}, which is not callable"
                raise registry.extension_error("jitney_wrap_module", implementation, did)
            if found is not None:
                call: Callable[..., Any] = found
                return call
        return None

    def compile(self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Compiled:
        """Let the backend compile a graph that extensions have seen, or one half of it.

        Args:
            graph: inputs and outputs flat; not used by the caller afterwards.
            inputs: FakeTensors and SymInts, one per placeholder.
            request: made by ``request``.

        Raises:
            BackendFailed: whatever the backend raised, as the cause; or its result is not callable. With
                ``config.suppress_errors`` that is a warning, and the graph's own ``forward`` is returned.
        """
        as_given = graph.forward if config.suppress_errors else None  # the backend may change the graph
        try:
            return self._compile(graph, inputs, request)
        except BackendFailed as error:
            if as_given is None:
                raise
            callers.warn(f"{error_text(error)}\n(the graph runs operator by operator: config.suppress_errors)")
            place = request.user_stack[-1] if request.user_stack else None
            where = (place.filename, place.lineno or 0) if place is not None else ("", 0)
            events.emit(events.GraphKept(request.frame, *where, self.name, error.reason))
            return as_given

    def _compile(self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Compiled:
        phase = f"backend {self.name}"
        if self.backend.level == "aten":
            phase += f", {request.kind}"
        step = contextlib.nullcontext() if self.parts else events.step(3, phase, request.frame)  # each part has its own
        with step, events.phase(phase, request.frame):
            try:
                compiled = self.backend.compile(graph, inputs, request)
            except BackendFailed:  # of one of several backends, which says so
                raise
            except Exception as error:
                reason = f"raised {type(error).__name__}: {error}"
                raise _failed(reason, phase, request, self.minifying()) from error
        if not callable(compiled):
            raise _failed(f"returned {compiled!r:.100}, which is not callable", phase, request, self.minifying())
        if not self.parts:
            name = f"{request.kind} of {request.frame} ({self.name})"
            compiled = self._serializable(markers.marked(compiled, "graph", name, request.kind), request)
        return compiled

    def _serializable(self, compiled: Compiled, request: CompileRequest) -> Compiled:
        """What the backend has made, with a recipe if it is a function, as one of another kind becomes if it has
        ``serialize``: objects of other classes have their recipe from their class.
        """
        if self.backend.load is not None and hasattr(compiled, "keep"):
            compiled = _renamed(compiled)
        if (
            self.backend.load is not None
            and hasattr(compiled, "serialize")
            and not isinstance(compiled, types.FunctionType)
        ):
            compiled = _as_function(compiled)
        if isinstance(compiled, types.FunctionType):
            compiled.__dict__[RECIPE] = functools.partial(self._recipe, compiled, request)
        return compiled

    def _recipe(self, compiled: Compiled, request: CompileRequest, writer: Writer) -> Recipe:
        """How a later process makes a compiled graph again."""
        serialize = getattr(compiled, "serialize", None)
        if self.backend.load is None or serialize is None:
            raise NotStorable(f"graphs of the backend {self.name}")
        serialized = serialize()
        return [
            "backend",
            self.name,
            request.kind,
            request.frame,
            serialized.data,
            [writer.blob(b) for b in serialized.blobs],
        ]

    def load(self, name: str, kind: Kind, frame: str, serialized: SerializedGraph) -> Compiled:
        """The compiled graph that a backend of this name, this one or one of its parts, has serialized.

        Raises:
            Stale: it is not here any more, or refuses.
        """
        bound = next((b for b in self.parts or (self,) if b.name == name), None)
        if bound is None or bound.backend.load is None:
            raise Stale(f"the backend {name} keeps no graphs")
        with events.phase(f"load {name}", frame):
            request = bound.request(kind, frame)
            return bound._serializable(bound.backend.load(serialized, request), request)

    def decompositions(self, request: CompileRequest | None = None) -> Mapping[Any, Callable[..., Any]]:
        """The operators to be taken apart before an ATen graph arrives: of several backends, as their devices say.

        Args:
            request: of the graph, for messages.

        Raises:
            PartFailed: the backend's function raised, or returned no table.
        """
        if self.parts:
            tables = [part.decompositions(request) for part in self.parts]
            return rules_by_device([part.backend for part in self.parts], tables)
        return decompositions_of(self.backend, self.options, request)

    def joint_pass(self, request: CompileRequest, graph: fx.Graph) -> None:
        """Change a functional graph before it is cut, as the backends wish.

        Raises:
            PartFailed: a backend's function raised.
        """
        for bound in self.parts or (self,):
            run_joint_pass(bound.backend, graph, bound.options, request)

    def captured_pass(
        self, request: CompileRequest, module: fx.GraphModule, inputs: Sequence[Any], trace: Callable[..., Any]
    ) -> fx.GraphModule:
        """The captured graph as the backends wish it, before it is traced.

        Raises:
            PartFailed: a backend's function raised.
        """
        for bound in self.parts or (self,):
            module = run_captured_pass(bound.backend, module, inputs, trace, bound.options, request)
        return module

    def failure(self, error: Exception, request: CompileRequest) -> BackendFailed:
        """What to raise or say when a compiled graph raised and the captured one does not: ``error`` is its cause."""
        found = BackendFailed(
            f"the compiled {request.kind} graph of {request.frame} raised {type(error).__name__}: {error}; "
            "the captured one does not",
            user_stack=request.user_stack,
            hint="; ".join(advice()) if is_exhausted(error) else _hint(request),
            command=self.minifying(),
            phase=f"backend {self.name}",
        )
        found.__cause__ = error
        return found

    def reject(self, reason: str, request: CompileRequest) -> None:
        """Raise ``BackendFailed``: a compiled graph did not keep to what its graph says."""
        raise BackendFailed(
            f"a graph of {request.frame}: {reason}",
            user_stack=request.user_stack,
            command=self.minifying(),
            phase=f"backend {self.name}",
        )

    def minifying(self, after: str = "") -> str:
        """What to type for a small program that fails as it just did; ``after``: as ``config.repro_after``."""
        then = f"jitney minify {own_file(LAUNCHER)}"
        if config.repro_after and is_missing(own_file(REPRO if config.repro_level == 1 else LAUNCHER)):
            return ""
        if config.repro_after and config.repro_level == 1:
            return f"python {own_file(REPRO)} runs the graph as it is; JITNEY_REPRO_LEVEL=2 minifies"
        if config.repro_after:
            return then
        level = after or ("aot" if self.backend.level == "aten" else "capture")
        return f"JITNEY_REPRO_AFTER={level} python ..., the same program again; then {then}"

    def reject_transformed(self, reason: str, request: CompileRequest) -> None:
        """Raise ``BackendFailed``: the graph that extensions made returns something else than the one captured."""
        names = [implementation.plugin_name for implementation in registry.acting("jitney_transform_graph")]
        raise BackendFailed(
            f"the graph of {request.frame}, after jitney_transform_graph, {reason}",
            user_stack=request.user_stack,
            hint="JITNEY_PLUGINS_DISABLED, to do without one of them",
            phase=f"extension {', '.join(names)}",
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
    registry.hooks()  # so that an extension that observes misses nothing
    own, options = own_options(options)
    bound = replace(_resolve(spec, options, mode), own=own, asked=Asked(spec, options, mode))
    if own.freeze and bound.backend.level != "aten":
        callers.warn(f"backend {bound.name!r} takes graphs as they were captured: option 'freeze' does nothing")
    if own.crosscheck:
        require("jitney_check_graph", "option 'crosscheck'")
    return bound


def _resolve(spec: Spec, options: Mapping[str, Any] | None, mode: str | None) -> BoundBackend:
    if isinstance(spec, Backend):
        backends = [spec]
    elif isinstance(spec, str):
        backends = _automatic() if spec == "auto" else [registry.get(spec)]
    elif callable(spec):
        options, extensions, _ = _parted([], options)
        return BoundBackend(_from_callable(spec, options, mode), None, extensions=extensions)
    elif isinstance(spec, Sequence) and spec and all(isinstance(name, str) for name in spec):
        backends = _enabled(spec)
    else:
        raise BackendNotFound(
            f"backend={spec!r:.100} is a {type(spec).__name__}",
            hint="a name, a list of names, a Backend, or a callable (graph_module, example_inputs) -> callable",
        )
    options, extensions, others = _parted(backends, options)
    validated = validate_all(backends, options, mode, others)
    bound = [BoundBackend(b, o, extensions=extensions) for b, o in zip(backends, validated, strict=True)]
    automatic = spec == "auto"
    may_refuse = _is_choosy(bound[0].backend) or (automatic and bound[0].backend.lacks is not None)
    places = bound[0].backend.level == "aten" and (len(bound) > 1 or may_refuse)
    return BoundBackend(_placing(bound, automatic), None, tuple(bound), extensions) if places else bound[0]


def _parted(
    backends: Sequence[Backend], options: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any] | None, ExtensionOptions, list[str]]:
    """The options without those that extensions own; these; and the names that no backend owns, for hints.

    Extensions are loaded only where the backends do not have all the names.
    """
    known = {f.name for b in backends if b.options is not None for f in fields(b.options)}
    if not options or all(name in known for name in options):
        return options, ExtensionOptions(), []
    owners = registry.extension_options()
    left, extensions = take_extensions(backends, options, owners)
    return left, extensions, [f.name for owned in (*owners.values(), OwnOptions) for f in fields(owned)]


def _is_choosy(backend: Backend) -> bool:
    return bool(backend.device_types) or backend.supports is not None


def _placing(bound: Sequence[BoundBackend], automatic: bool) -> Backend:
    """Several backends as one. Operators are taken apart as the first of them asks.

    Args:
        bound: the backends, in order.
        automatic: did nobody ask for them by name? Then those that cannot work here are left out.
    """
    backends = [_if_able(b.backend) if automatic else b.backend for b in bound]

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> Compiled:
        def compile_piece(
            number: int, piece: fx.GraphModule, given: Sequence[Any], updates: Mapping[int, int]
        ) -> Compiled:
            own = replace(request, backend=bound[number].name, options=bound[number].options, updates=updates)
            if piece is not graph:
                own = replace(own, cache_key=None)
            return bound[number].compile(piece, given, own)

        return place(graph, backends, compile_piece, request)

    name = "+".join(b.name for b in bound)
    return Backend(name, compile_graph, level="aten")


def _if_able(backend: Backend) -> Backend:
    """The backend, or one that takes nothing, if it says so when the first operator comes that it would get."""
    own = backend.supports
    if backend.lacks is None:
        return backend

    @functools.cache
    def able() -> bool:
        try:
            problems = lacks_of(backend)
        except PartFailed as error:  # of a backend that nobody asked for by name
            problems = [error.reason]
        if problems:
            callers.warn(f"backend='auto' does without {backend.name}, eagerly: {'; '.join(problems)}")
        return not problems

    return replace(backend, supports=lambda node: able() and (own is None or own(node)))


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


def _automatic() -> list[Backend]:
    """The usable backend of the highest ``auto_priority``; if it shares graphs, all that do, in order. Or the only one.

    One that takes whole graphs ends the choice only as the first: what is left of a shared graph runs eagerly.
    """
    usable = registry.usable()
    if not usable:
        raise BackendNotFound("no backend is installed", hint="pip install 'jitney[cpu]'")
    backends, failures = [], []
    for name in usable:
        try:
            backends.append(registry.get(name))
        except PluginError as error:  # of one that nobody asked for by name
            failures.append(error)
    ranked = sorted((-b.auto_priority, b.name, b) for b in backends if b.auto_priority is not None)  # names are unique
    if not ranked and failures:
        raise failures[0]
    if not ranked and len(backends) == 1:
        return backends
    if not ranked:
        raise BackendNotFound(
            f"backend='auto' may choose none of {', '.join(usable)}: they have no auto_priority",
            hint=f"backend={usable[0]!r}",
        )
    chosen = [backend for *_, backend in ranked]
    return [backend for backend in chosen if _shares(backend)] if _shares(chosen[0]) else chosen[:1]


def _shares(backend: Backend) -> bool:
    """May a graph be divided between it and others?"""
    return backend.level == "aten" and _is_choosy(backend)


def _enabled(names: Sequence[str]) -> list[Backend]:
    """Those of the list that are not disabled; a name that nobody offers is an error, as it is alone."""
    disabled = {row.name for row in registry.listings() if row.status == "disabled"}
    enabled = [registry.get(name) for name in names if name not in disabled]
    if not enabled:
        raise BackendNotFound(
            f"all of {list(names)} are disabled by JITNEY_PLUGINS_DISABLED or config.plugins_disabled",
            hint=f"one of {', '.join(registry.usable()) or 'none'}",
        )
    return enabled


def _as_function(compiled: Compiled) -> Compiled:
    """A plain function that does the same, with the attributes that mean something (see ``Backend``)."""

    def run(*inputs: Any) -> Sequence[Any]:
        return compiled(*inputs)

    run.__dict__.update({name: getattr(compiled, name) for name in ATTRIBUTES if hasattr(compiled, name)})
    return run


def _renamed(compiled: Any) -> Compiled:
    """A compiled graph whose ``serialize`` may have the name that it had in 0.1, ``keep``."""
    if hasattr(compiled, "serialize"):
        return compiled
    renamed = compiled if isinstance(compiled, types.FunctionType) else _as_function(compiled)
    code = getattr(compiled.keep, "__code__", _as_function.__code__)  # where the plugin has written it
    message = "the attribute keep of a compiled graph is deprecated: name it serialize"
    warnings.warn_explicit(message, DeprecationWarning, code.co_filename, code.co_firstlineno)
    renamed.__dict__["serialize"] = compiled.keep
    return renamed


def _extended(hook: str, implementation: pluggy.HookImpl, request: CompileRequest) -> Extended:
    return Extended(hook, implementation, request, registry.extension_package(implementation.plugin_name))


def _failed(what: str, phase: str, request: CompileRequest, command: str = "") -> BackendFailed:
    return BackendFailed(
        f"{what} (while compiling the {request.kind} graph of {request.frame})",
        user_stack=request.user_stack,
        hint=_hint(request),
        command=command,
        phase=phase,
    )


def _hint(request: CompileRequest) -> str:
    return "backend='eager', to see whether the program runs without it" if request.backend != "eager" else ""
