"""Functions that run as their counterparts in ``torch._numpy``: those that were found to agree with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.numpy.calls import HINT, ArrayTable
from jitney.capture.numpy.dtypes import cast
from jitney.torch_compat import torch_private

table = ArrayTable()
implements = table.implements

Tensor = Any


def _counterpart(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors go in and out as arrays of ``torch._numpy``, in the dtype that NumPy's result has."""

    def made(want: torch.dtype, *args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            raise Break("dtype= there", HINT)
        wrapped = [torch_private.numpy.ndarray(cast(a, want)) if isinstance(a, torch.Tensor) else a for a in args]
        found = fn(*wrapped, **kwargs)
        return [f.tensor for f in found] if isinstance(found, (list, tuple)) else found.tensor

    return made


# name -> how many arguments are arrays
FUNCTIONS = {
    "dot": 2, "vdot": 2, "inner": 2, "outer": 2, "kron": 2, "tensordot": 2, "trace": 1, "vander": 1,
    "linalg.norm": 1, "linalg.det": 1, "linalg.inv": 1, "linalg.solve": 2, "linalg.matrix_power": 1,
}  # fmt: skip
RAISING = ("linalg.inv", "linalg.solve", "linalg.matrix_power")  # of singular matrices
for _name, _arrays in FUNCTIONS.items():
    _ours: Any = np
    _theirs: Any = torch_private.numpy
    for _part in _name.split("."):
        _ours, _theirs = getattr(_ours, _part), getattr(_theirs, _part)
    _method = _name if _name in ("dot", "trace") else ""
    implements(_ours, arrays=_arrays, method=_method, half=False, raises=_name in RAISING)(_counterpart(_theirs))
