"""A tensor whose numbers are in compiled code: it must be the same one, and nobody may have written to it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from jitney._util.forks import reentrant_lock

WRITTEN = -1  # in place of a version: nobody counted what was written


def can_freeze(tensor: Any) -> bool:
    """Has it a version, and memory of its own?"""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return plain and not tensor.is_inference() and tensor.device.type != "meta"


class Frozen:
    """A tensor as it was.

    Writes through ``.data`` or NumPy that leave its memory where it was go unseen, as they do for autograd. Those of
    batch norms to their statistics are seen, since these are compared, and those of optimizers are.

    It holds no weak reference to the tensor: ``torch.utils.swap_tensors`` refuses tensors to which there is one. That
    its memory is alive, at its address, and of its version says as much; after a swap these are another's.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.identity = id(tensor)
        self.version = int(tensor._version)
        self.address = tensor.data_ptr()
        # Memory that was given back may be given out again, at the same address.
        self.memory: Any = weakref.ref(tensor.untyped_storage())
        self.dtype = tensor.dtype
        self.numbers = _bytes([tensor]) if _may_be_statistics(tensor) else None
        _watch(self)

    def holds(self, tensor: Any) -> bool:
        """Is it the same one, as it was?"""
        return self.unwritten(tensor) and (self.numbers is None or torch.equal(_bytes([tensor]), self.numbers))

    def unwritten(self, tensor: Any) -> bool:
        """The same, but for writes that nothing counts."""
        return bool(
            id(tensor) == self.identity
            and not tensor.is_inference()
            and tensor._version == self.version
            and tensor.data_ptr() == self.address
            and self.memory() is not None
        )

    def found(self, tensor: Any) -> str:
        """What it is instead, for people."""
        return "another tensor" if id(tensor) != self.identity else "written to since"


def with_frozen(check: Callable[..., bool], frozen: Mapping[int, Frozen]) -> Callable[..., bool]:
    """A check of many tensors that also asks those at these positions to be as they were."""
    pairs = list(frozen.items())
    compared = _compared(frozen)

    def both(*tensors: Any) -> bool:
        if not check(*tensors):
            return False
        for at, one in pairs:
            if not one.unwritten(tensors[at]):
                return False
        for places, numbers in compared:
            if not _capturing(numbers) and not torch.equal(_bytes([tensors[at] for at in places]), numbers):
                return False
        return True

    return both


# ------------------------------------------------------------------ what writes without counting


def _may_be_statistics(tensor: torch.Tensor) -> bool:
    """Could it be what a batch norm in training keeps, which torch's kernels write to without counting?"""
    return type(tensor) is torch.Tensor and tensor.dim() == 1 and tensor.is_floating_point()


def _compared(frozen: Mapping[int, Frozen]) -> list[tuple[list[int], torch.Tensor]]:
    """By device and dtype: the positions of the tensors whose numbers are compared, and these in one row of bytes."""
    rows: dict[Any, list[int]] = {}
    for at, one in frozen.items():
        if one.numbers is not None:
            rows.setdefault((one.numbers.device, one.dtype), []).append(at)
    return [(places, torch.cat([_numbers(frozen[at]) for at in places])) for places in rows.values()]


def _numbers(one: Frozen) -> torch.Tensor:
    assert one.numbers is not None
    return one.numbers


def _bytes(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """A copy: NaN is itself."""
    return torch.cat([t.detach() for t in tensors]).view(torch.uint8)


def _capturing(tensor: torch.Tensor) -> bool:
    """Is the caller recording a CUDA graph? Then nothing can be compared, and no replay asks any guard."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


_lock = reentrant_lock()
_watched: weakref.WeakSet[Frozen] = weakref.WeakSet()
_hooked = itertools.count()


def _watch(one: Frozen) -> None:
    with _lock:
        _watched.add(one)
        if not next(_hooked):
            register_optimizer_step_post_hook(stepped)


def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Fused optimizers write to parameters, but do not count it."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    written = {id(p) for p in parameters if p.requires_grad or p.grad is not None}
    with _lock:
        for one in _watched:
            if one.identity in written:
                one.version = WRITTEN
