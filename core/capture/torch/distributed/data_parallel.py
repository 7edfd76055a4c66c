"""``DistributedDataParallel`` in a whole step: its gradients are summed up over the ranks by operations of the graph.

DDP's reducer waits at the nodes where autograd accumulates gradients, which a graph that goes back itself does not
reach. So its forward is the module's here, and where ``backward()`` has accumulated the module's gradients they are
averaged as the reducer does it: scaled, then summed, in buckets. Only under ``fullgraph=True``: a rank that ran eagerly
meanwhile would wait for other buckets than those of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from jitney.capture.interpreter.binding import bind_arguments
from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import is_stand_in
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.autograd import transforms
from jitney.torch_compat import torch_private
from jitney.torch_compat.distributed import data_parallel as private
from jitney.torch_compat.distributed.collectives import functional_collectives

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

DDP = "DistributedDataParallel"
HINT = "call its forward and backward() outside the compiled function"


@dataclass(frozen=True, eq=False)
class Reduction:
    """The gradients of a DDP module that the next ``backward()`` is to average.

    Args:
        ddp: the module.
        parameters: stand-ins of those that it reduces.
        step: where its forward was called.
    """

    ddp: Any
    parameters: list[Any]
    step: int


# ------------------------------------------------------------------ interpreted: what is read is guarded


def _synchronised(ddp: Any) -> bool:
    return torch.is_grad_enabled() and bool(ddp.require_backward_grad_sync)


def _forward(ddp: Any, args: tuple[Any, ...], kwargs: dict[str, Any], broadcast: Any) -> Any:
    if ddp.require_forward_param_sync and ddp.forward_sync_buffers and ddp.modules_buffers:
        with torch.no_grad():
            for name, buffer in ddp.module.named_buffers():
                if name not in ddp.parameters_to_ignore:
                    buffer.copy_(broadcast(buffer, 0, ddp.process_group))
    result = ddp.module(*args, **kwargs)
    synchronised = _synchronised(ddp)
    if ddp.require_forward_param_sync is not synchronised:
        ddp.require_forward_param_sync = synchronised
    return result


def _reduce(buckets: list[list[torch.Tensor]], ddp: Any, scale: float, all_reduce: Any) -> None:
    with torch.no_grad():
        for bucket in buckets:
            gradients = [p.grad for p in bucket]
            flat = torch.cat([g.reshape(-1) for g in gradients]) * scale  # type: ignore[union-attr]
            summed = all_reduce(flat, "sum", ddp.process_group)
            for gradient, part in zip(gradients, summed.split([g.numel() for g in gradients]), strict=True):  # type: ignore[union-attr]
                gradient.copy_(part.view(gradient.shape))  # type: ignore[union-attr]


# ------------------------------------------------------------------ capture


@special(DistributedDataParallel.forward)
def _of_module(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    function: Any = DistributedDataParallel.forward
    if not vm.symbols.whole or isinstance(vm.tracer, transforms.Body) or vm.tracer.region is not None:
        return bind_arguments(vm, function, args, kwargs)
    ddp, *given = args
    why = vm.call(private.refused, ddp) or private.refused_natively(ddp) or _moved(ddp, [*given, *kwargs.values()])
    if why:
        raise Break(f"{DDP} {why}", HINT)
    tape, step = vm.tracer.tape, vm.break_step()
    if any(one.ddp is ddp for one in tape.reductions):
        raise Break(f"{DDP} is called twice before backward()", HINT)
    parameters = vm.call(private.reduced, ddp)
    tape.held.update(map(id, parameters))
    result = vm.call(
        _forward, ddp, vm.world.mark_fresh(tuple(given)), vm.world.mark_fresh(dict(kwargs)), _collective("broadcast")
    )
    if vm.call(_synchronised, ddp):
        tape.reductions.append(Reduction(ddp, parameters, step))
    return result


def _collective(name: str) -> Any:
    return getattr(functional_collectives(), name)


def _moved(ddp: Any, given: list[Any]) -> str:
    """What keeps arguments from being taken as they are."""
    if ddp.device_ids and any(not is_stand_in(v) or v.device != ddp.device for v in given):
        return "with arguments that it may move to its device"
    return ""


def reduce(vm: Interpreter, leaves: tuple[Any, ...], gradients: tuple[Any, ...]) -> None:
    """Average what ``backward()`` has accumulated of the modules that wait for it."""
    waiting, vm.tracer.tape.reductions = vm.tracer.tape.reductions, []
    arrived = {id(leaf) for leaf, gradient in zip(leaves, gradients, strict=True) if gradient is not None}
    for one in waiting:
        if not arrived.issuperset(map(id, one.parameters)):
            raise Restart(one.step, f"backward() reaches only some parameters of a {DDP}", HINT)
        found = [vm.world.mark_fresh(bucket) for bucket in _buckets(one.parameters, int(one.ddp.bucket_bytes_cap))]
        vm.call(
            _reduce, vm.world.mark_fresh(found), one.ddp, 1 / one.ddp.process_group.size(), _collective("all_reduce")
        )


def _buckets(parameters: list[Any], limit: int) -> Iterator[list[Any]]:
    """From the last to the first, of one dtype each, as full as they may be."""
    bucket: list[Any] = []
    size = 0
    with torch_private.DisableTorchFunction():
        for parameter in reversed(parameters):
            more = parameter.numel() * parameter.itemsize
            if bucket and (size + more > limit or bucket[-1].dtype != parameter.dtype):
                yield bucket
                bucket, size = [], 0
            bucket.append(parameter)
            size += more
    if bucket:
        yield bucket
