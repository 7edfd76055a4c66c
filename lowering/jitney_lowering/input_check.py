"""Are a graph's inputs what its kernels were made for? Asked at the first call, wherever that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from jitney.errors import BackendFailed

# Of one input: its number, dtype, sizes and strides (None: any), is it conjugated or negated lazily, and as text.
Fact = tuple[int, torch.dtype, tuple[int | None, ...], tuple[int | None, ...], bool, str]


class InputCheck:
    """Kernels read memory as the graph says it is, and stand-ins may have been wrong about it.

    Args:
        facts: of the inputs that are read.
        located: the numbers of those whose addresses the caller gives.
    """

    def __init__(self, facts: Iterable[Fact], located: Iterable[int] = ()) -> None:
        self.facts = tuple(facts)
        self.located = tuple(located)

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        """For graphs that are stored before they have run."""
        return ["call", f"{__name__}:InputCheck", writer.refs((self.facts, self.located))]

    def __call__(self, *inputs: Any, addresses: Sequence[int] = ()) -> None:
        """Raise ``BackendFailed`` if one is something else, or lies elsewhere."""
        places = zip(addresses, map(inputs.__getitem__, self.located), strict=True)
        if any(address != t.data_ptr() for address, t in places if not t.is_complex()):  # which may be a copy by now
            raise BackendFailed("the addresses that come with a graph's inputs are not theirs")
        for number, dtype, sizes, strides, lazy, text in self.facts:
            tensor = inputs[number]
            if tensor.dtype is not dtype or not (_alike(tensor, sizes, strides) or not tensor.numel()):
                facts = f"{tensor.dtype} {tuple(tensor.shape)} with strides {tensor.stride()}"
                raise BackendFailed(f"input {number} is {facts}; kernels were made for {text}")
            if (tensor.is_conj() or tensor.is_neg()) is not lazy:
                raise BackendFailed(f"input {number} is, or is not, conjugated or negated lazily, unlike its stand-in")


def _alike(tensor: torch.Tensor, sizes: Sequence[int | None], strides: Sequence[int | None]) -> bool:
    return all(
        (size is None or n == size) and (n < 2 or stride is None or step == stride)
        for n, step, size, stride in zip(tensor.shape, tensor.stride(), sizes, strides, strict=True)
    )
