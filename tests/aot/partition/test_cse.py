"""Equal nodes are one, unless somebody writes to one of them."""

from __future__ import annotations

import torch

import jitney


def test_a_tensor_whose_statistics_an_operator_writes_stays_apart_from_an_equal_one() -> None:
    def fn(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> list[torch.Tensor]:
        own, other, spread = mean * 2, mean * 2, var * 2
        torch.batch_norm_update_stats(x, own, spread, 0.5)
        return [own + 1, other + 1]

    x = torch.arange(12.0).reshape(4, 3)
    results = [call(x, torch.ones(3), torch.ones(3)) for call in (jitney.compile(fn, backend="aot_eager"), fn)]
    torch.testing.assert_close(*results)
    assert not torch.equal(*results[0])
