"""Functions that NumPy computes while capturing where all that they are given are constants; else a graph break."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from jitney.capture.interpreter.signals import Break
from jitney_numpy.calls import HINT, ArrayTable

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

# Those that write to none of their arguments, and give new arrays and numbers: `attempt` computes them. No other table
# has them.
NAMES = (
    "allclose array_equal array_equiv flatnonzero unique bincount digitize searchsorted interp setdiff1d "
    "intersect1d union1d setxor1d isin histogram convolve correlate corrcoef cov polyfit polyval percentile "
    "quantile lexsort argpartition partition gradient ediff1d geomspace logspace indices tri tril_indices "
    "triu_indices unravel_index ravel_multi_index bartlett blackman hamming hanning kaiser sinc i0"
)


def _refuse(name: str, vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> NoReturn:
    raise Break(f"numpy.{name} is not captured", HINT)


table = ArrayTable()
for _name in NAMES.split():
    table.captures(getattr(np, _name), functools.partial(_refuse, _name))
