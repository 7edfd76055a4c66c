"""How a case may become smaller: each step yields cases, the most promising first; whether they fail is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from jitney.torch_compat.global_state import StateKeeper
from jitney_tools.compare.copies import copied
from jitney_tools.compare.verdict import SEED
from jitney_tools.minifier.case import Case, Given, is_operation, plain_tensor
from jitney_tools.minifier.texts import alike, simple_texts

FEW = 12  # operations of which each is tried by itself


class Draft:
    """A copy of a case's graph, to be changed and then finished.

    Args:
        case: what is copied.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.graph = fx.Graph()
        self.nodes: dict[fx.Node, fx.Node] = {}
        results = self.graph.graph_copy(case.graph, self.nodes)
        self.graph.output(results)
        self.given = dict(zip(self._placeholders(), case.inputs, strict=True))
        self.effects = {self.nodes[n] for n in case.graph.nodes if is_operation(n) and not n.users}

    def _placeholders(self) -> list[fx.Node]:
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @property
    def results(self) -> list[Any]:
        """What the graph returns: nodes and constants."""
        (output,) = self.graph.find_nodes(op="output")
        return list(output.args[0])

    def return_only(self, results: Sequence[Any]) -> None:
        """Return something else."""
        (output,) = self.graph.find_nodes(op="output")
        output.args = (tuple(results),)

    def to_input(self, node: fx.Node, value: torch.Tensor) -> None:
        """A result of an operation becomes an input."""
        with self.graph.inserting_before(next(iter(self.graph.nodes))):
            fresh = self.graph.placeholder(node.name)
        self.given[fresh] = Given(value)
        node.replace_all_uses_with(fresh)

    def finished(self) -> Case | None:
        """The case without what nobody uses any more; None if no operation is left."""
        for node in reversed(list(self.graph.nodes)):
            if node.op.startswith("call_") and not node.users and node not in self.effects:
                self.graph.erase_node(node)
        graph = fx.Graph()
        made: dict[fx.Node, fx.Node] = {}
        used = [node for node in self._placeholders() if node.users]
        for number, node in enumerate(used):
            made[node] = graph.placeholder(f"x{number}")
        for node in self.graph.nodes:
            if node.op != "placeholder":
                made[node] = graph.node_copy(node, made.__getitem__)
        if not any(map(is_operation, graph.nodes)):
            return None
        return self.case.changed(graph=graph, inputs=tuple(self.given[node] for node in used))


def finished(drafts: Iterable[Draft]) -> Iterator[Case]:
    """The cases of drafts; those without operations are left out."""
    for draft in drafts:
        case = draft.finished()
        if case is not None:
            yield case


