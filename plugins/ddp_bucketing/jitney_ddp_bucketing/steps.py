"""One step of mode ``in_graph``: from a forward to the end of its backward."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any

import torch

NO_PASS = -1
# What may be in a module's output besides tensors.
PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
# DDP modules whose reducer is ready for a backward that has not come.
reducer_waits: weakref.WeakSet[Any] = weakref.WeakSet()


class Step:
    """A forward in mode ``in_graph``, until its backward has ended.

    Args:
        late: are its gradients reduced after the backward instead of in it?
        synced: are they reduced at all? Not within ``no_sync``.
    """

    def __init__(self, late: bool, synced: bool) -> None:
        self.late = late
        self.synced = synced
        self.runs = 0  # training graphs that it ran
        self.ended = False


def has_hooks(parameter: Any) -> bool:
    """Does the program look at or change the gradient before or when it is accumulated? It is to see this rank's."""
    return bool(parameter._backward_hooks) or bool(parameter._post_accumulate_grad_hooks)


def leaves(value: Any) -> Iterator[Any]:
    """What a module's output is made of: tensors, and whatever is no container."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from leaves(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name))
    else:
        yield value
