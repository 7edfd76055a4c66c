"""``GradScaler.step``: whether an optimizer steps is decided where the gradients are, while the graph runs.

Eager waits for the device, looks whether a gradient is infinite, and leaves the step out if one is. Here it is a part
of the graph, and what it writes to gets its old value back where it should not have happened. What a step does to
Python's objects cannot be taken back: such a step is a graph break, as the first one is, which makes the state. So is
one that counts steps on the host beside gradients on a device: the host would wait for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.amp.grad_scaler import GradScaler

from jitney.capture import metadata
from jitney.capture.interpreter.binding import bind_arguments
from jitney.capture.interpreter.signals import Restart
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.world.writes import writes
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

REASON = "GradScaler.step decides by the gradients' values whether"
HINT = "take a first step outside of the compiled function, and keep the optimizer's state in tensors"


# Interpreted: what the program's objects hold, and operations.


def _flags(state: dict[str, Any]) -> list[torch.Tensor]:
    return list(state["found_inf_per_device"].values())


def _skips(flags: list[torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return sum(flags) != 0  # type: ignore[return-value]


def _take_back(skip: torch.Tensor, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    there: dict[torch.device, torch.Tensor] = {}
    with torch.no_grad():
        for now, before in pairs:
            if now.device not in there:
                there[now.device] = skip.to(now.device)
            now.copy_(torch.where(there[now.device], before, now))


@special(GradScaler._maybe_opt_step)
def _step(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    function: Any = GradScaler._maybe_opt_step
    if len(args) != 3 or kwargs or not _is_torch_own(args[1]):
        return bind_arguments(vm, function, args, kwargs)
    flags = vm.call(_flags, args[2])
    if not flags or any(type(flag) is not torch_private.FakeTensor for flag in flags):
        return bind_arguments(vm, function, args, kwargs)
    skip = vm.call(_skips, flags)
    step, tracer = vm.break_step(), vm.tracer
    python, tensors = writes(vm)[:2], tracer.snapshot()
    nodes, last = dict(tracer.nodes), next(reversed(tracer.graph.nodes))
    result = vm.call(vm.call(getattr, args[1], "step"))
    if result is not None or not _same_python(vm, python):
        raise Restart(step, f"{REASON} the optimizer does something to Python's objects", HINT)
    known = {id(tensor) for tensor, _ in tensors}
    younger = [fake for fake in tracer.outside() if id(fake) not in known]
    written = [tensor for tensor, version in tensors if metadata.version_of(tensor) != version]
    written += [fake for fake in younger if metadata.version_of(fake) != tracer.versions[id(fake)]]
    if {*map(id, written)} - {*map(id, tracer.outside())}:
        raise Restart(step, f"{REASON} the optimizer changes what the compiled function has made", HINT)
    if {tensor.device for tensor in written} - {flag.device for flag in flags}:
        raise Restart(step, f"{REASON} the optimizer counts its steps on the host", "use fused=True or capturable=True")
    places = {id(node.meta.get("example_value")): node for node in tracer.graph.find_nodes(op="placeholder")}
    pairs = []
    for tensor in dict.fromkeys(written):
        node = nodes.get(id(tensor)) or places[id(tensor)]
        pairs.append(vm.world.mark_fresh((tensor, _copy(vm, tensor, node, last))))
    vm.call(_take_back, skip, vm.world.mark_fresh(pairs))
    return None


def _is_torch_own(optimizer: Any) -> bool:
    """Is all that a step runs torch's? Other code may write through ``.data``, draw numbers, or raise."""
    hooks = [getattr(optimizer, f"_optimizer_step_{when}_hooks", ()) for when in ("pre", "post")]
    steps = [type(optimizer).step, vars(optimizer).get("step")]  # a scheduler puts a wrapper on the instance
    return not any(map(len, (*hooks, *torch_private.OPTIMIZER_HOOKS))) and all(
        _is_in_torch(s) for s in steps if s is not None
    )


def _is_in_torch(step: Any) -> bool:
    """Is a function, and each that it wraps, of torch's optimizers or their schedulers?"""
    while step is not None:
        function = getattr(step, "__func__", step)
        space = getattr(function, "__globals__", None)
        if space is None or not str(space.get("__name__")).startswith("torch.optim."):
            return False
        step = getattr(function, "__wrapped__", None)
    return True


def _copy(vm: Interpreter, tensor: Any, node: fx.Node, last: fx.Node) -> Any:
    """A copy of the tensor as it was when ``node`` was its value and ``last`` the end of the graph."""
    tracer = vm.tracer
    with torch.no_grad(), torch_private.DisableTorchFunction(), tracer.fake_mode:
        made = torch.empty_like(tensor)
    with tracer.graph.inserting_after(last):
        copy = tracer.graph.call_method("clone", (node,))
    copy.meta.update(example_value=made, user_stack=last.meta.get("user_stack", ()))
    tracer.nodes[id(made)] = copy
    tracer.kept.append(made)
    tracer.versions.setdefault(id(made), metadata.version_of(made))
    return made


def _same_python(vm: Interpreter, before: tuple[Any, Any]) -> bool:
    """Has nothing been written to Python's objects since, but what was there?"""
    dirty, contents = before
    after, now = writes(vm)[:2]
    fresh = [vm.world.records[key] for key in after if key not in set(dirty)]
    return bool(now == contents) and all(_is_unchanged(vm, record) for record in fresh)


def _is_unchanged(vm: Interpreter, record: Any) -> bool:
    plain = record.content is None and not record.pending and not record.slots and record.cell is None
    value, written = record.value, {k: vm.tracer.real_of(v) for k, v in record.overlay.items()}
    same = isinstance(value, dict) and all(k in value and value[k] is v for k, v in written.items())
    return plain and (same or not written)
