from __future__ import annotations

import pytest
import torch

pytest.importorskip("jax")

from jitney_xla.layouts import inverse, order_of, with_strides  # noqa: E402


@pytest.mark.parametrize(
    ("shape", "strides", "order"),
    [
        ((2, 3), (3, 1), (0, 1)),
        ((2, 3), (1, 2), (1, 0)),
        ((2, 3), (4, 1), None),
        ((2, 3), (0, 1), None),
        ((2, 1, 3), (3, 7, 1), (0, 2, 1)),
        ((), (), ()),
    ],
)
def test_the_order_of_dimensions_in_memory(shape, strides, order):
    assert order_of(shape, strides) == order
    if order is not None:
        x = torch.empty_strided(shape, strides)
        assert x.permute(order).is_contiguous() and x.permute(order).permute(inverse(order)).shape == x.shape


@pytest.mark.parametrize("strides", [(12, 4, 1), (0, 3, 1), (20, 1, 3)])
def test_memory_with_gaps_or_repetitions(strides):
    x = torch.arange(6.0).reshape(1, 2, 3).expand(2, 2, 3)
    made = with_strides(x.contiguous(), strides)
    assert torch.equal(made, x) and made.stride() == strides
