"""Asking a backend's fields other than ``compile``: what one raises, or returns against its description, names it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from jitney.backends.backend import INTERMEDIATE, Backend, CompileRequest
from jitney.backends.registry import registry
from jitney.errors import BackendFailed, JitneyError
from jitney.torch_compat import torch_private

Rule = Callable[..., Any]


class PartFailed(BackendFailed):
    """A field of a backend other than ``compile`` raised, or returned what its description does not allow."""


@functools.cache
def core_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """torch's own table to core ATen operators, less random operators: those must draw as eager does."""
    table = torch_private.core_decompositions()
    return MappingProxyType(
        {op: rule for op, rule in table.items() if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ())}
    )


def decompositions_of(backend: Backend, options: Any, request: CompileRequest | None = None) -> Mapping[Any, Rule]:
    """The backend's table of operators to be taken apart; empty if it has none.

    Args:
        backend: whose.
        options: an instance of its options.
        request: of the graph, for messages.

    Raises:
        PartFailed: the function raised, or there is no table; a ``JitneyError`` is raised as it is.
    """
    table = backend.decompositions
    if callable(table):
        table = _asked(backend, "decompositions", table, options, request=request)
    if table is not None and not isinstance(table, Mapping):
        raise _failed(backend, "decompositions", f"returned {table!r:.100}, which is no table", request)
    return table or {}


def rules_by_device(backends: Sequence[Backend], tables: Sequence[Mapping[Any, Rule]]) -> Mapping[Any, Rule]:
    """One table for graphs whose operators several backends share: of each operator the rule of who has its devices.

    Args:
        backends: in the order in which they are asked.
        tables: theirs. Operators on devices that none of them names have the rules of the first.
    """
    places = [({*backend.device_types}, table) for backend, table in zip(backends, tables, strict=True)]
    named = [(types, table) for types, table in places if types]

    def run(operator: Any, /, *args: Any, **kwargs: Any) -> Any:
        devices = _devices(args, kwargs)
        rule = next((table for types, table in named if devices <= types), tables[0]).get(operator)
        if rule is not None:
            return rule(*args, **kwargs)
        return operator.decompose(*args, **kwargs) if torch_private.is_composite(operator) else NotImplemented

    found: dict[Any, Rule] = {}
    for operator in {operator: None for table in tables for operator in table}:
        rules = [table.get(operator) for _, table in named] or [tables[0].get(operator)]
        same = rules[0] if all(rule is rules[0] for rule in rules) else None
        found[operator] = same or functools.partial(run, operator)
    return found


