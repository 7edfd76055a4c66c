"""Casts from floats to small integers: captured where it is known that what is cast fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import Compiled, check, t


def causal(x: torch.Tensor) -> Any:
    mask = np.triu(np.ones((1, x.size(-1), x.size(-1))), k=1).astype("uint8")
    return x.masked_fill(torch.from_numpy(mask) == 1, -1e9), np.tril(np.full((2, 3), 7.0)).astype(np.int8)


def too_large(x: torch.Tensor) -> Any:
    return x * 2, np.triu(np.full((2, 2), 300.0)).astype(np.uint8)


def negative(x: torch.Tensor) -> Any:
    return x * 2, np.full(2, -1.0).astype(np.uint8), np.full(2, -1.0).astype(np.int8)


def written(x: torch.Tensor) -> Any:
    mask = np.ones(3)
    mask[0] = 300
    return x * 2, mask.astype(np.uint8)


def computed(x: torch.Tensor) -> Any:
    return x * 2, x.numpy().astype(np.uint8)


def test_a_mask_of_small_integers_is_part_of_the_graph() -> None:
    compiled = Compiled(causal)
    for size in (3, 4, 5):
        compiled(t(2, size, size))
    check(causal, t(2, 3, 3), graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [too_large, negative, written, computed])
@pytest.mark.filterwarnings("ignore")
def test_casts_of_what_may_not_fit_are_numpys(fn: Any) -> None:
    check(fn, t(2))


def test_functions_of_torch_take_scalars_of_numpy_among_named_arguments() -> None:
    def fills(x: torch.Tensor) -> Any:
        made = [torch.full((2,), step, dtype=torch.long) for step in list(np.linspace(0, 9, 4).astype(int))]
        return x * 2, made, torch.clamp(x, max=np.linspace(0, 1, 3)[1])

    check(fills, t(2), breaks=0)
