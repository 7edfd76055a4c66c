"""Products of matrices that have an operand in common, or are added up, as one product of larger matrices.

Recurrent networks written by hand multiply a few rows by the same weights at each step, and their backward adds up a
gradient of the weights for each step. Libraries are slow at such products, and each is a call: what is known of all
steps beforehand (what goes into a layer, unlike its own state) is multiplied at once, and a sum of products is a
product of longer rows.

    a0 @ w, a1 @ w, ...        the rows of cat([a0, a1, ...]) @ w
    a0 @ b0 + a1 @ b1 + ...    cat([a0, a1, ...], 1) @ cat([b0, b1, ...])
    a0.sum(0) + a1.sum(0) ...  cat([a0, a1, ...]).sum(0), if it is there anyway
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from jitney.torch_compat.stand_ins.tensor_iterator import hint
from jitney_lowering.graph_nodes import shown_nodes
from jitney_lowering.joint.order import ADDMM, MM, SUM, Order
from jitney_lowering.joint.stacks import Stacks
from jitney_lowering.joint.writer import Writer

aten = torch.ops.aten
ROWS = 1024
"""Of products that are joined: with more, libraries use all of a chip, and all results are in memory at once. Also what
a product adds up in the place of a sum of products: errors grow with the root of their number."""
GROUPS = 32
"""Of products by the same matrix, the largest ones: for each the whole graph is gone through, which takes its time."""
STEPS = 8
"""Of products whose rows change in number from call to call, that are joined: there may be many more rows next time."""
EXACT = (torch.float32, torch.float64)
"""Where a sum is not rounded to fewer bits than it is added up with: else one sum is not the sum of rounded sums."""
TRANSPOSED: dict[Any, tuple[Any, ...]] = {
    aten.t.default: ((),),
    aten.transpose.int: ((0, 1), (1, 0)),
    aten.permute.default: (([1, 0],),),
}


def join_products(graph: fx.Graph) -> None:
    """Join products of matrices.

    Args:
        graph: functional ATen operators, each with its FakeTensor in ``meta["val"]``. It is changed; its nodes are in
            another order where joined products need it.
    """
    _cancel_transposes(graph)
    order = Order(graph)
    stacks = Stacks()
    for join in (_join_sums_of_products, _join_sums_of_rows, _join_rows):
        join(graph, order, stacks)


# --- Rows by the same matrix -------------------------------------------------------------------------------------


def _join_rows(graph: fx.Graph, order: Order, stacks: Stacks) -> None:
    """Join products of as many rows by the same matrix, whose results get the same addend.

    What the program gets has memory of its own, as in eager.
    """
    shown = shown_nodes(graph, {})
    groups: dict[Hashable, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        if node in shown or not order.of(node, MM, ADDMM):
            continue
        left, right = node.args[-2:]
        addend = node.args[0] if node.target is ADDMM else None
        rows, columns = node.meta["val"].shape
        if not 0 < 2 * hint(rows) <= ROWS or not isinstance(columns, int) or not columns:
            continue
        if addend is None or addend.meta["val"].dim() < 2:
            options = tuple(sorted(node.kwargs.items()))
            groups[order.value(addend), order.value(right), _shape(left), options, order.part(node)].append(node)
    several = [products for products in groups.values() if len(products) > 1]
    for products in sorted(several, key=len, reverse=True)[:GROUPS]:
        runs = _independent(graph, order, products)
        for run in runs:
            _join_run(graph, run, stacks)
        if runs:
            order.restore(graph)


def _independent(graph: fx.Graph, order: Order, products: Sequence[fx.Node]) -> list[Sequence[fx.Node]]:
    """Several of the products each, of which none is made of another one."""
    among = frozenset(products)
    made_of: dict[fx.Node, int] = {}  # the products on the longest way to a node
    levels: dict[int, list[fx.Node]] = defaultdict(list)
    for node, before in order.after(graph):
        level = max(map(made_of.__getitem__, before), default=0)
        if node in among:
            levels[level].append(node)
        made_of[node] = level + (node in among)
    most = _most(products[0].meta["val"].shape[0])
    return [run for several in levels.values() for run in _runs(order.sorted(several), most) if len(run) > 1]


def _join_run(graph: fx.Graph, products: Sequence[fx.Node], stacks: Stacks) -> None:
    last = products[-1]
    write = Writer(graph, last)
    joined = stacks(write, [product.args[-2] for product in products])
    whole = write(last.target, *last.args[:-2], joined, last.args[-1], **last.kwargs)
    rows = write(aten.view.default, whole, [len(products), -1, last.meta["val"].shape[1]])
    for at, product in enumerate(products):
        product.replace_all_uses_with(write(aten.select.int, rows, 0, at))
        graph.erase_node(product)


# --- Sums --------------------------------------------------------------------------------------------------------


def _join_sums_of_products(graph: fx.Graph, order: Order, stacks: Stacks) -> None:
    """Join products whose results are only added up."""

    def key(leaf: fx.Node) -> Hashable:
        if not order.of(leaf, MM):
            return None
        left, right = leaf.args
        rows, columns = leaf.meta["val"].shape
        inner = right.meta["val"].shape[0]  # type: ignore[union-attr]
        if not 0 < 2 * hint(inner) <= ROWS or hint(inner) > min(hint(rows), hint(columns)):
            return None  # the operands would take more memory than the results
        return (_shape(left), _shape(right), _untransposed(left) is None, order.part(leaf))

    def join(products: Sequence[fx.Node]) -> None:
        products = order.sorted(products)
        write = Writer(graph, products[0])
        inner = products[0].args[1].meta["val"].shape[0]  # type: ignore[union-attr]
        sums = []
        for run in _runs(products, _most(inner)):
            lefts: list[Any] = [product.args[0] for product in run]
            turned = [_untransposed(left) for left in lefts]
            turn = None not in turned
            left = write(aten.t.default, stacks(write, turned)) if turn else write(aten.cat.default, lefts, 1)
            sums.append(write(MM, left, stacks(write, [product.args[1] for product in run])))
        _replace(graph, products, sums)

    _join_leaves(graph, order, 2, key, join)


def _join_sums_of_rows(graph: fx.Graph, order: Order, stacks: Stacks) -> None:
    """Join sums of the rows of matrices that are below each other for a product, if these are only added up."""

    def key(leaf: fx.Node) -> Hashable:
        total = _sum_of_rows(leaf)
        if total is None or not order.of(total, SUM):
            return None
        return (_shape(total.args[0]), order.part(total))

    def join(leaves: Sequence[fx.Node]) -> None:
        of = {total.args[0]: leaf for leaf in leaves if (total := _sum_of_rows(leaf)) is not None}
        for matrices, stack in stacks.made.items():
            if of.keys() >= {*matrices} and len({*matrices}) == len(matrices):
                write = Writer(graph, of[matrices[0]])
                _replace(graph, [of.pop(matrix) for matrix in matrices], [write(SUM, stack, [0])])

    _join_leaves(graph, order, 1, key, join)


def _sum_of_rows(node: fx.Node) -> fx.Node | None:
    """The sum along the first dimension of a matrix whose elements these are."""
    total: Any = node.args[0] if node.target is aten.view.default else node
    if total.target is not SUM or total.kwargs or len(total.users) != 1 or list(total.args[1]) != [0]:
        return None
    value = total.args[0].meta["val"]
    return total if value.dim() == 2 else None


def _join_leaves(
    graph: fx.Graph,
    order: Order,
    dims: int,
    key: Callable[[fx.Node], Hashable],
    join: Callable[[Sequence[fx.Node]], None],
) -> None:
    """Join what is added up and has the same key; None is no key."""
    joined = False
    for root in graph.find_nodes(op="call_function", target=aten.add.Tensor):
        if not _is_sum(root, dims) or _is_part(root, dims):
            continue
        groups: dict[Hashable, list[fx.Node]] = defaultdict(list)
        for leaf in _leaves(root, dims):
            groups[key(leaf)].append(leaf)
        for found, leaves in groups.items():
            if found is not None and len(leaves) > 1:
                join(leaves)
                joined = True
    if joined:
        order.restore(graph)


def _replace(graph: fx.Graph, leaves: Sequence[fx.Node], sums: Sequence[fx.Node]) -> None:
    """Sums in the place of as many leaves; the others are not added any more."""
    for leaf, total in zip(leaves, sums, strict=False):
        leaf.replace_all_uses_with(total)
    for leaf in leaves[len(sums) :]:
        (addition,) = leaf.users
        (other,) = (argument for argument in addition.args if argument is not leaf)
        addition.replace_all_uses_with(other)  # type: ignore[arg-type]
        graph.erase_node(addition)
    for leaf in leaves:
        graph.erase_node(leaf)


def _leaves(root: fx.Node, dims: int) -> list[fx.Node]:
    """What is added up and read by nothing else."""
    leaves: list[fx.Node] = []
    waiting = [root]
    while waiting:
        for argument in waiting.pop().args:
            assert isinstance(argument, fx.Node)
            if len(argument.users) == 1:
                (waiting if _is_sum(argument, dims) else leaves).append(argument)
    return leaves


def _is_part(node: fx.Node, dims: int) -> bool:
    """Is the sum a part of another one, and nothing else?"""
    return len(node.users) == 1 and _is_sum(next(iter(node.users)), dims)


def _is_sum(node: fx.Node, dims: int) -> bool:
    """Is it the sum of two tensors of so many dimensions, and of one shape and type?"""
    if node.target is not aten.add.Tensor or node.kwargs.get("alpha", 1) != 1 or node.args[0] is node.args[1]:
        return False
    result = node.meta["val"]
    same = all(_shape(argument) == _shape(node) for argument in node.args)
    return same and result.dim() == dims and result.dtype in EXACT


# --- All ---------------------------------------------------------------------------------------------------------


def _cancel_transposes(graph: fx.Graph) -> None:
    """What is transposed twice, as autograd does with gradients of weights, is what it was."""
    for node in graph.nodes:
        turned = _untransposed(node)
        plain = None if turned is None else _untransposed(turned)
        if turned is not None and plain is not None:
            node.replace_all_uses_with(plain)
            graph.erase_node(node)
            if not turned.users:
                graph.erase_node(turned)


def _untransposed(node: Any) -> fx.Node | None:
    """The matrix that this is the transpose of, if an operator says so."""
    if tuple(node.args[1:]) not in TRANSPOSED.get(node.target, ()):
        return None
    source: fx.Node = node.args[0]
    return source if source.meta["val"].dim() == 2 else None


def _most(rows: Any) -> int:
    """How many products of so many rows are joined at most."""
    most = ROWS // hint(rows)
    return most if isinstance(rows, int) else min(most, STEPS)


def _runs(nodes: Sequence[fx.Node], most: int) -> Iterator[Sequence[fx.Node]]:
    """Runs of at most so many nodes."""
    for at in range(0, len(nodes), max(1, most)):
        yield nodes[at : at + max(1, most)]


def _shape(node: Any) -> Hashable:
    """Of a tensor; symbolic sizes are equal if they are spelled alike: nothing is guarded by asking."""
    value = node.meta["val"] if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return None
    return (tuple(s if isinstance(s, int) else str(s) for s in value.shape), value.dtype, value.device)
