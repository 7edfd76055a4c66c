"""The object with which a backend describes itself, and what it is told with each graph."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from traceback import FrameSummary
from typing import Any, ClassVar, Literal, TypeVar, get_args

import torch
from torch import fx

from jitney import events

Level = Literal["torch", "aten"]
Kind = Literal["inference", "forward", "backward"]
T = TypeVar("T")
INTERMEDIATE = "intermediate"
"""In the meta of the nodes of a functional graph where autograd's engine stops: what lies behind is computed apart."""


@dataclass(frozen=True)
class ExtensionOptions:
    """The options that extensions own, as the user gave them in ``options={...}``, validated.

    Args:
        given: by dataclass, an instance of it.
    """

    given: Mapping[type, Any] = dataclasses.field(default_factory=dict)

    def of(self, options: type[T]) -> T:
        """The instance of an extension's dataclass; its defaults if the user gave none.

        Args:
            options: the dataclass that ``jitney_options`` returned.
        """
        found = self.given.get(options)
        return options() if found is None else found


@dataclass(frozen=True)
class Argument:
    """An input of a captured graph, as the program has it.

    Args:
        name: where capture found it: ``args[0].layer.weight``; what computes it, for an input of a later piece.
        reference: the tensor that it was when the graph was captured, as long as that lives; until the graph has been
            compiled, if it is for inference or no extension acts on graphs; None for other values.
    """

    name: str
    reference: Callable[[], torch.Tensor | None] | None = None

    @property
    def tensor(self) -> torch.Tensor | None:
        """The program's own tensor, such as a parameter; compiled code must not keep it alive."""
        return None if self.reference is None else self.reference()


@dataclass(frozen=True)
class CompileRequest:
    """What a backend is told along with a graph.

    Args:
        backend: the name under which the backend was chosen.
        options: an instance of the backend's options dataclass, validated; None for a backend without options.
        kind: what the graph is: ``inference``, or the ``forward`` or ``backward`` half of a training step.
        frame: the user's function, for messages.
        user_stack: the user's frames, outermost first.
        cache_key: equal for equal graphs, inputs and options, in every process; None if nothing may be stored.
        updates: outputs that the caller copies into an input when the graph has run: position -> the input's. The
            backend may fill that input itself, after all that can fail, and return it as that output; the callable then
            has an attribute ``filled``, the set of those positions. The caller asks then where tensors lie: a callable
            with an attribute ``located`` is called by that, with their addresses, a list, before the inputs. A list
            that comes again is the same.
        fullgraph: did the user ask for errors (``fullgraph=True``) where something would be done in another way?
        extensions: the options that extensions own.
        arguments: the inputs of the captured graph, for extensions; empty if nobody knows.
        level: the graphs that the backend takes.
        whole: is the captured graph all that a call of what the user compiled runs: no graph break, no pieces?
        gradients: of a backward graph, by output: the input of the captured graph whose gradient it is.
        seen: of a forward graph: how many of its outputs, the first, the program may see; the others are residuals.
        variant: which form of the backward graph an extension has asked for (``jitney_watch_training``).
        ahead: is it compiled before it is called (``jitney.aot_compile``)? What is otherwise left to the first run is
            better done now.
    """

    backend: str
    options: Any
    kind: Kind
    frame: str
    user_stack: tuple[FrameSummary, ...] = ()
    cache_key: str | None = None
    updates: Mapping[int, int] = dataclasses.field(default_factory=dict)
    fullgraph: bool = False
    extensions: ExtensionOptions = dataclasses.field(default_factory=ExtensionOptions)
    arguments: tuple[Argument, ...] = ()
    level: Level = "torch"
    whole: bool = False
    gradients: tuple[int, ...] = ()
    seen: int | None = None
    variant: Hashable = None
    ahead: bool = False

    def save(self, name: str, text: str) -> None:
        """Show something that was made of the graph to the logs and debug folders that listen.

        Args:
            name: what it is: ``output_code`` is a log artefact of its own.
            text: generated code, a schedule...
        """
        events.emit(events.Artefact(name, self.frame, self.backend, text, self.kind))

    @property
    def detailed(self) -> bool:
        """Does somebody want what costs time to write, such as generated code? Then ``save``, and ``scheduled``."""
        return events.detailed()

    def scheduled(self, launches: Sequence[events.Launch], arena: int, before: str, after: str) -> None:
        """Tell what runs, in order: see ``events.Scheduled``. ``jitney_lowering.describe`` makes it of a schedule.

        Args:
            launches: kernels and operators that run as a whole, in order.
            arena: bytes of the one block in which temporaries share places.
            before: the loops before fusion, as text.
            after: kernels and operators, as text.
        """
        events.emit(events.Scheduled(self.frame, self.kind, self.backend, tuple(launches), arena, before, after))

    def tell(self, title: str, rows: Sequence[str]) -> None:
        """Lines for ``explain``: what an extension has done to the graph.

        Args:
            title: what they stand under.
            rows: the lines.
        """
        events.emit(events.Told(title, self.frame, tuple(rows)))

    def lowered(self, kernels: int, whole: Sequence[tuple[str, str]]) -> None:
        """Tell what became of the graph, for ``explain``.

        Args:
            kernels: how many there are.
            whole: the operators that run as a whole, each with the reason why it is no kernel.
        """
        events.emit(events.Lowered(self.frame, self.kind, self.backend, kernels, tuple(whole)))


