"""A graph with its inputs and the backend with which it fails."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from jitney._util import generated_code
from jitney.backends import BoundBackend, resolve
from jitney.config import config
from jitney.errors import JitneyError
from jitney.torch_compat.subclasses import wraps
from jitney_tools.compare.copies import copied
from jitney_tools.compare.time_limit import TimeLimit, time_limit
from jitney_tools.compare.verdict import Fault, Terms, judge, raised

After = Literal["capture", "aot"]
Kind = Literal["inference", "forward", "backward"]
_names = itertools.count()
_LET_GO = re.compile(r";\s+(\w+ = )+None\s*$")  # FX's way of dropping values that are not needed any more


class NotMinified(JitneyError):
    """A graph cannot be made smaller, or written as a program; the message says why and what to do."""

    phase = "minifier"


@dataclass(frozen=True)
class Given:
    """An input of a graph.

    Args:
        value: a tensor or a number.
        text: Python that makes it; empty if only its data can say it.
    """

    value: Any
    text: str = ""


@dataclass(frozen=True)
class Case:
    """What is made smaller.

    Args:
        graph: placeholders are ``inputs``, in order; one tuple as output; no attributes.
        inputs: real tensors and numbers.
        backend: with its options, as the user asked for it.
        after: ``capture``: the graph is compiled as a program is; ``aot``: it goes to the backend as it is.
        kind: what the backend is told of a graph after ``aot``.
        dynamic: as in ``compile``.
        grad: is grad mode on?
        origin: the user's line that it comes from, if its nodes do not know.
    """

    graph: fx.Graph
    inputs: tuple[Given, ...]
    backend: BoundBackend
    after: After = "capture"
    kind: Kind = "inference"
    dynamic: bool | None = False
    grad: bool = True
    origin: str = ""

    @property
    def values(self) -> list[Any]:
        """The inputs themselves."""
        return [given.value for given in self.inputs]

    @property
    def op_count(self) -> int:
        """How many operations there are; picking an item of a result is none."""
        return sum(is_operation(node) for node in self.graph.nodes)

    def changed(self, **changes: Any) -> Case:
        """The case with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def function(self) -> Callable[..., Any]:
        """The graph as a Python function of its inputs, which returns a tuple."""
        source, space = python(self.graph)
        return generated_code.build(source, f"<minified {next(_names)}>", space, "graph")

    def fault(self, terms: Terms) -> Fault | None:
        """What is wrong with what the backend makes of it; None if nothing is, or if it does not run in eager."""
        plain = self.function()
        quiet = config.patch(cache=False, repro_after="", suppress_errors=False, debug_function="")
        with quiet, torch.set_grad_enabled(self.grad and self.after == "capture"):
            try:
                with time_limit(terms.seconds):
                    compiled = self._compiled(plain)
            except (Exception, TimeLimit) as error:
                return raised(error, "results") if self._runs(plain) else None
            return judge(plain, compiled, self.values, terms)

    def _runs(self, plain: Callable[..., Any]) -> bool:
        try:
            plain(*copied(self.values))
        except Exception:
            return False
        return True

    def _compiled(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        if self.after == "aot":
            return self._given_to_backend(plain)
        asked = self.backend.asked
        assert asked is not None
        compiled: Callable[..., Any] = _compile(
            plain, backend=asked.spec, options=asked.options, mode=asked.mode, fullgraph=True, dynamic=self.dynamic
        )
        return compiled

    def _given_to_backend(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        module, fakes = captured(plain, self.values)
        for node in module.graph.nodes:
            if "example_value" in node.meta:
                node.meta["val"] = node.meta["example_value"]
        order = [number_of(node) for node in module.graph.find_nodes(op="placeholder")]
        made = self.backend.compile(module, fakes, self.backend.request(self.kind, "graph"))

        def run(*inputs: Any) -> tuple[Any, ...]:
            outputs = made(*[inputs[i] for i in order])
            if not isinstance(outputs, (list, tuple)):
                raise TypeError(f"the compiled graph returned a {type(outputs).__name__}, a list or tuple was expected")
            return tuple(outputs)

        return run


def is_operation(node: fx.Node) -> bool:
    """Is it an operation that a person would count?"""
    return node.op.startswith("call_") and getattr(node.target, "__name__", "") != "getitem"


def number_of(node: fx.Node) -> int:
    """Which input of ``graph(x0, x1...)`` a captured placeholder is."""
    found = re.search(r"_x(\d+)$", str(node.target))
    if found is None:
        raise NotMinified(f"{node.target} is no input of the graph")
    return int(found.group(1))


def captured(function: Callable[..., Any], values: Sequence[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """The graph of a function of ``x0, x1...``, and stand-ins for the inputs that it uses."""
    found: list[tuple[fx.GraphModule, list[Any]]] = []

    def keep(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append((module, list(inputs)))
        return module.forward

    _compile(function, backend=keep, fullgraph=True, dynamic=False)(*copied(list(values)))
    if len(found) != 1:
        raise NotMinified("the graph runs no operation on tensors")
    return found[0]


def case_of(function: Callable[..., Any], inputs: Sequence[Any], backend: BoundBackend, **facts: Any) -> Case:
    """The case of a program that was written from one: ``graph`` and what its ``inputs()`` returns."""
    with config.patch(cache=False, repro_after=""):
        module, _ = captured(function, inputs)
    used = [inputs[number_of(node)] for node in module.graph.find_nodes(op="placeholder")]
    return plain_case(module, used, backend, **facts)


def plain_case(module: fx.GraphModule, values: Sequence[Any], backend: BoundBackend, **facts: Any) -> Case:
    """A case: inputs named ``x0, x1...``, attributes and sizes turned into inputs and numbers.

    Args:
        module: a captured graph, or one of AOT's.
        values: its real inputs, in the order of its placeholders.
        backend: see ``Case``.
        facts: the other fields of ``Case``.

    Raises:
        NotMinified: an input is a tensor of a subclass that wraps tensors.
    """
    odd = next((type(v).__qualname__ for v in values if isinstance(v, torch.Tensor) and wraps(type(v))), None)
    if odd is not None:
        raise NotMinified(
            f"an input of the graph is a {odd}, which wraps tensors",
            hint="JITNEY_REPRO_AFTER=aot: the graphs after AOT have plain tensors",
        )
    graph = fx.Graph()
    made: dict[fx.Node, Any] = {}
    given: list[Given] = []
    placeholders = module.graph.find_nodes(op="placeholder")
    sized = _sizes(placeholders) if facts.get("dynamic", False) is not False else {}
    tensors = [(n, v) for n, v in zip(placeholders, values, strict=True) if isinstance(v, torch.Tensor)]
    attributes = [(n, _attribute(module, str(n.target))) for n in module.graph.find_nodes(op="get_attr")]
    for node, value in [*tensors, *attributes]:
        made[node] = graph.placeholder(f"x{len(given)}")
        given.append(Given(plain_tensor(value)))
    for node, value in zip(placeholders, values, strict=True):
        if node in sized:
            made[node] = graph.call_method("size", (made[sized[node][0]], sized[node][1]))
        elif node not in made:
            made[node] = value
    for node in module.graph.nodes:
        if node not in made:
            made[node] = _copied_node(graph, node, made)
    return Case(graph, tuple(given), backend, **facts)


def plain_tensor(value: torch.Tensor) -> torch.Tensor:
    """A leaf with the data, the strides and the ``requires_grad`` of a tensor; neither parameter nor subclass."""
    with torch.no_grad():
        made: torch.Tensor = copied(value.detach())
        if type(made) is torch.nn.Parameter:
            made = made.data
    return made.requires_grad_(value.requires_grad)


def _copied_node(graph: fx.Graph, node: fx.Node, made: Mapping[fx.Node, Any]) -> Any:
    if node.op == "output":
        results = fx.map_arg(node.args[0], lambda n: made[n])
        return graph.output(results if isinstance(results, (tuple, list)) else (results,))
    args = fx.map_arg(node.args, lambda n: made[n])
    kwargs = fx.map_arg(node.kwargs, lambda n: made[n])
    copy = graph.create_node(node.op, node.target, args, kwargs, node.name)
    copy.meta["user_stack"] = node.meta.get("user_stack", ())
    return copy


def _attribute(module: torch.nn.Module, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _sizes(placeholders: Sequence[fx.Node]) -> dict[fx.Node, tuple[fx.Node, int]]:
    """For placeholders that are symbolic sizes: an input and the dimension of it that has this size."""
    where: dict[str, tuple[fx.Node, int]] = {}
    for node in placeholders:
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                where.setdefault(str(size), (node, dim))
    found = {}
    for node in placeholders:
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(value, torch.SymInt) and str(value) in where:
            found[node] = where[str(value)]
    return found


# ---------------------------------------------------------------------- text


def python(graph: fx.Graph) -> tuple[str, dict[str, Any]]:
    """The text of a function ``graph``, and the names that it uses."""
    code = graph.python_code("self")
    lines = []
    for line in code.src.strip().splitlines():
        line = _LET_GO.sub("", line).rstrip()
        if line.startswith("def forward(self"):
            line = re.sub(r"^def forward\(self(, )?", "def graph(", line)
        if line:
            lines.append(line)
    text = "\n".join(lines) + "\n"
    used = set(re.findall(r"[A-Za-z_]\w*", text))
    return text, {name: value for name, value in code.globals.items() if name in used}


def imports(space: Mapping[str, Any]) -> list[str]:
    """The lines that make a namespace.

    Raises:
        NotMinified: something in it has no name that another process can import.
    """
    return [_import(name, value) for name, value in sorted(space.items())]


_OWN = {"inf": "from math import inf", "nan": "from math import nan", "NoneType": "NoneType = type(None)"}


def _import(name: str, value: Any) -> str:
    if name in _OWN:
        return _OWN[name]
    if isinstance(value, type(torch)):
        return f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if name == "device":
        return "from torch import device"
    try:
        found: Any = importlib.import_module(str(module))
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        found = None
    if module == "__main__" or found is not value:
        raise NotMinified(
            f"the graph calls {path or name}, which another process cannot import",
            hint="define it at the top level of a module of its own",
        )
    if "." in path:
        return f"import {module}\n{name} = {module}.{path}"
    return f"from {module} import {path}" + (f" as {name}" if path != name else "")


def _compile(function: Callable[..., Any], **how: Any) -> Any:
    from jitney.api import compile as compile_function  # the face imports debug; what is tried is compiled by it

    return compile_function(function, **how)


def bound(spec: Any, options: Mapping[str, Any] | None, mode: str | None) -> BoundBackend:
    """A backend as a program names it."""
    return resolve(spec, options, mode)
