"""One program of the breadth benchmark: what is compiled, with which inputs, for inference or in training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

Target = Callable[..., Any]
Made = tuple[Target, tuple[Any, ...]]
Mode = Literal["inference", "training"]


@dataclass(frozen=True)
class Place:
    """Where a row runs, and so how large it is.

    Args:
        device: ``cpu`` or ``cuda``.
    """

    device: str = "cpu"

    def size(self, cpu: int, cuda: int) -> int:
        """The one that suits the device: some milliseconds of eager's work on two cores, or on an H200."""
        return cuda if self.device == "cuda" else cpu

    def randn(self, *shape: int) -> torch.Tensor:
        """Normal numbers, float32, the same on every device for one seed."""
        return torch.randn(*shape).to(self.device)

    def rand(self, *shape: int) -> torch.Tensor:
        """Numbers from 0 to 1, float32, the same on every device for one seed."""
        return torch.rand(*shape).to(self.device)

    def randint(self, high: int, *shape: int) -> torch.Tensor:
        """Integers from 0 below ``high``, int64, the same on every device for one seed."""
        return torch.randint(high, shape).to(self.device)


@dataclass(frozen=True)
class Row:
    """A program.

    Args:
        name: unique; ``group/what``.
        make: the function or module to compile and the arguments of a call, made after ``torch.manual_seed(0)``. A
            module's weights are on the place's device. Floating-point tensors are float32, or half types by
            ``dtype``: so that the same program can be made again in float64.
        mode: ``inference`` calls it under ``no_grad``; ``training`` calls it and takes the gradients of the mean of
            all floating-point results with regard to parameters and to arguments that require them.
        dtype: what the module and its floating-point arguments are converted to.
        autocast: run under ``torch.autocast`` to this type.
        writes: the call writes into its arguments (a cache, an average): compared too.
    """

    name: str
    make: Callable[[Place], Made]
    mode: Mode = "inference"
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    writes: bool = False

    @property
    def group(self) -> str:
        """What stands before the slash of its name."""
        return self.name.partition("/")[0]

    @property
    def tuned(self) -> bool:
        """Is it in the half whose rows may be looked at one by one? Its name's hash decides."""
        return hashlib.sha256(self.name.encode()).digest()[0] < 128
