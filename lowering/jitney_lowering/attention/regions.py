"""Where a captured graph computes attention: a product, what is done to it up to a softmax, another product.

Found by what follows from a product: all of it ends in the second product, as its first operand, and a softmax over the
last dimension is on the way. Whether what is before the softmax goes element by element is seen when it is lowered.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from jitney.torch_compat import torch_private
from jitney_lowering.attention.softmaxes import Softmax, may_have_softmax, softmaxes

HALVES = (torch.bfloat16, torch.float16)
LONGEST = 64  # operations between the two products

_MATMUL = {torch.matmul, operator.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, "matmul", "bmm", "__matmul__"}
_DROPOUT = {torch.nn.functional.dropout: (0.5, True), torch.dropout: (None, None)}
# What may be done to the weights: they are other numbers in no other order.
_SAME = {
    "to", "type_as", "type", "float", "half", "bfloat16", "contiguous", "clone",
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", torch.reshape, torch.flatten, torch.clone,
    torch.squeeze, torch.unsqueeze, torch.unflatten,
}  # fmt: skip
_CONVERTING = {"to", "type_as", "type", "float", "half", "bfloat16"}


@dataclass(frozen=True)
class Product:
    """A product of matrices in a captured graph, as ``left @ right`` with equal batches.

    Args:
        node: what computes it.
        left, right: the operands.
        prepare: from the operands to (..., M, K) and (..., K, N) with equal batches.
        finish: from (..., M, N) to what the node gives.
        keeps_left: is the left operand (..., M, K) itself?
        keeps_result: is (..., M, N) what the node gives?
    """

    node: fx.Node
    left: fx.Node
    right: fx.Node
    prepare: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    finish: Callable[[Tensor], Tensor]
    keeps_left: bool = True
    keeps_result: bool = True


@dataclass(frozen=True)
class Region:
    """Attention in a captured graph.

    Args:
        first: queries by keys; of halves, also where the program multiplies them as float32.
        score: the operations from there to the softmax, in order.
        softmax: which is neither among these nor among those that follow.
        after: the operations from there to the second product.
        second: weights by values.
    """

    first: Product
    score: tuple[fx.Node, ...]
    softmax: Softmax
    after: tuple[fx.Node, ...]
    second: Product

    @property
    def between(self) -> list[fx.Node]:
        """All operations before the second product, each after what it reads."""
        parts = [node for node in self.first.node.graph.nodes if node in self.softmax.parts]
        return [self.first.node, *self.score, *parts, self.softmax.node, *self.after]

    @property
    def others(self) -> list[fx.Node]:
        """What the score reads besides the products."""
        own = {self.first.node, *self.score}
        return list(dict.fromkeys(n for node in self.score for n in node.all_input_nodes if n not in own))


def regions(graph: fx.Graph) -> Iterator[Region]:
    """All attention in a captured graph."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    if not any(map(may_have_softmax, order)):
        return
    for node in order:
        first = product(node)
        if first is not None:
            found = _from(first, order)
            if found is not None:
                yield found


def product(node: fx.Node) -> Product | None:
    """A node that multiplies matrices; None if it does something else."""
    if node.op not in ("call_function", "call_method"):
        return None
    if node.target in _MATMUL and len(node.args) == 2 and not node.kwargs:
        left, right = node.args
        if not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
            return None
        a, b = value(left), value(right)
        if a is None or b is None or min(a.dim(), b.dim()) < 2 or max(a.dim(), b.dim()) < 3:
            return None
        return Product(node, left, right, _same_batch, lambda x: x)
    if node.target is torch.einsum and len(node.args) == 3 and isinstance(node.args[0], str) and not node.kwargs:
        _, left, right = node.args
        if isinstance(left, fx.Node) and isinstance(right, fx.Node):
            return _einsum(node, node.args[0], left, right)
    return None


def widened(node: fx.Node) -> fx.Node:
    """What a node converts to float32, where that is a conversion of halves: products of these are as exact."""
    source = node.args[0] if node.target in _CONVERTING and node.op == "call_method" and node.args else None
    before = value(source) if isinstance(source, fx.Node) else None
    after = value(node)
    if before is None or after is None or after.dtype is not torch.float32:
        return node
    alike = before.device == after.device and before.shape == after.shape
    return source if alike and before.dtype in HALVES and isinstance(source, fx.Node) else node


def value(node: fx.Node) -> Tensor | None:
    """The stand-in of a tensor."""
    found = node.meta.get("example_value")
    return found if isinstance(found, Tensor) else None


