"""States of torch's default random number generators: read before a run that may not count, put back after it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch

from jitney.torch_compat import torch_private


class RandomStates:
    """The generators of some devices as they are now."""

    def __init__(self, devices: Iterable[torch.device | str]) -> None:
        self.states = [state for device in devices for state in _of(torch.device(device))]

    def changed(self) -> bool:
        """Has anybody drawn since?"""
        return any(not torch.equal(state, get()) for get, _, state in self.states)

    def failed(self, error: Exception) -> None:
        """A run has raised: it does not count, unless torch.utils.checkpoint has stopped it since it has enough."""
        if not isinstance(error, torch_private.STOPS_RECOMPUTATION):
            self.put_back()

    def put_back(self) -> None:
        """Make the generators what they were."""
        for _, restore, state in self.states:
            restore(state)


def _of(device: torch.device) -> list[tuple[Any, Any, torch.Tensor]]:
    """How to read the device's generator, how to set it, and its state; nothing where there is none."""
    if device.type == "cpu":
        return [(torch.get_rng_state, torch.set_rng_state, torch.get_rng_state())]
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return []  # the caller records a CUDA graph: an error ends that, and nobody may ask for the state meanwhile
    module: Any = getattr(torch, device.type, None)
    if not hasattr(module, "get_rng_state"):
        return []
    get = functools.partial(module.get_rng_state, device)
    return [(get, functools.partial(module.set_rng_state, device=device), get())]
