"""A graph as rows of plain data: what pictures, files and pages are made of."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from torch import fx

from jitney.debug import is_users
from jitney.debug.text import describe

# Kind of a node -> what its name contains; the first that fits. Everything else is done element by element.
KINDS: dict[str, re.Pattern[str]] = {
    "product": re.compile(r"mm$|matmul|linear|conv|attention|einsum|bilinear|lstm|gru|^dot|_mm_"),
    "reduction": re.compile(
        r"sum|mean|norm|softmax|amax|amin|argm|var|std|cumsum|cumprod|loss|entropy|sort|topk|prod|pool"
    ),
    "view": re.compile(
        r"view|reshape|permute|transpose|^t$|squeeze|expand|slice|select|split|chunk|unbind|getitem|flatten|narrow|detach|alias|unfold"
    ),
    "gather": re.compile(r"embedding|gather|scatter|index|take|where_?$|cat$|stack$|pad"),
    "random": re.compile(r"rand|dropout|bernoulli|philox|uniform|normal_"),
}


@dataclass(frozen=True)
class Row:
    """One node.

    Args:
        name: in its graph.
        op: placeholder, get_attr, call_function, call_method or call_module; outputs are no rows.
        label: what is called, short.
        facts: dtype and shape, as ``f32[2, 3]``; empty if unknown.
        inputs: the numbers of the rows that it reads.
        place: the user's line, as ``file:line``; empty if unknown.
        kind: one of ``KINDS``, or input, constant, size, pointwise.
        output: is it an output of the graph?
    """

    name: str
    op: str
    label: str
    facts: str
    inputs: tuple[int, ...]
    place: str
    kind: str
    output: bool

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Row:
        """From what ``plain`` gave."""
        return cls(**{**plain, "inputs": tuple(plain["inputs"])})


def rows(graph: fx.Graph) -> list[Row]:
    """All nodes but the output, in order."""
    numbers: dict[fx.Node, int] = {}
    found: list[Row] = []
    outputs = {node for end in graph.nodes if end.op == "output" for node in end.all_input_nodes}
    for node in graph.nodes:
        if node.op == "output":
            continue
        numbers[node] = len(found)
        inputs = tuple(numbers[n] for n in node.all_input_nodes)
        found.append(_row(node, inputs, node in outputs))
    return found


def _row(node: fx.Node, inputs: tuple[int, ...], output: bool) -> Row:
    value = node.meta.get("val", node.meta.get("example_value"))
    facts = "" if value is None else describe(value)
    label = _label(node)
    return Row(node.name, node.op, label, facts, inputs, place(node), _kind(node, label), output)


def place(node: fx.Node) -> str:
    """The user's innermost line that a node comes from, as ``file:line``; empty if nobody knows."""
    stack = node.meta.get("user_stack", ())
    own = [frame for frame in stack if is_users(frame.filename)] or stack
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def _label(node: fx.Node) -> str:
    if node.op in ("placeholder", "get_attr"):
        return str(node.target)
    if isinstance(node.target, str):
        return node.target
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet).removeprefix("aten.") if packet is not None else getattr(node.target, "__name__", "call")


def _kind(node: fx.Node, label: str) -> str:
    if node.op == "placeholder":
        return "input"
    if node.op == "get_attr":
        return "constant"
    if label.startswith("sym_size") or label in ("sym_stride", "size"):
        return "size"
    return next((kind for kind, names in KINDS.items() if names.search(label)), "pointwise")