def _devices(args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[str]:
    """The device types of an operator's tensors; one number of the CPU's is as good on any of them."""
    given = [each for arg in (*args, *kwargs.values()) for each in (arg if isinstance(arg, (list, tuple)) else [arg])]
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    if tensors:
        return {t.device.type for t in tensors if t.dim() or t.device.type != "cpu"} or {"cpu"}
    return {torch.device(kwargs.get("device") or "cpu").type}


def guarded_rules(
    table: Mapping[Any, Rule], backend: Backend, request: CompileRequest, passing: tuple[type[Exception], ...]
) -> dict[Any, Rule]:
    """The table with rules that name the backend if they raise.

    Args:
        table: from operator to rule.
        backend: whose table it is.
        request: of the graph, for messages.
        passing: what is raised as it is: the tracer knows what to do then.
    """

    def run(operator: Any, rule: Rule, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return rule(*args, **kwargs)
        except (JitneyError, *passing):  # type: ignore[misc]  # mypy does not read this as a tuple of classes
            raise
        except Exception as error:
            raise _failed(backend, "decompositions", _raised(error), request, f"the rule for {operator}") from error

    return {operator: functools.partial(run, operator, rule) for operator, rule in table.items()}


def supports(backend: Backend, node: fx.Node, request: CompileRequest) -> bool:
    """Does the backend take this node of an ATen graph?

    Raises:
        PartFailed: it raised; a ``JitneyError`` is raised as it is.
    """
    question = backend.supports
    if question is None:
        return True
    found: bool = _asked(backend, "supports", lambda: bool(question(node)), request=request, node=node)
    return found


def run_joint_pass(backend: Backend, graph: fx.Graph, options: Any, request: CompileRequest) -> None:
    """Change a functional graph as the backend wishes.

    Raises:
        PartFailed: it raised, or what comes out lies otherwise; a ``JitneyError`` is raised as it is.
    """
    if backend.joint_pass is None:
        return
    before, stops = _results(graph), _stops(graph)
    _asked(backend, "joint_pass", backend.joint_pass, graph, options, request=request)
    if _results(graph) != before:
        raise _failed(backend, "joint_pass", "returned with results of another dtype, shape or stride", request)
    if _stops(graph) != stops:
        raise _failed(backend, "joint_pass", f"removed an alias that says {INTERMEDIATE!r} in its meta", request)


def run_captured_pass(
    backend: Backend,
    module: fx.GraphModule,
    inputs: Sequence[Any],
    trace: Callable[..., Any],
    options: Any,
    request: CompileRequest,
) -> fx.GraphModule:
    """The captured graph as the backend wishes it.

    Raises:
        PartFailed: it raised, or returned a graph with other inputs or results; a ``JitneyError`` is raised as it is.
    """
    if backend.captured_pass is None:
        return module
    given = (module, inputs, trace, options)
    made: fx.GraphModule = _asked(backend, "captured_pass", backend.captured_pass, *given, request=request)
    if made is not module and _ends(made) != _ends(module):
        raise _failed(backend, "captured_pass", "returned a graph with other inputs or results", request)
    return made


def _ends(module: fx.GraphModule) -> tuple[int, int]:
    """How many inputs and results it has."""
    (output,) = module.graph.find_nodes(op="output")
    return len(module.graph.find_nodes(op="placeholder")), len(output.args[0])


def _stops(graph: fx.Graph) -> list[fx.Node]:
    """Where the gradient of a result that others are computed from goes through."""
    aliases = graph.find_nodes(op="call_function", target=torch.ops.aten.alias.default)
    return [node for node in aliases if INTERMEDIATE in node.meta]


def _results(graph: fx.Graph) -> list[str]:
    """What the graph returns, but for numbers; symbols by their names, so that no guard is made."""
    (output,) = graph.find_nodes(op="output")
    values = [end.meta["val"] if isinstance(end, fx.Node) else end for end in output.args[0]]
    return [f"{v.dtype} {v.shape} {v.stride()}" if isinstance(v, torch.Tensor) else str(v) for v in values]


def lacks_of(backend: Backend) -> list[str]:
    """What is missing on this machine for the backend.

    Raises:
        PartFailed: it raised, or returned no sequence of sentences.
    """
    if backend.lacks is None:
        return []
    found = _asked(backend, "lacks", backend.lacks)
    if not isinstance(found, Sequence) or isinstance(found, str) or not all(isinstance(line, str) for line in found):
        raise _failed(backend, "lacks", f"returned {found!r:.100}, which is no list of sentences")
    return list(found)


def _asked(
    backend: Backend,
    field: str,
    function: Callable[..., Any],
    *arguments: Any,
    request: CompileRequest | None = None,
    node: fx.Node | None = None,
) -> Any:
    try:
        return function(*arguments)
    except JitneyError:
        raise
    except Exception as error:
        about = f"asked about {node.target}" if node is not None else ""
        raise _failed(backend, field, _raised(error), request, about, node) from error


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {error}"


def _failed(
    backend: Backend,
    field: str,
    did: str,
    request: CompileRequest | None = None,
    about: str = "",
    node: fx.Node | None = None,
) -> PartFailed:
    """What to raise, having found that a field did so; the user's line is the node's, if that is known."""
    package = registry.backend_package(backend)
    where = f"while compiling the {request.kind} graph of {request.frame}" if request is not None else ""
    stack = request.user_stack if request is not None else ()
    details = ", ".join(filter(None, (about, where)))
    return PartFailed(
        f"its field {field!r} {did}" + (f" ({details})" if details else ""),
        user_stack=node.meta.get("user_stack", stack) if node is not None else stack,
        hint="backend='eager', to see whether the program runs without it" if request is not None else "",
        phase=f"backend {backend.name}" + (f" of package {package}" if package else ""),
    )
