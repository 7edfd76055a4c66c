"""What NumPy's names meant when jitney was imported: packages register handlers later, at the first capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.tables import INSTALL, UNCAPTURED
from jitney.config import config

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

_SPACES = [(module, {n: v for n, v in vars(module).items() if callable(v)}) for module in (np, np.linalg, np.fft)]
_SPACES.append((torch, {"from_numpy": torch.from_numpy}))
_ORIGINALS = {id(value) for _, known in _SPACES for value in known.values()}


def is_original(fn: Any) -> bool:
    """Is it one of them, and has the program put it under no other's name?"""
    if id(fn) not in _ORIGINALS:
        return False
    return not any(vars(m).get(name) is fn and value is not fn for m, known in _SPACES for name, value in known.items())


def refuse_uncaptured(vm: Interpreter, value: Any, what: str) -> None:
    """Break at an array, a scalar or a function of NumPy's where no package captures them; ``what`` happens to it."""
    if vm.handlers.arrays is UNCAPTURED and config.trace_numpy:
        if isinstance(value, (np.ndarray, np.generic)) or is_original(value):
            raise Break(f"{what}, and nothing installed captures NumPy", INSTALL)
