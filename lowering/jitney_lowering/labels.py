"""Names for what runs, such that people know it again: in profiles, in reports, in pictures."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from jitney._util.callers import is_users
from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Extern
from jitney_lowering.rules import VIEWS

LONGEST = 60  # characters of operators


@dataclass(frozen=True)
class Label:
    """What a kernel or call is about.

    Args:
        name: unique in its schedule: a number, and operators.
        operators: short names of the ATen operators that it computes, each once, in order; without views.
        nodes: these, as nodes of the graph.
    """

    name: str
    operators: tuple[str, ...]
    nodes: tuple[fx.Node, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """The user's lines that it comes from, as ``file:line``, each once."""
        found: dict[str, None] = {}
        for node in self.nodes:
            stack = node.meta.get("user_stack", ())
            own = [frame for frame in stack if is_users(frame.filename)] or stack
            if own:
                found[f"{own[-1].filename}:{own[-1].lineno}"] = None
        return tuple(found)


def labels(items: Sequence[Kernel | Extern]) -> list[Label]:
    """One for each item of a schedule."""
    made = {node for item in items for node in item.nodes}
    found = []
    for number, item in enumerate(items):
        nodes = item.nodes if isinstance(item, Extern) else _with_inlined(item.nodes, made)
        telling = [n.target for n in nodes if n.target not in VIEWS and n.target is not operator.getitem]
        names = dict.fromkeys(map(short, [item.target] if isinstance(item, Extern) else telling))
        text = "+".join(names) or "copy"
        found.append(Label(f"{number} {_cut(text)}", tuple(names), tuple(nodes)))
    return found


def _with_inlined(own: Sequence[fx.Node], made: set[fx.Node]) -> list[fx.Node]:
    """A kernel's nodes, and those before them that no kernel makes by itself: they are computed within."""
    found = {node for node in own if node.op == "call_function"}
    waiting = [*found]
    while waiting:
        for node in waiting.pop().all_input_nodes:
            if node.op == "call_function" and node not in made and node not in found:
                found.add(node)
                waiting.append(node)
    return sorted(found)


def short(target: Any) -> str:
    """``mul`` for ``aten.mul.Tensor``."""
    packet = getattr(target, "overloadpacket", None)
    name = str(packet) if packet is not None else str(getattr(target, "__name__", target))
    return name.removeprefix("aten.").removeprefix("aten::")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."
