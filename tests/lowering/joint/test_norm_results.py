"""Results of batch norms are computed again by the backward, where only pointwise operators read them there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import jitney

Run = Callable[[nn.Module, torch.Tensor], torch.Tensor]
WIDTH = 4 * 32 * 16 * 16  # elements of an image that is kept


def block(activation: Callable[[], nn.Module], **options: Any) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(8, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32, **options), activation(), nn.Conv2d(32, 16, 1)
    )


def plain(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = model(x)
    return result


def checkpointed(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = checkpoint(model, x, use_reentrant=False)
    return result


def images_kept(model: nn.Module, x: torch.Tensor, run: Run = plain, **options: Any) -> int:
    """How many tensors of an image's size the forward hands to the backward; gradients are compared with eager's."""
    found: list[int] = []

    def look(event: Any) -> None:
        if isinstance(event, jitney.events.AtenGraph) and event.kind == "forward":
            (results,) = event.graph.output_node().args
            values = [n.meta["val"] for n in results if isinstance(n, torch.fx.Node)]
            found.append(sum(isinstance(v, torch.Tensor) and v.numel() == WIDTH for v in values))

    eager = copy.deepcopy(model)
    given = [x.detach().clone().requires_grad_(x.requires_grad) for _ in range(2)]
    expected = run(eager, given[0])
    compiled = jitney.compile(lambda x: run(model, x), backend="llvm_cpu", **options)
    with jitney.events.listen(look):
        y = compiled(given[1])
    for result in (expected, y):
        result.float().square().mean().backward()
    near = {"rtol": 1e-3, "atol": 1e-5} if x.dtype is torch.float32 else {"rtol": 2e-2, "atol": 3e-2}
    torch.testing.assert_close(y, expected, **near)
    for a, b in zip([given[1], *model.parameters()], [given[0], *eager.parameters()], strict=True):
        torch.testing.assert_close(a.grad, b.grad, **near)
    for a, b in zip(model.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(a, b, **near)
    return found[0]


IMAGE = torch.randn(4, 8, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "activation", [nn.SiLU, nn.ELU, nn.GELU, nn.Hardswish, nn.Mish, nn.Softplus], ids=lambda a: a.__name__
)
def test_results_before_activations_are_not_kept(activation: Callable[[], nn.Module]) -> None:
    assert images_kept(block(activation), IMAGE) == 2  # what is normalised, and what is convolved


@pytest.mark.parametrize(
    "options",
    [{"affine": False}, {"track_running_stats": False}, {"eps": 0.1, "momentum": 0.5}],
    ids=str,
)
def test_other_norms(options: dict[str, Any]) -> None:
    assert images_kept(block(nn.SiLU, **options), IMAGE) == 2


def test_other_inputs() -> None:
    assert images_kept(block(nn.SiLU), IMAGE.clone().requires_grad_()) == 2
    assert images_kept(block(nn.SiLU), IMAGE.to(memory_format=torch.channels_last)) == 2
    assert images_kept(block(nn.SiLU), IMAGE, dynamic=True) == 2
    assert images_kept(block(nn.SiLU).bfloat16(), IMAGE.bfloat16()) == 2
    assert images_kept(block(nn.SiLU), IMAGE + 100) == 2  # far from zero, beside its deviation
    rows = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ELU(), nn.Linear(32, 4))
    assert images_kept(rows, torch.randn(WIDTH // 32, 8)) == 2


def test_what_is_kept_where_that_is_all_there_is() -> None:
    frozen = block(nn.SiLU)
    frozen[1].requires_grad_(False)
    assert images_kept(frozen, IMAGE) == 2
    images_kept(block(nn.SiLU).eval(), IMAGE)
    assert images_kept(block(nn.Identity), IMAGE) == 2  # a convolution reads the result from memory
    assert images_kept(block(nn.SiLU, track_running_stats=False), IMAGE, run=checkpointed) == 0
