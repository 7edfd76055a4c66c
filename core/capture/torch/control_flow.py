"""Control flow operators: ``torch.cond``, ``while_loop``, ``map`` and ``scan``, each one operation of the graph.

Branches and bodies are graphs of their own (``node.target.graphs``), as the functions of ``transforms.py`` are. The
operation chooses and loops in Python when the graph runs, so gradients go through what was run. On stand-ins and under
``vmap`` a branch is both branches and a choice, element by element; a loop is one round of it. ATen graphs cannot hold
what a tensor's value decides: the pipeline cuts the graph around such an operation, which runs as it was captured, but
that ``graph_compile/branches.py`` compiles its graphs. Short maps and scans are unrolled where AOT traces them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.codegen.graph_runner import OVER
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.autograd import transforms
from jitney.capture.torch.autograd.transforms import Application, application
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

HINT = "branches and bodies take and return tensors, change nothing, and return new ones"
UNROLLED = 16  # rounds
Flat = tuple[torch.Tensor, ...]
Calls = Callable[[Flat], list[Callable[..., Flat]]]


# ------------------------------------------------------------------ branches and bodies


class _Bodies:
    """Functions that are called with the same tensors, as graphs, and what each closes over.

    Args:
        vm: what interprets.
        what: the operator, for messages.
        functions: the program's.
        args: examples of their arguments, in plain containers.
    """

    def __init__(self, vm: Interpreter, what: str, functions: Sequence[Any], args: Sequence[Any]) -> None:
        self.made = [application(vm, what, fn, args, {}, what=what) for fn in functions]
        self.own = self.made[0].leaves
        if not all(map(is_stand_in, self.own)):
            raise Break(f"{what} of something else than tensors", HINT)
        self.lifted = tuple(t for one in self.made for t in one.body.lifted)
        memory = set(_memory(self.own) + _memory([t for t in self.lifted if is_stand_in(t)]))
        for one in self.made:
            found = _memory(results(one))
            if memory.intersection(found) or len(set(found)) < len(found):
                raise Break(f"{what} of a function that returns a view, or what it was given", HINT)

    def calls(self, runs: Sequence[Callable[..., Any]], lifted: Flat) -> list[Callable[..., Flat]]:
        """The functions, from tensors to a tuple of tensors; ``runs``: what their graphs are, or were compiled to."""
        found, at = [], 0
        for one, run in zip(self.made, runs, strict=True):
            count = len(one.body.lifted)
            found.append(_bound(run, lifted[at : at + count]))
            at += count
        return found

    def operation(self, formula: Callable[..., Flat]) -> Callable[..., Flat]:
        """``formula(calls, *flat)`` as an operation over the graphs, with what makes the same over other functions.

        ``calls`` takes what is closed over, and gives the functions.
        """

        def over(runs: Sequence[Callable[..., Any]]) -> Callable[..., Flat]:
            calls = functools.partial(self.calls, runs)

            def operation(*flat: torch.Tensor) -> Flat:
                return formula(calls, *flat)

            return operation

        made = over([one.body.graph for one in self.made])
        made.__dict__[OVER] = over
        return made

    @property
    def bodies(self) -> list[transforms.Captured]:
        """For the node."""
        return [one.body for one in self.made]


def _bound(run: Callable[..., Any], lifted: Flat) -> Callable[..., Flat]:
    return lambda *given: tuple(run(*given, *lifted))


def _memory(tensors: Sequence[Any]) -> list[int]:
    with torch_private.DisableTorchFunction():
        return [torch_private.storage_of(t) for t in tensors]


def results(one: Application) -> list[Any]:
    """Stand-ins for what a function returned."""
    return transforms.results_of(one.body)


def _alike(what: str, some: Sequence[Any], others: Sequence[Any], why: str) -> None:
    """Break unless these are tensors of the same shapes, dtypes and devices."""
    facts = [[(tuple(t.shape), t.dtype, t.device) for t in side] for side in (some, others)]
    if facts[0] != facts[1]:
        raise Break(f"{what}: {why}", HINT)


def _strides(t: Any) -> tuple[int, ...] | None:
    """Its strides, if it has no gaps."""
    dense = t.numel() == 0 or 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) == t.numel()
    return tuple(t.stride()) if dense else None


def _tied(found: Flat, given: Sequence[Any], chosen: bool = False) -> Flat:
    """Results require grad if an argument does, whatever was run; so torch's operators have it, and stand-ins.

    Args:
        found: results.
        given: arguments, and what the functions close over.
        chosen: it depends on values what was run: then what was not used has a gradient, of zeros.
    """
    tracked = [t for t in given if isinstance(t, torch.Tensor) and t.requires_grad] if torch.is_grad_enabled() else []
    loose = any(_differentiable(t) and not t.requires_grad for t in found)
    if not tracked or not (chosen or loose):
        return found
    parts = [t.reshape(-1)[:1].sum() for t in (tracked if chosen else tracked[:1])]
    real = [(t.real if t.is_complex() else t).to(tracked[0].device, torch.float32) for t in parts]
    zero, never = torch.stack(real).sum(), torch.zeros((), dtype=torch.bool, device=tracked[0].device)
    return tuple(
        torch.where(never.to(t.device), zero.to(t), t) if _differentiable(t) and (chosen or not t.requires_grad) else t
        for t in found
    )


def _differentiable(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _built(vm: Interpreter, flat: Any, spec: Any) -> Any:
    return transforms.fresh(vm, torch_private.tree_unflatten(list(flat), spec))


def _bound_arguments(what: str, names: Sequence[str], args: Args, kwargs: Kwargs) -> dict[str, Any]:
    given = dict(zip(names, args, strict=False)) | kwargs
    if len(args) > len(names) or not set(given) <= set(names) or len(given) < len(args) + len(kwargs):
        raise Break(f"{what} of these arguments", "")
    return given


# ------------------------------------------------------------------ torch.cond


@special(torch.cond)
def _cond(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    what = "torch.cond"
    given = _bound_arguments(what, ("pred", "true_fn", "false_fn", "operands"), args, kwargs)
    if len(given) < 3:
        raise Break(f"{what} of these arguments", "")
    pred, operands = given["pred"], given.get("operands", ())
    functions = (given["true_fn"], given["false_fn"])
    if not is_stand_in(pred):  # a number: it is chosen now
        return vm.call(functions[0] if vm.truth(pred) else functions[1], *vm.call(_items, operands))
    if pred.numel() != 1:
        raise Break(f"{what} by a tensor with more than one element", "")
    bodies = _Bodies(vm, what, functions, vm.call(_items, operands))
    sides = [results(one) for one in bodies.made]
    if bodies.made[0].body.result != bodies.made[1].body.result:
        raise Break(f"{what}: its branches give other containers", HINT)
    _alike(what, sides[0], sides[1], "its branches give tensors of other shapes, dtypes or devices")
    kept = [_strides(a) == _strides(b) is not None for a, b in zip(*sides, strict=True)]
    count = len(bodies.own)

    def formula(calls: Calls, pred: torch.Tensor, *flat: torch.Tensor) -> Flat:
        tensors = flat[:count]
        if_true, if_false = calls(flat[count:])
        if not torch_private.undecided(pred):
            found = if_true(*tensors) if pred else if_false(*tensors)
            return _tied(tuple(t if keep else t.contiguous() for t, keep in zip(found, kept, strict=True)), flat, True)
        pairs = zip(if_true(*tensors), if_false(*tensors), kept, strict=True)
        chosen = pred.reshape(()) != 0
        both = (torch.where(chosen, *((a, b) if keep else (a.contiguous(), b.contiguous()))) for a, b, keep in pairs)
        return _tied(tuple(both), flat, True)

    flat = (pred, *bodies.own, *bodies.lifted)
    made = transforms.recorded(vm, "cond", bodies.operation(formula), flat, bodies.bodies, late=True)
    return _built(vm, made, bodies.made[0].body.result)


def _items(operands: Any) -> list[Any]:
    """Interpreted: what is read is guarded."""
    return [*operands]


# ------------------------------------------------------------------ while_loop


def _while_loop(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    what = "torch.while_loop"
    given = _bound_arguments(what, ("cond_fn", "body_fn", "carried_inputs"), args, kwargs)
    if len(given) < 3:
        raise Break(f"{what} of these arguments", "")
    carried = vm.call(_items, given["carried_inputs"])
    bodies = _Bodies(vm, what, (given["cond_fn"], given["body_fn"]), carried)
    test, after = (results(one) for one in bodies.made)
    if len(test) != 1 or test[0].numel() != 1:
        raise Break(f"{what}, whose condition is no single element", HINT)
    _alike(what, bodies.own, after, "its body gives tensors of other shapes, dtypes or devices than it takes")
    count = len(bodies.own)

    def formula(calls: Calls, *flat: torch.Tensor) -> Flat:
        tensors = flat[:count]
        go_on, body = calls(flat[count:])
        (more,) = go_on(*tensors)
        why = torch_private.undecided(more)
        if why == "batch":
            raise RuntimeError("torch.while_loop under vmap, which ends at another time for each example")
        if why:
            pairs = zip(body(*tensors), tensors, strict=True)
            return _tied(tuple(torch.where(more.reshape(()), a, b).contiguous() for a, b in pairs), flat, True)
        rounds = 0
        while more:
            tensors, rounds = body(*tensors), rounds + 1
            (more,) = go_on(*tensors)
        if not rounds:
            tensors = tuple(t.clone() for t in tensors)
        return _tied(tuple(t.contiguous() for t in tensors), flat, True)

    flat = (*bodies.own, *bodies.lifted)
    made = transforms.recorded(vm, "while_loop", bodies.operation(formula), flat, bodies.bodies, late=True)
    return _built(vm, made, bodies.made[1].body.result)


# ------------------------------------------------------------------ map and scan


def _slices(vm: Interpreter, what: str, xs: Any, dim: int) -> tuple[list[Any], Any, int]:
    """The leaves, how they were built, how many slices they have; breaks where torch says what is wrong."""
    leaves, spec = transforms.flat(vm, xs)
    if not leaves or not all(is_stand_in(leaf) and leaf.dim() > dim for leaf in leaves):
        raise Break(f"{what} over something else than tensors", "")
    sizes = {leaf.shape[dim] for leaf in leaves}
    (size,) = sizes if len(sizes) == 1 else (0,)
    if type(size) is not int or not size:
        raise Break(f"{what} over tensors of these sizes", "")
    return leaves, spec, size


def _map(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    what = "torch's map"
    if len(args) < 2 or kwargs:
        raise Break(f"{what} of these arguments", "")
    fn, xs, *rest = args
    leaves, spec, size = _slices(vm, what, xs, 0)
    first = torch_private.tree_unflatten([vm.native(torch.select, leaf, 0, 0) for leaf in leaves], spec)
    bodies = _Bodies(vm, what, (fn,), (transforms.fresh(vm, first), *rest))
    count, mapped = len(bodies.own), len(leaves)
    beside = bodies.own[mapped:]

    def formula(calls: Calls, *flat: torch.Tensor) -> Flat:
        own, others = flat[:mapped], flat[mapped:count]
        (body,) = calls(flat[count:])
        if size > UNROLLED and isinstance(own[0], torch_private.FakeTensor):
            return _tied(_repeated(body(*(t[0] for t in own), *others), size, 0), flat)
        rounds = [body(*(t[i] for t in own), *others) for i in range(size)]
        return _tied(tuple(torch.stack(items) for items in zip(*rounds, strict=True)), flat)

    flat = (*leaves, *beside, *bodies.lifted)
    made = transforms.recorded(vm, "map", bodies.operation(formula), flat, bodies.bodies, late=size > UNROLLED)
    return _built(vm, made, bodies.made[0].body.result)


def _repeated(found: Flat, size: int, dim: int) -> Flat:
    return tuple(torch.stack([t.clone()], dim).repeat_interleave(size, dim) for t in found)


def _scan(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    what = "torch's scan"
    given = _bound_arguments(what, ("combine_fn", "init", "xs"), args, {k: kwargs[k] for k in kwargs if k in NAMED})
    settings = {key: transforms.setting(vm, value) for key, value in kwargs.items() if key not in NAMED}
    dim, reverse = settings.pop("dim", 0), settings.pop("reverse", False)
    if settings or len(given) < 3 or type(dim) is not int or type(reverse) is not bool or dim < 0:
        raise Break(f"{what} of these arguments", "")
    init, init_spec = transforms.flat(vm, given["init"])
    leaves, spec, size = _slices(vm, what, given["xs"], dim)
    carry = transforms.fresh(vm, torch_private.tree_unflatten(list(init), init_spec))
    first = torch_private.tree_unflatten([vm.native(torch.select, leaf, dim, 0) for leaf in leaves], spec)
    bodies = _Bodies(vm, what, (given["combine_fn"],), (carry, transforms.fresh(vm, first)))
    shape = bodies.made[0].body.result
    whole = torch_private.tree_unflatten(results(bodies.made[0]), shape)
    if type(whole) is not tuple or len(whole) != 2 or torch_private.tree_flatten(whole[0])[1] != init_spec:
        raise Break(f"{what} of a function that returns something else than a carry like the first and a result", HINT)
    carried = len(init)
    _alike(what, init, results(bodies.made[0])[:carried], "the carry changes its shape, dtype or device")
    order = range(size - 1, -1, -1) if reverse else range(size)

    def formula(calls: Calls, *flat: torch.Tensor) -> Flat:
        state, own = flat[:carried], flat[carried : carried + len(leaves)]
        (body,) = calls(flat[carried + len(leaves) :])
        if size > UNROLLED and isinstance(own[0], torch_private.FakeTensor):
            found = body(*state, *(t.select(dim, 0) for t in own))
            stacked = _repeated(found[carried:], size, dim)
            return _tied((*(t.contiguous() for t in found[:carried]), *stacked), flat)
        rounds: list[Flat] = []
        for i in order:
            found = body(*state, *(t.select(dim, i) for t in own))
            state = found[:carried]
            rounds.append(found[carried:])
        if reverse:
            rounds.reverse()
        stacked = tuple(torch.stack(items, dim) for items in zip(*rounds, strict=True))
        return _tied((*(t.contiguous() for t in state), *stacked), flat)

    flat = (*init, *leaves, *bodies.lifted)
    made = transforms.recorded(vm, "scan", bodies.operation(formula), flat, bodies.bodies, late=size > UNROLLED)
    return _built(vm, made, shape)


NAMED = ("combine_fn", "init", "xs")
HANDLERS = {"while_loop": _while_loop, "map": _map, "scan": _scan}
for _name, _operator in torch_private.control_flow().items():
    special(_operator)(HANDLERS[_name])
