"""What the graph computes of constants alone: computed while capturing, or between which bounds it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from jitney.capture.kinds import is_stand_in
from jitney.torch_compat import torch_private

MOST = 64  # operations
NOTHING: Mapping[fx.Node, torch.Tensor] = MappingProxyType({})
# Operations of constants that are run to know what they give: none is random, and autocast leaves all of them alone.
FOLDED = frozenset(
    (
        "tensor as_tensor arange linspace logspace zeros ones eye full zeros_like ones_like full_like "
        "to float double long int bool half type item clone detach reshape view flatten unsqueeze squeeze expand "
        "permute transpose t T triu tril getitem unbind select stack cat "
        "add sub mul truediv div floordiv floor_divide mod remainder pow neg abs square sqrt exp log log2 sin cos "
        "floor ceil round trunc clamp min max amin amax minimum maximum sum prod mean cumsum cumprod flip sort argsort "
        "argmax argmin any all eq ne lt le gt ge and_ or_ xor invert logical_not logical_and logical_or where "
        "nonzero numel"
    ).split()
)

# Of those, where the order in which numbers are added, or who wrote the function, tells in the last bit.
ROUNDED = frozenset("linspace logspace pow exp log log2 sin cos sum prod mean cumsum cumprod".split())


def constant_of(tracer: Any, tensor: Any, given: Mapping[fx.Node, torch.Tensor] = NOTHING) -> torch.Tensor | None:
    """The tensor that the graph would compute of constants alone, computed now; None if it is not that.

    Args:
        tracer: has the graph.
        tensor: a stand-in.
        given: nodes whose values count as constants.
    """
    node = tracer.nodes.get(id(tensor))
    if node is None or node.op == "placeholder":
        return None
    order: dict[fx.Node, None] = {}
    todo = [(node, node)]
    while todo:
        at, reader = todo.pop()
        if at in given or (at in order and reader is at):
            continue
        if not _is_folded(at) or len(order) > MOST:
            return None
        if not (_is_as_made(at) or (reader is not at and _is_read_before_writes(at, reader))):
            return None
        if at not in order:
            order[at] = None
            todo += [(read, at) for read in at.all_input_nodes]
    values: dict[fx.Node, Any] = dict(given)
    try:
        with torch_private.without_modes(), torch.no_grad():
            for at in tracer.graph.nodes:
                if at in order:
                    args = fx.node.map_arg(at.args, values.__getitem__)
                    kwargs = fx.node.map_arg(at.kwargs, values.__getitem__)
                    target = at.target if callable(at.target) else getattr(type(args[0]), at.target)
                    values[at] = target(*args, **kwargs)
    except Exception:  # the graph's affair
        return None
    made = values[node]
    alike = isinstance(made, torch.Tensor) and made.shape == tensor.shape and made.dtype is tensor.dtype
    return made if alike else None


def uses(tracer: Any, tensor: Any, nodes: Collection[fx.Node]) -> set[fx.Node]:
    """Which of these nodes a stand-in is computed of."""
    return _path(tracer, tensor, nodes).intersection(nodes)


def is_exact(tracer: Any, tensor: Any, nodes: Collection[fx.Node]) -> bool:
    """Is it computed of these by operations that NumPy rounds as torch does?"""
    return ROUNDED.isdisjoint(map(_name, _path(tracer, tensor, nodes).difference(nodes)))


def _path(tracer: Any, tensor: Any, nodes: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes that lead from these to a stand-in."""
    todo, found = [tracer.nodes[id(tensor)]], set[fx.Node]()
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += [] if at in nodes else at.all_input_nodes
    return found


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _is_folded(node: fx.Node) -> bool:
    """Does this node compute, on the CPU, something of its arguments alone, without a write to one (``out=``)?"""
    if node.op not in ("call_function", "call_method") or _name(node) not in FOLDED or "out" in node.kwargs:
        return False
    return all(is_stand_in(part) and part.device.type == "cpu" for part in _parts(node))


def _parts(node: fx.Node) -> Any:
    made = node.meta.get("example_value")
    return made if isinstance(made, (tuple, list)) else [made]


def _is_as_made(node: fx.Node) -> bool:
    return all(map(unwritten, _parts(node)))


def _is_read_before_writes(node: fx.Node, reader: fx.Node) -> bool:
    """Are there between the two only operations that write to nothing? What views it is written to with it."""
    at = node.next
    while at is not reader:
        if at.op == "root" or not _is_folded(at):
            return False
        at = at.next
    return not any(part.is_inference() for part in _parts(node))


def unwritten(fake: Any) -> bool:
    """Has nobody written to it since it was made, by ``x.data`` neither, which has a version of its own?

    Not known of a subclass that wraps tensors: its memory is theirs.
    """
    if not isinstance(fake, torch_private.FakeTensor):
        return False
    with torch_private.DisableTorchFunction():
        quiet: bool = not fake.is_inference() and fake._version == 0
        mode: Any = fake.fake_mode
        return quiet and fake.untyped_storage()._cdata not in mode.written


# Between which numbers results are: of operations that fill, and of those that only move what they are given.
FILLED = {"zeros": (0, 0), "zeros_like": (0, 0), "ones": (1, 1), "ones_like": (1, 1), "eye": (0, 1)}
MOVING = frozenset(
    "to float double item clone detach contiguous reshape view flatten unsqueeze squeeze expand permute transpose t T "
    "flip roll repeat stack cat triu tril diag".split()
)
WITH_ZEROS = frozenset(("triu", "tril", "diag"))
Bounds = tuple[float, float]


def bounds(tracer: Any, tensor: Any) -> Bounds | None:
    """The least and the largest number that may be in a tensor of constants, whatever its shape; None if not known."""
    node = tracer.nodes.get(id(tensor))
    return None if node is None else _bounds(node, MOST)


def _bounds(node: fx.Node, depth: int) -> Bounds | None:
    made, name = node.meta.get("example_value"), _name(node)
    of_torch = node.op == "call_method" or (node.op == "call_function" and getattr(torch, name, None) is node.target)
    if not of_torch or not depth or not is_stand_in(made) or not unwritten(made):
        return None
    if name in FILLED:
        return FILLED[name]
    if name in ("full", "full_like"):
        value = node.kwargs.get("fill_value", *node.args[1:2])
        return (value, value) if type(value) in (int, float) else None  # type: ignore[return-value] # a number
    if name not in MOVING:
        return None
    parts = [_bounds(at, depth - 1) for at in node.all_input_nodes if is_stand_in(at.meta.get("example_value"))]
    known = [part for part in parts if part is not None] + [(0, 0)] * (name in WITH_ZEROS)
    if None in parts or not parts:
        return None
    return min(low for low, _ in known), max(high for _, high in known)