def _same_batch(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return left.expand(*batch, *left.shape[-2:]), right.expand(*batch, *right.shape[-2:])


def _einsum(node: fx.Node, equation: str, left: fx.Node, right: fx.Node) -> Product | None:
    """As a product, if each letter is of the batch, of one operand and the result, or of both operands and summed."""
    operands, arrow, out = equation.replace(" ", "").partition("->")
    a, comma, b = operands.partition(",")
    if not arrow or not comma or not (a + b + out).isalpha() or any(len({*w}) != len(w) for w in (a, b, out)):
        return None
    batch = [c for c in out if c in a and c in b]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    summed = [c for c in a if c in b and c not in out]
    if not (len(rows) == len(columns) == len(summed) == 1) or {*out} != {*batch, *rows, *columns} or not batch:
        return None
    x, y = value(left), value(right)
    if x is None or y is None:
        return None
    if any(x.size(a.index(c)) != y.size(b.index(c)) for c in (*batch, *summed)):
        return None  # a size of 1, which is expanded
    to_left = [a.index(c) for c in (*batch, *rows, *summed)]
    to_right = [b.index(c) for c in (*batch, *summed, *columns)]
    back = [[*batch, *rows, *columns].index(c) for c in out]
    return Product(
        node,
        left,
        right,
        lambda p, q: (p.permute(to_left), q.permute(to_right)),
        lambda r: r.permute(back),
        keeps_left=to_left == sorted(to_left),
        keeps_result=back == sorted(back),
    )


def _from(first: Product, order: dict[fx.Node, int]) -> Region | None:
    """The attention that begins with this product."""
    products = value(first.node)
    if products is None or not first.node.users or not first.keeps_result:
        return None
    inside, second = _followers(first.node, order)
    if second is None or not second.keeps_left:
        return None
    known = list(softmaxes(inside))
    if len(known) != 1 or any(map(writes, (known[0].node, *known[0].parts))):
        return None
    (softmax,) = known
    size = value(softmax.node)
    if size is None or softmax.dim not in (-1, size.dim() - 1) or size.shape[-2:] != products.shape[-2:]:
        return None
    at = order[softmax.node]
    after = tuple(node for node in inside if order[node] > at)
    score = tuple(node for node in inside if order[node] < at and node not in softmax.parts)
    if softmax.scored not in (first.node, *score):
        return None
    result = value(second.node)
    if result is None or not _ends_in(second.left, softmax.node, after) or not _is_as_wide(size, result):
        return None
    if not all(_keeps_weights(node, size, result) for node in after) or any(map(writes, after)):
        return None
    own = {first.node, *score}
    read = min(order[node] for node in (softmax.node, *softmax.parts))
    if any(writes(node) and order[node] > read for node in score):
        return None
    if any(writes(node) and (node.args[:1] == () or node.args[0] not in own or "out" in node.kwargs) for node in score):
        return None  # it writes to something that others may read
    if not _nobody_writes_between(first.node, second.node, {*inside}, order):
        return None
    sources = widened(first.left), widened(first.right)
    if sources[0] is not first.left and sources[1] is not first.right:
        earliest = min(first.left, first.right, key=order.__getitem__)
        if _nobody_writes_between(earliest, first.node, set(), order):
            first = replace(first, left=sources[0], right=sources[1])
    return Region(first, score, softmax, after, second)


def _followers(node: fx.Node, order: dict[fx.Node, int]) -> tuple[list[fx.Node], Product | None]:
    """All that is computed from a node up to the one product that all of it ends in; no product if there is none."""
    inside: set[fx.Node] = set()
    ends: set[fx.Node] = set()
    waiting = list(node.users)
    while waiting:
        user = waiting.pop()
        if user in inside or user in ends:
            continue
        if user.op == "output" or len(inside) > LONGEST:
            return [], None
        if product(user) is not None:
            ends.add(user)
            continue
        inside.add(user)
        waiting += user.users
    second = product(next(iter(ends))) if len(ends) == 1 else None
    if second is None or second.right in inside or second.right is node:
        return [], None
    return sorted(inside, key=order.__getitem__), second


def _ends_in(last: fx.Node, softmax: fx.Node, after: tuple[fx.Node, ...]) -> bool:
    """Is the softmax what all of these operations, one after the other, do something with?"""
    chain = []
    node: Any = last
    while node is not softmax:
        if not isinstance(node, fx.Node) or node not in after or not node.args:
            return False
        chain.append(node)
        node = node.args[0]
    return len(chain) == len(after)


def _is_as_wide(found: Tensor, result: Tensor) -> bool:
    """Does a type hold what the second product gets?"""
    return found.dtype in (torch.float32, torch.float64, result.dtype)


def _keeps_weights(node: fx.Node, weights: Tensor, result: Tensor) -> bool:
    """Are the weights after it what they were, in their order, with the same rows and columns?"""
    found = value(node)
    if found is None or found.shape[-2:] != weights.shape[-2:] or found.numel() != weights.numel():
        return False
    if node.target in _DROPOUT:
        names = ("p", "training")
        given: dict[str, Any] = dict(zip(names, _DROPOUT[node.target], strict=True))
        given |= dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
        return given["training"] is False or given["p"] == 0
    if node.target not in _SAME or not found.dtype.is_floating_point:
        return False
    source = node.args[0] if node.args else None
    before = value(source) if isinstance(source, fx.Node) else None
    if before is None or found.device != before.device or not _is_as_wide(found, result):
        return False
    return found.dtype is before.dtype or node.target in _CONVERTING


def writes(node: fx.Node) -> bool:
    """May the operation write to a tensor that was there before? Of functions that nobody knows here it is assumed."""
    if "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    graphs = getattr(node.target, "graphs", None)  # around graphs of the program's functions
    if graphs is not None:
        return any(writes(inner) for each in graphs for inner in each.graph.nodes)
    if node.op == "call_method":
        name = str(node.target)
        if name.startswith("__") and name.endswith("__"):
            return name.strip("_") in _WRITERS
        return name.endswith("_") or name in _ACTS
    if node.op == "call_function":
        target: Any = node.target
        if isinstance(target, torch_private.OPERATOR_CLASSES):
            called: Any = target
            known = getattr(called, "namespace", "") in ("aten", "prims")
            return not known or called._schema.is_mutable or torch.Tag.nondeterministic_seeded in called.tags
        name = getattr(target, "__name__", "")
        if getattr(operator, name, None) is node.target:
            return name in _WRITERS
        if name == "embedding":  # it may renormalise its table
            return node.kwargs.get("max_norm", node.args[3] if len(node.args) > 3 else None) is not None
        return name not in _PURE or getattr(node.target, "__module__", None) not in _ROOMS
    return node.op == "call_module"


def draws(node: fx.Node) -> bool:
    """May what writes to nothing draw random numbers?"""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    inside = any(draws(inner) for each in getattr(node.target, "graphs", ()) for inner in each.graph.nodes)
    return inside or node.target in _DROPOUT or name in _DRAWING


_DRAWING = {"scaled_dot_product_attention", "bernoulli", "multinomial"}
_WRITERS = {
    "setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow",
    "irshift", "isub", "itruediv", "ixor",
}  # fmt: skip
_ACTS = {"backward", "register_hook", "retain_grad", "share_memory"}
_ROOMS = {
    None, "builtins", "torch", "torch.functional", "torch.nn.functional", "torch._C._nn", "torch._C", "_operator",
    "math",
}  # fmt: skip
_PURE = {
    "_safe_softmax", "abs", "add", "addmm", "all", "allclose", "amax", "amin", "any", "arange", "argsort", "as_tensor",
    "atan",
    "baddbmm", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "bmm",
    "broadcast_tensors", "broadcast_to", "cat", "cdist", "ceil", "chunk", "clamp", "clone", "concat",
    "conv1d", "conv2d", "cos", "cumsum", "diff", "div", "divide", "dropout", "einsum", "empty_like", "eq",
    "erf", "exp", "exp2", "expm1", "eye", "flatten", "flip", "floor", "floor_divide", "full", "full_like",
    "gather", "ge", "gelu", "getattr", "gt", "index_select", "inner", "isfinite", "isinf", "isnan", "isneginf",
    "layer_norm", "le", "lerp", "linear", "linspace", "log", "log10", "log1p", "log2", "log_softmax",
    "logsumexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "masked_fill", "masked_select", "matmul",
    "max", "maximum", "mean", "meshgrid", "min", "minimum", "mm", "movedim", "mul", "multiply", "narrow",
    "ne", "neg", "negative", "normalize", "numel", "one_hot", "ones", "ones_like", "outer", "pad", "permute",
    "pow", "prod", "reciprocal", "relu", "remainder", "repeat_interleave", "reshape", "rms_norm", "roll",
    "round", "rsqrt", "rsub", "scalar_tensor", "scaled_dot_product_attention", "select", "sigmoid", "sign",
    "silu", "sin", "softmax", "softplus", "split", "sqrt", "square", "squeeze", "stack", "sub", "subtract",
    "sum", "swapaxes", "sym_int", "sym_max", "sym_min", "tanh", "tensor", "tensor_split", "tensordot", "tile",
    "transpose", "tril", "triu", "true_divide", "trunc", "unbind", "unflatten", "unsqueeze", "where", "zeros",
    "zeros_like",
}  # fmt: skip
"""Functions of torch that write to nothing, by name: those around attention."""


def _nobody_writes_between(first: fx.Node, second: fx.Node, inside: set[fx.Node], order: dict[fx.Node, int]) -> bool:
    """Does nobody else write anything between the two products? What they read is read by the second, then."""
    between = (n for n in order if order[first] < order[n] < order[second] and n not in inside)
    return not any(writes(n) or "changes_state" in n.meta for n in between)
