"""Do arguments, or the elements of one, share memory?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from jitney.backends.devices import same_addresses
from jitney.cache.recipes import Recipe, Writer, call
from jitney.torch_compat.stand_ins.tensor_iterator import hint


def overlaps_itself(size: Sequence[Any], stride: Sequence[Any]) -> bool:
    """May two elements of a tensor be in one place? Symbolic sizes and strides count as what they were when captured.

    True also for some layouts that interleave dimensions without any two elements meeting.
    """
    dims = [(hint(s), hint(n)) for n, s in zip(size, stride, strict=True)]
    if any(n == 0 for _, n in dims):
        return False
    reach = 0  # the farthest element of the dimensions inside
    for step, count in sorted(d for d in dims if d[1] != 1):
        if step <= reach:
            return True
        reach += (count - 1) * step
    return False


class Overlap:
    """Asks whether an argument that is written to shares memory with another one, or some of its elements do.

    Args:
        examples: FakeTensors with the arguments' sizes.
        written: by argument: is it written to?
    """

    def __init__(self, examples: Sequence[Any], written: Sequence[bool]) -> None:
        self._set([_extent(e) for e in examples], list(written))

    def _set(self, extents: list[int | None], written: list[bool]) -> None:
        self.written = written
        self.extents = extents
        self.checked: list[int] | None = None
        self.every = list(range(len(extents)))
        self.fixed = all(e is not None for e in self.extents)
        # Where all is known, nothing that overlaps itself comes here: the trace was refused.
        self.loose = [i for i, w in enumerate(written) if w and self.extents[i] is None]

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        return call("jitney.aot.memory_overlap:kept_overlap", *writer.refs((self.written, self.extents)))

    def apart(self, tensors: Sequence[torch.Tensor]) -> list[int] | None:
        """The addresses of the arguments; None if they share memory.

        Addresses that were found apart once are not looked at again, as long as sizes are fixed. It is the same list
        then, which nobody changes: who has made something of it need not make it again.
        """
        checked = self.checked  # another thread may put another list there
        if checked is not None and self.fixed and same_addresses(tensors, checked, self.every):
            return checked
        addresses = [t.data_ptr() for t in tensors]
        if any(overlaps_itself(t.size(), t.stride()) for t in map(tensors.__getitem__, self.loose)):
            return None
        if self._overlap(tensors, addresses):
            return None
        self.checked = addresses
        return addresses

    def _overlap(self, tensors: Sequence[torch.Tensor], addresses: Sequence[int]) -> bool:
        extents = [_extent(t) if e is None else e for e, t in zip(self.extents, tensors, strict=True)]
        devices = [t.device for t in tensors]
        for device in set(devices):
            spans = sorted(
                (a, n, w)
                for a, n, w, d in zip(addresses, extents, self.written, devices, strict=True)
                if d == device and n
            )
            end = end_written = 0  # of all spans so far, and of those written to
            for begin, count, written in spans:
                if begin < end_written or (written and begin < end):
                    return True
                end = max(end, begin + count)
                if written:
                    end_written = max(end_written, begin + count)
        return False


def kept_overlap(written: list[bool], extents: list[int | None]) -> Overlap:
    """An ``Overlap`` as another process had it."""
    made = Overlap((), ())
    made._set(extents, written)
    return made


def _extent(tensor: Any) -> Any:
    """Bytes from a tensor's first element to its last; None if a size is symbolic."""
    total = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if isinstance(size, torch.SymInt) or isinstance(stride, torch.SymInt):
            return None
        if size == 0:
            return 0
        total += (size - 1) * stride
    return total * tensor.element_size()
