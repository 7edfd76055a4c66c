"""What backends need to know of accelerators, in names that stay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from jitney.torch_compat import torch_private

# The current stream of a CUDA device (its index) as CUDA's own handle.
raw_stream: Callable[[int], int] = torch_private.current_raw_stream


def end_pool(device: torch.device, pool: tuple[int, int]) -> None:
    """Memory is no longer taken from this pool of a CUDA graph, whose recording has failed; what it has may go."""
    for end in (torch_private.end_allocate_to_pool, torch_private.release_pool):
        if end is not None:
            with contextlib.suppress(RuntimeError):  # that was done before it failed
                end(device.index, pool)


@contextlib.contextmanager
def within_pool(device: torch.device, pool: tuple[int, int]) -> Iterator[None]:
    """This thread's memory comes from the pool (``torch.cuda.graph_pool_handle()``), which stays to the process's end.

    No ``torch.cuda.MemPool``: when one goes while something is recorded, torch ends the process.
    """
    begin, end = torch_private.allocate_to_pool, torch_private.end_allocate_to_pool
    if begin is None or end is None:
        yield
        return
    begin(device.index, pool)
    try:
        yield
    finally:
        end(device.index, pool)


# How many tensors and wrappers hold a memory that ``storage_of`` names: views that nobody has a name for, too.
storage_users: Callable[[int], int] = torch_private.storage_users


def storage_of(tensor: torch.Tensor) -> int:
    """A name for the tensor's memory, while something holds it."""
    return torch_private.storage_of(tensor)


def library_settings() -> tuple[Any, ...]:
    """What decides how operators of CUDA's libraries compute when they are called: TF32, determinism, attention."""
    return tuple([setting() for setting in torch_private.library_settings])


_DATA_PTR = torch.Tensor.data_ptr


def same_addresses(values: Sequence[Any], addresses: list[int], positions: list[int]) -> bool:
    """Are the tensors at these positions where they were? ``addresses``: one for each of the values."""
    if torch_private.same_addresses is not None:
        return torch_private.same_addresses(list(values), addresses, positions)
    if len(positions) == len(addresses):  # all of them, as they are: nothing is gone through in Python
        return [*map(_DATA_PTR, values)] == addresses
    return all(values[n].data_ptr() == addresses[n] for n in positions)


# The program's innermost ``torch.autograd.graph.saved_tensors_hooks``; None if there are none. Asked with True.
saved_tensors_hooks: Callable[[bool], Any] = torch_private.saved_tensors_hooks
# Copies tensors into others, in one call: ``(into, from)``.
foreach_copy: Callable[..., Any] = torch_private.foreach_copy


def _fresh_cpu(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cpu")


# ``(size, stride, dtype)`` on the CPU, without the parsing of arguments where torch offers that: half the time.
fresh_cpu: Callable[..., torch.Tensor] = torch_private.empty_strided_cpu or _fresh_cpu
# The same on the current CUDA device; None where torch lacks it.
fresh_cuda: Callable[..., torch.Tensor] | None = torch_private.empty_strided_cuda

# Is torch's profiler running?
is_profiling: Callable[[], bool] = torch_private.is_profiling
