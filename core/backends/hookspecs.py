"""The hooks that extensions implement. They grow by arguments, which an implementation may leave out.

In the order in which a program meets them: ``jitney_options`` and ``jitney_wrap_module`` when ``jitney.compile`` is
called; then for each captured graph ``jitney_transform_graph``, ``jitney_split_graph`` and ``jitney_check_graph``; for
a backend that takes ATen graphs ``jitney_watch_training`` and, for each half, ``jitney_transform_aten``. What one of
these raises is raised as ``BackendFailed`` by the extension's name, its package and the hook; a ``JitneyError`` is
raised as it is. So is what one returns that is not what its hook says: what is no callable, a graph with other inputs
or outputs, or nodes astray.

Tools, which look at programs and change nothing, have ``jitney_observe``, ``jitney_check_graph``,
``jitney_capture_failed``, ``jitney_bisect``, and ``jitney_settings``, which says whose work they do.

An extension is a module or object named by an entry point of the group ``jitney.extensions``. It says which version it
was written for, and implements what it likes, with the arguments it likes:

    from jitney.backends import hookimpl

    jitney_hook_api = 1


    @hookimpl
    def jitney_observe(event):
        print(event)

``python docs/_site/hooks_reference.py`` writes docs/hooks.md from what is said here.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pluggy
import torch
from torch import fx

from jitney import events
from jitney.backends.backend import Compiled, CompileRequest, ExtensionOptions

PROJECT = "jitney"
# Raised when something that plugins use is taken away or comes to mean something else; never for what is added.
HOOK_API_VERSION = 1

_hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


# The hooks that make another program of a graph: not called of an extension that does not act (``jitney_acts``).
GRAPH_HOOKS = ("jitney_transform_graph", "jitney_split_graph", "jitney_watch_training", "jitney_transform_aten")


class TrainingRun(Protocol):
    """What an extension keeps of one run of a compiled training graph, from its forward to its backward."""

    @property
    def variant(self) -> Hashable:
        """Read when the backward begins: which form of the backward graph runs; None for the one that is always there.

        Each other value is shown to ``jitney_transform_aten`` once, as ``request.variant``, and compiled on its own.
        """

    def finished(self, gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        """Called with what a backward of a variant computed, one per input of the captured graph; returns what autograd
        gets in their place. Autograd copies a gradient that somebody else holds, too.

        Args:
            gradients: one per input of the captured graph, None where there is none.
        """


@runtime_checkable
class GraphCheck(Protocol):
    """What looks at one graph as it is compiled and run; see ``jitney_check_graph``.

    What its methods raise is raised as it is. What they return has no attribute ``boxed``, and ``filled`` is empty.
    """

    def compiled(self, make: Callable[[], Compiled]) -> Compiled:
        """Called to compile the whole graph; returns what runs it: what ``make`` returns, or what looks at its calls.

        Args:
            make: compiles the graph, through AOT for a backend that takes ATen graphs.
        """

    def half(
        self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest, make: Callable[[], Compiled]
    ) -> Compiled:
        """The same for each ATen graph that AOT makes of it, within ``make`` of ``compiled``; a backward maybe later.

        Args:
            graph: what the backend is about to get; it may change it.
            inputs: a FakeTensor or symbol for each placeholder.
            request: what the backend will be told with this graph.
            make: lets the backend compile it.
        """


class BisectReport(Protocol):
    """What a bisection has shown; ``str()`` is a report for people."""

    @property
    def phase(self) -> str:
        """The step of compiling that is to blame, such as ``aot`` or ``backend NAME``; empty if nothing is wrong."""

    @property
    def stopped(self) -> str:
        """The step at which Ctrl-C ended it; empty if it went to the end."""


@dataclass(frozen=True)
class FailedFrame:
    """A frame whose capture failed; ``jitney.runtime.replay.capture_again`` takes one, too.

    Args:
        function: what was called; None for the rest of a frame after a graph break.
        code: what was captured.
        globals: its namespace.
        arguments: by parameter.
        cells: of the rest of a frame.
        error: how capture failed; None if nobody knows.
    """

    function: types.FunctionType | None
    code: types.CodeType
    globals: dict[str, Any]
    arguments: Mapping[str, Any]
    cells: tuple[Any, ...] = ()
    error: BaseException | None = None


class Hooks:
    """Every hook there is."""

    @_hookspec
    def jitney_options(self) -> type:  # type: ignore[empty-body]
        """A dataclass, every field with a default: what users may write in ``options={...}`` beside the backend's own.

        A name that a chosen backend has is the backend's. ``request.extensions.of(TheDataclass)`` is an instance.
        """

    @_hookspec
    def jitney_acts(self) -> bool:  # type: ignore[empty-body]
        """May the extension change a graph that is compiled now? Asked when it is captured, and then true for its
        ATen graphs too, of which the backward is compiled later. Should cost next to nothing.

        An extension with graph hooks and without this one is taken to act always, and while one acts, nothing is kept
        on disk or taken from there: the graph hooks see every graph.
        """

    @_hookspec
    def jitney_wrap_module(
        self, module: torch.nn.Module, compile: Callable[[torch.nn.Module], torch.nn.Module], options: ExtensionOptions
    ) -> Callable[..., Any] | None:
        """Called with each module that a user compiles; may return what a call of the compiled module runs.

        The compiled module is a stand-in for ``module`` as always (attributes, parameters, copies); its call runs the
        returned callable, with the call's arguments, in place of the compiled ``module.__call__``. ``compile(part)``
        compiles a module, such as one that ``module`` wraps, with what the user gave to ``jitney.compile``; no
        extension is asked about it. The first extension that returns something decides.

        Args:
            module: what the user gave to ``jitney.compile``.
            compile: compiles a module as the user asked for, and returns what is called in its place.
            options: those that extensions own; ``options.of(TheDataclass)`` is an instance.
        """

    @_hookspec
    def jitney_observe(self, event: events.Event) -> None:
        """Called with each event of compiling (see ``jitney.events``), in the thread that compiles.

        An observer that raises is reported once and not called again.

        Args:
            event: one of the classes of ``jitney.events``.
        """

    @_hookspec
    def jitney_transform_graph(
        self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
    ) -> fx.GraphModule | None:
        """Called before the backend; may return another graph of the same inputs and outputs, or None to leave it.

        Extensions run one after the other, each with the graph of the one before; the order is pluggy's
        (last registered first, ``tryfirst`` and ``trylast``). What it raises is raised as ``BackendFailed``.

        Args:
            graph: operations as the user called them. Changing it in place is allowed: return it then.
            inputs: a FakeTensor or symbol for each placeholder: shapes and dtypes, no data.
            request: what the backend will be told with this graph.
        """

    @_hookspec
    def jitney_split_graph(
        self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest, places: Sequence[fx.Node]
    ) -> Sequence[fx.Node] | None:
        """Called after ``jitney_transform_graph``; may have the graph cut into pieces, each compiled on its own.

        ``places`` are the nodes before which it may be cut: no value that a graph cannot pass on lies across, no tensor
        is written to on one side whose memory the other side sees, no checkpointed region is parted. Returns some of
        them, in order. The pieces run one after the other, and each has a backward of its own, so gradients arrive
        piece by piece. The first extension that returns something decides.

        Args:
            graph: what ``jitney_transform_graph`` has left; not to be changed here.
            inputs: a FakeTensor or symbol for each placeholder.
            request: what the backend will be told; ``request.arguments`` says which input is whose parameter.
            places: the nodes before which a cut is possible, in the graph's order.
        """

    @_hookspec
    def jitney_watch_training(self, request: CompileRequest) -> Callable[[], TrainingRun | None] | None:
        """Called for a graph with a backward, when both have been traced and told apart.

        ``request.gradients`` are the inputs of the captured graph that get gradients. What the returned callable
        returns at each run of the forward says, when its backward runs, which variant of the backward graph that is
        (see ``TrainingRun``). The first extension that returns something decides. Not called for a graph whose numbers
        are compared with eager's (``options={"crosscheck": True}``) or that is watched for the minifier.

        Args:
            request: of the captured graph, with ``gradients``, ``arguments`` and ``extensions``.
        """

    @_hookspec
    def jitney_transform_aten(
        self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
    ) -> fx.GraphModule | None:
        """Called with each ATen graph before the backend: ``request.kind`` and ``request.variant`` say which it is.

        May return another graph of the same inputs and outputs (number, shapes, dtypes; a variant may make a gradient
        where there is none), or None. Nodes have their
        FakeTensor in ``meta["val"]``, new ones need it too. Of a backward, ``request.gradients`` says for each output
        of which input of the captured graph it is the gradient; ``request.arguments`` says what that input is. Graphs
        in which tensors of subclasses are taken apart have no such numbers.

        Args:
            graph: functional ATen operators. Changing it in place is allowed: return it then.
            inputs: a FakeTensor or symbol for each placeholder.
            request: what the backend will be told with this graph.
        """

    @_hookspec
    def jitney_settings(self) -> Sequence[str]:  # type: ignore[empty-body]
        """The settings (fields of ``jitney.config``) whose work the extension does, such as ``compile_debug``.

        One warning says so where such a setting is on and no extension does what it promises.
        """

    @_hookspec
    def jitney_check_graph(
        self, graph: fx.GraphModule, inputs: Sequence[Any], backend: Any, request: CompileRequest
    ) -> GraphCheck | None:
        """Called with each graph before it is compiled, if ``options={"crosscheck": ...}`` or ``config.repro_after``
        asks for graphs to be looked at; returns what looks at this one. The first extension that returns something
        decides. Graphs that are looked at are not kept on disk, and no ``jitney_watch_training`` is asked about them.

        Args:
            graph: as the backend, or AOT, is about to get it, which may change it.
            inputs: a FakeTensor or symbol for each placeholder.
            backend: a ``jitney.backends.BoundBackend``: with its options, among them those that are jitney's own.
            request: what the backend will be told with this graph.
        """

    @_hookspec
    def jitney_capture_failed(self, frame: FailedFrame) -> None:
        """Called when a frame cannot be captured at all: capture gave up, met a break where none is allowed, or a bug.

        The program goes on as it would without; what this raises is a warning.

        Args:
            frame: the code, and what the call would have run it with.
        """

    @_hookspec
    def jitney_bisect(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        backend: Any,
        options: Mapping[str, Any] | None,
    ) -> BisectReport | None:
        """Called by ``jitney.explain(function, bisect=True)``: finds which step of compiling makes a call go wrong.

        The first extension that returns something decides.

        Args:
            function: what is explained; compiled already, or not.
            args: of the call; what it does must not be seen in them.
            kwargs: of the call.
            backend: as in ``jitney.compile``; None for the one with which ``function`` was compiled, or ``"auto"``.
            options: as in ``jitney.compile``.
        """