@dataclass(frozen=True)
class SerializedGraph:
    """What a backend needs to make one of its compiled graphs again, in another process.

    Args:
        data: what JSON can say: None, numbers, text, lists, dictionaries with text as keys.
        blobs: bytes, such as object code.
    """

    data: Any
    blobs: tuple[bytes, ...] = ()


Compiled = Callable[..., Sequence[Any]]
Trace = Callable[[fx.GraphModule, Sequence[Any]], Any]
Compile = Callable[[fx.GraphModule, Sequence[Any], CompileRequest], Compiled]


@dataclass(frozen=True)
class Backend:
    """A backend, described by itself.

    Args:
        name: what users write in ``backend=``; equal to the entry point's name.
        compile: ``compile(graph, inputs, request)`` returns a callable that takes the graph's inputs and returns
            the graph's outputs as a sequence. ``inputs`` are FakeTensors and SymInts: shapes, no data. If the callable
            has an attribute ``boxed``, that takes the inputs as one list and empties it, so that what a backward
            reads can die while it runs.
        level: the graphs it takes, ``torch`` (operations as the user called them) or ``aten``.
        device_types: where its nodes may live, as in ``torch.device.type``; empty for everywhere.
        options: a dataclass, every field with a default; users fill it through ``options={...}``. A field ``mode``
            gets what they write in ``mode=``: one of torch.compile's modes.
        decompositions: for ``aten``: operators to be taken apart before the graph arrives, as in ``torch._decomp``'s
            tables; or a function from the options to such a table.
        supports: for ``aten``: may this node be given to the backend?
        joint_pass: for ``aten``: ``joint_pass(graph, options)`` changes the functional graph before it is cut into
            forward and backward. It has one output node, the results and then the gradients, which keep dtype, shape
            and strides; how values between lie in memory is the pass's choice, and what is kept for the backward lies
            so. Each node's FakeTensor, ``meta["val"]``, must say how. An ``alias`` with ``INTERMEDIATE`` in its meta
            stays: all of the gradient of a result that others are computed from goes through it. Not for graphs with
            tensors of subclasses.
        captured_pass: for ``aten``: ``captured_pass(module, inputs, trace, options)`` returns the captured graph, or
            another one that computes the same from the same placeholders, before it is traced. Its nodes are operations
            as the user called them, with stand-ins in ``meta["example_value"]``. Operators that the pass puts in are
            torch's, or registered with torch, gradients included. ``trace(module, inputs)`` says what such a module, a
            part of the graph for instance, computes: a ``jitney.aot.functional.Functional``; None if it cannot.
        version: part of the identity of what it makes; the package's version if empty.
        load: ``load(serialized, request)`` makes a compiled graph again in a later process, on the same kind of
            machine with the same versions and options. ``serialized`` is the ``SerializedGraph`` that the compiled
            callable's attribute ``serialize``, a function without arguments, returned; ``serialize`` may raise
            ``jitney.cache.digest.NotStorable``, and ``load`` ``jitney.cache.recipes.Stale``, each with a reason.
            Without ``load`` nothing of the backend's is stored on disk, but for graphs whose own ``forward`` it
            returned.
        lacks: what is missing on this machine for the backend, a sentence each; empty if it can work. ``jitney doctor``
            shows it, and ``backend="auto"`` leaves the operators of such a backend to eager, with one warning.
        data_sizes: for ``torch``: may it be given operations whose results' sizes depend on data (``nonzero``, masks),
            without ``fullgraph=True`` or a setting? Graphs for ``aten`` are cut around such.
        auto_priority: the place among the backends that ``backend="auto"`` chooses from, higher first; None if it is
            chosen only where no other is installed. The first is used, with all others that share graphs: those for
            ``aten`` that have ``device_types`` or ``supports``. ``auto`` imports each backend's module to ask:
            ``lazy_function`` keeps that cheap.
    """

    name: str
    compile: Compile
    level: Level = "torch"
    device_types: tuple[str, ...] = ()
    options: type | None = None
    decompositions: Mapping[Any, Callable[..., Any]] | Callable[[Any], Mapping[Any, Callable[..., Any]]] | None = None
    supports: Callable[[fx.Node], bool] | None = None
    version: str = ""
    load: Callable[[SerializedGraph, CompileRequest], Compiled] | None = None
    lacks: Callable[[], Sequence[str]] | None = None
    auto_priority: int | None = None
    joint_pass: Callable[[fx.Graph, Any], None] | None = None
    captured_pass: Callable[[fx.GraphModule, Sequence[Any], Trace, Any], fx.GraphModule] | None = None
    data_sizes: bool = False

    # Fields that are to go away: what to use instead.
    DEPRECATED: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for name, instead in self.DEPRECATED.items():
            if getattr(self, name) != getattr(type(self), name):  # a class has its fields' defaults
                # Behind this and the generated __init__: the plugin's line.
                warnings.warn(f"Backend.{name} is deprecated: {instead}", DeprecationWarning, stacklevel=3)
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"Backend.name is a non-empty string, got {self.name!r}")
        if not callable(self.compile):
            raise TypeError(f"Backend.compile of {self.name!r} is not callable: {self.compile!r}")
        if self.level not in get_args(Level):
            raise ValueError(f"Backend.level of {self.name!r} is 'torch' or 'aten', got {self.level!r}")
        if self.auto_priority is not None and type(self.auto_priority) is not int:
            raise TypeError(f"Backend.auto_priority of {self.name!r} is a whole number or None: {self.auto_priority!r}")
        problem = options_problem(self.options, f"backend {self.name!r}") if self.options is not None else ""
        if problem:
            raise TypeError(problem)


def options_problem(options: Any, owner: str) -> str:
    """Why this is no dataclass of options; empty if it is one."""
    if not isinstance(options, type) or not dataclasses.is_dataclass(options):
        return f"what holds the options of {owner} is a dataclass, got {options!r}"
    for option in dataclasses.fields(options):
        if option.default is dataclasses.MISSING and option.default_factory is dataclasses.MISSING:
            return f"option {option.name!r} of {owner} has no default"
    return ""


def lazy_function(name: str) -> Callable[..., Any]:
    """A function that stands for another one, whose module is imported at the first call.

    Args:
        name: ``"module:function"``. A backend whose ``compile`` is such a function costs a process that finds all its
            graphs on disk no import of what compiles.
    """
    module, _, attribute = name.partition(":")

    @functools.cache
    def found() -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return found()(*args, **kwargs)

    call.__module__, call.__name__ = module, attribute
    return call
