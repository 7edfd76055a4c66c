"""``associative_scan`` of a pointwise function: torch's own decomposition, written into the graph.

Torch combines many pairs in one call, by ``torch.vmap`` of the user's function. Capture runs that function on stand-ins
for one pair, in a graph of its own. If all that it did is pointwise, the same operations on the whole batch are what
``vmap`` computes. Anything else is a graph break.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import is_stand_in
from jitney.capture.tables import FunctionTable
from jitney.capture.torch.autograd import transforms
from jitney.capture.torch.tensors import Tracer
from jitney.capture.world.guard_set import GuardSet
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

NAMES = frozenset(
    "abs add and_ clamp cos div eq exp exp2 expm1 fmax fmin ge gt le log log1p log2 logaddexp logical_and logical_not "
    "logical_or logical_xor lt maximum minimum mul ne neg or_ pow reciprocal relu rsqrt sigmoid sign sin sqrt square "
    "sub tanh true_divide truediv where xor".split()
)
HINT = "combine by pointwise operations on the arguments alone"


@special(torch.vmap)
def _vmap(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Torch's scan maps over dimension 0 of everything; ``capture/torch/autograd/transforms.py`` has other calls."""
    if torch_private.SCAN_CODE is None or not vm.frames or vm.frames[-1].info.code is not torch_private.SCAN_CODE:
        return transforms.mapped(vm, args, kwargs)
    caller = len(vm.frames) - 2
    step = vm.frames[min(caller, vm.nesting[0]) if vm.nesting else caller].step
    return vm.world.mark_fresh(functools.partial(combine, step, args[0]))


def combine(step: int, function: Callable[..., Any], *pair: Any) -> Any:
    """The mapped function; ``step`` is where the scan was called. Capture interprets it specially."""
    return torch.vmap(function)(*pair)


@special(combine)
def _combine(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    step, function, *pair = args
    try:
        return _combined(vm, function, pair)
    except Break as stop:  # the scan as a whole runs in Python
        raise Restart(step, stop.reason, stop.hint, vm.user_stack()) from None


def _combined(vm: Interpreter, function: Callable[..., Any], pair: list[Any]) -> Any:
    batched: list[Any] = []
    main, scratch = vm.tracer, Tracer(vm.symbols, GuardSet(vm.user_line), vm.user_stack)
    slices = [_map(tree, lambda leaf: _slice(main, scratch, leaf, batched)) for tree in pair]
    paused, main.pause, vm.tracer = main.pause, True, scratch
    try:
        with scratch:
            result = vm.call(function, *slices)
    finally:
        main.pause, vm.tracer = paused, main
    values = _replay(vm, scratch.graph, batched)
    return _map(result, lambda leaf: values[scratch.node_of(leaf)])


def _map(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with every tensor replaced; only plain containers are looked into."""
    if is_stand_in(tree):
        return change(tree)
    if type(tree) in (tuple, list):
        return type(tree)(_map(part, change) for part in tree)
    if type(tree) is dict:
        return {key: _map(part, change) for key, part in tree.items()}
    raise Break(f"associative_scan combines a {type(tree).__qualname__}", HINT)


def _slice(main: Tracer, scratch: Tracer, leaf: Any, batched: list[Any]) -> Any:
    """A stand-in for one item along dimension 0."""
    if leaf.dim() == 1 and leaf.shape[0] == 0:
        raise Break("associative_scan over numbers, which torch.vmap does not combine where there are none", HINT)
    paused, main.pause = main.pause, True
    try:
        made = leaf.new_empty(leaf.shape[1:], requires_grad=leaf.requires_grad)
    finally:
        main.pause = paused
    scratch.nodes[id(made)] = scratch.graph.placeholder(f"item{len(batched)}")
    scratch.nodes[id(made)].meta["example_value"] = made
    scratch.kept.append(made)
    batched.append(leaf)
    return made


def _replay(vm: Interpreter, graph: fx.Graph, batched: list[Any]) -> dict[fx.Node, Any]:
    """What every node of the small graph is for the whole batch."""
    items = iter(batched)
    values: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(items, None)
            continue
        _check_pointwise(node)
        call_args = [values[a] if isinstance(a, fx.Node) else a for a in node.args]
        target: Any = node.target
        if node.op == "call_method":
            target = getattr(torch.Tensor, target)
        values[node] = vm.native(target, *call_args)
    return values


def _check_pointwise(node: fx.Node) -> None:
    """Break unless the node computes each element from the elements at the same place."""
    target = node.target
    name = target if isinstance(target, str) else str(getattr(target, "__name__", ""))
    known = isinstance(target, str) or getattr(torch, name, None) is target or getattr(operator, name, None) is target
    tensors = [a.meta["example_value"] for a in node.args if isinstance(a, fx.Node)]
    plain = all(isinstance(a, fx.Node) or type(a) in (bool, int, float) for a in node.args)
    shape = getattr(node.meta.get("example_value"), "shape", None)
    same = all(isinstance(v, torch.Tensor) and v.shape == shape for v in tensors)
    if name not in NAMES or not known or node.kwargs or not plain or not same:
        raise Break(f"associative_scan combines by {name}, which is not pointwise", HINT)