def recorded(case: Case) -> dict[fx.Node, Any]:
    """What each node's value is in eager, as it is when it is made; empty if the graph does not run."""
    values: dict[fx.Node, Any] = {}

    class Keep(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            result = super().run_node(node)
            if isinstance(result, torch.Tensor):
                values[node] = plain_tensor(result)
            return result

    keeper = StateKeeper()
    try:
        with torch.random.fork_rng([]), torch.set_grad_enabled(case.grad and case.after == "capture"):
            torch.manual_seed(SEED)
            Keep(fx.GraphModule(torch.nn.Module(), case.graph)).run(*copied(case.values))
    except Exception:  # the program's own: then there is nothing to begin from
        return {}
    finally:
        keeper.restore()
    return values


def operations(case: Case) -> list[fx.Node]:
    """The nodes that compute, in order."""
    return [node for node in case.graph.nodes if node.op.startswith("call_")]


def _places(count: int) -> list[int]:
    """Where to cut something of ``count`` parts, from the front on."""
    if count <= FEW:
        return list(range(count))
    return sorted({count * part // 8 for part in range(8)} | {1, 2, count - 1})


# ---------------------------------------------------------------------- the graph


def fewer_results(case: Case) -> Iterator[Case]:
    """Half of what is returned, or one thing of it."""
    count = len(Draft(case).results)
    if count < 2:
        return
    half = count // 2
    groups = [range(half), range(half, count), *([i] for i in range(count) if count > 2)]
    for group in groups:
        draft = Draft(case)
        results = draft.results
        draft.return_only([results[i] for i in group])
        yield from finished([draft])


def earlier_result(case: Case) -> Iterator[Case]:
    """Return what is computed earlier, and leave out the rest."""
    values = recorded(case)
    nodes = [node for node in operations(case) if node in values]
    for at in _places(len(nodes)):
        draft = Draft(case)
        node = draft.nodes[nodes[at]]
        if draft.results == [node]:
            continue
        later = {draft.nodes[n] for n in operations(case)[operations(case).index(nodes[at]) + 1 :]}
        draft.return_only([node])
        draft.effects -= later
        yield from finished([draft])


def later_inputs(case: Case) -> Iterator[Case]:
    """Begin with what is computed later: the values there become inputs."""
    values = recorded(case)
    nodes = operations(case)
    for at in reversed(_places(len(nodes))):
        if not at:
            continue
        draft, before = Draft(case), set(nodes[:at])
        for node in nodes[:at]:
            if node in values and any(user not in before for user in node.users):
                draft.to_input(draft.nodes[node], values[node])
        draft.effects -= {draft.nodes[node] for node in before}
        smaller = draft.finished()
        if smaller is not None and len(operations(smaller)) < len(nodes):
            yield smaller


def left_out(case: Case) -> Iterator[Case]:
    """Put an argument of an operation in the place of its result; in a small graph, anything that is there before."""
    values = recorded(case)
    nodes = operations(case)
    order = list(case.graph.nodes)
    for node in reversed(nodes):
        earlier = order[: order.index(node)] if len(nodes) <= FEW else []
        for argument in dict.fromkeys([*node.all_input_nodes, *earlier]):
            value, other = values.get(node), values.get(argument)
            if value is None or other is None or value.shape != other.shape:
                continue
            draft = Draft(case)
            draft.nodes[node].replace_all_uses_with(draft.nodes[argument])
            draft.effects.discard(draft.nodes[node])
            yield from finished([draft])


def made_input(case: Case) -> Iterator[Case]:
    """Make an input of the result of one operation."""
    values = recorded(case)
    returned = Draft(case).results
    for node in operations(case):
        if node in values and len(operations(case)) > 1 and not (len(returned) == 1 and node in returned):
            draft = Draft(case)
            draft.to_input(draft.nodes[node], values[node])
            draft.effects.discard(draft.nodes[node])
            smaller = draft.finished()
            if smaller is not None and len(operations(smaller)) < len(operations(case)):
                yield smaller


def without_effects(case: Case) -> Iterator[Case]:
    """Leave out what is done for its effect alone: all of it, or one thing."""
    idle = [node for node in operations(case) if not node.users]
    for gone in [idle, *([node] for node in idle if len(idle) > 1)]:
        if gone:
            draft = Draft(case)
            draft.effects -= {draft.nodes[node] for node in gone}
            yield from finished([draft])


# ---------------------------------------------------------------------- the inputs


def smaller_sizes(case: Case) -> Iterator[Case]:
    """One size, wherever it is found, becomes 2, 3, 4 or half of what it is."""
    sizes = {n for given in case.inputs if isinstance(given.value, torch.Tensor) for n in given.value.shape if n > 4}
    for size in sorted(sizes, reverse=True):
        for smaller in sorted({2, 3, 4, size // 2}):
            inputs = tuple(_cut(given, size, smaller) for given in case.inputs)
            draft = Draft(case)
            for node in draft.graph.nodes:
                if node.op.startswith("call_"):
                    node.args = _swapped(node.args, size, smaller)
                    node.kwargs = _swapped(node.kwargs, size, smaller)
            changed = draft.finished()
            if changed is not None:
                yield changed.changed(inputs=inputs)
            yield case.changed(inputs=inputs)


def _swapped(value: Any, size: int, smaller: int) -> Any:
    if type(value) is int:
        return smaller if value == size else value
    if isinstance(value, slice):
        return slice(*[_swapped(v, size, smaller) for v in (value.start, value.stop, value.step)])
    if isinstance(value, (list, tuple)):
        return type(value)(_swapped(v, size, smaller) for v in value)
    if isinstance(value, dict):
        return {key: _swapped(v, size, smaller) for key, v in value.items()}
    return value


def _cut(given: Given, size: int, smaller: int) -> Given:
    value = given.value
    if not isinstance(value, torch.Tensor) or size not in value.shape:
        return given
    part = value.detach()
    for dim, n in enumerate(value.shape):
        part = part.narrow(dim, 0, smaller) if n == size else part
    part = part.contiguous().clone() if value.is_contiguous() else part.clone()
    return Given(part.requires_grad_(value.requires_grad))


def plainer_inputs(case: Case) -> Iterator[Case]:
    """Inputs of another kind: without gradient, contiguous, in float32; all of them or one."""
    for change in (_without_gradient, _contiguous, _single_precision):
        changed = [change(given) for given in case.inputs]
        odd = [i for i, (a, b) in enumerate(zip(changed, case.inputs, strict=True)) if a is not b]
        for group in [odd, *([i] for i in odd if len(odd) > 1)]:
            if group:
                yield case.changed(inputs=tuple(changed[i] if i in group else g for i, g in enumerate(case.inputs)))


def _without_gradient(given: Given) -> Given:
    value = given.value
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return given
    return Given(value.detach(), given.text.removesuffix(".requires_grad_()"))


def _contiguous(given: Given) -> Given:
    value = given.value
    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return given
    return Given(value.detach().contiguous().requires_grad_(value.requires_grad))


def _single_precision(given: Given) -> Given:
    value = given.value
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float64, torch.float16, torch.bfloat16):
        return given
    return Given(value.detach().float().requires_grad_(value.requires_grad))


def simple_data(case: Case) -> Iterator[Case]:
    """Data that a short text makes: for all inputs, or one."""
    texts = [simple_texts(given.value) if not given.text else [] for given in case.inputs]
    odd = [i for i, found in enumerate(texts) if found]
    for choice in range(max((len(found) for found in texts), default=0)):
        for group in [odd, *([i] for i in odd if len(odd) > 1)]:
            if group:
                yield case.changed(
                    inputs=tuple(
                        alike(texts[i][min(choice, len(texts[i]) - 1)]) if i in group else given
                        for i, given in enumerate(case.inputs)
                    )
                )


STEPS: dict[str, Callable[[Case], Iterator[Case]]] = {
    "fewer results": fewer_results,
    "an earlier result": earlier_result,
    "later inputs": later_inputs,
    "an operation left out": left_out,
    "a result made an input": made_input,
    "without effects": without_effects,
    "smaller sizes": smaller_sizes,
    "plainer inputs": plainer_inputs,
    "simple data": simple_data,
}
