"""Distances between rows, and what else is put together of few vectors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import lowered, trained


def pairs(rows: int = 30, length: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = torch.randn(2, 40, length), torch.randn(2, rows, length)
    return a.requires_grad_(), b.requires_grad_()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist_if_necessary", "donot_use_mm_for_euclid_dist"])
@pytest.mark.parametrize("rows", [6, 30])
def test_distances_of_short_rows_are_loops(rows: int, mode: str, dynamic: bool) -> None:
    lowered(lambda a, b: torch.cdist(a * 2, b, compute_mode=mode).exp(), *pairs(rows), whole=None, dynamic=dynamic)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_gradients_of_distances(p: float) -> None:
    a, b = pairs(6)
    whole = () if p in (1.0, 2.0) else None
    trained(lambda a, b: torch.cdist(a, b, p, "donot_use_mm_for_euclid_dist") * 2, a, b, whole=whole)


def test_gradients_of_equal_rows_are_zero() -> None:
    a = torch.randn(4, 3).requires_grad_()
    trained(lambda a: torch.cdist(a, a.detach(), compute_mode="donot_use_mm_for_euclid_dist"), a)


def test_many_short_rows_are_loops_too() -> None:
    a, b = (t.detach() for t in pairs(30))
    lowered(lambda a, b: torch.cdist(a, b) * 2, a, b, whole=[])


def test_of_many_long_rows_there_is_a_product_and_loops() -> None:
    a, b = (t.detach() for t in pairs(30, 64))
    lowered(lambda a, b: torch.cdist(a, b).exp(), a, b, whole=["bmm.default"])
    trained(lambda a, b: torch.cdist(a, b).exp(), a.requires_grad_(), b.requires_grad_(), whole=None)


def test_long_rows_are_left_to_products() -> None:
    a, b = (t.detach() for t in pairs(6, 64))
    lowered(lambda a, b: torch.cdist(a, b, 1.0), a, b, whole=["_cdist_forward.default"])


TAKEN: dict[str, Callable[..., torch.Tensor]] = {
    "pairwise_distance": lambda a, b: F.pairwise_distance(a, b, eps=1e-3),
    "triplet": lambda a, b: F.triplet_margin_loss(a, b, b.flip(0)) * a.sum(),
    "cross": lambda a, b: torch.linalg.cross(a, b) * 2,
    "cross, broadcast": lambda a, b: torch.linalg.cross(a[:1], b) * 2,
    "channel_shuffle": lambda a, b: F.channel_shuffle((a * b).unsqueeze(-1), 4),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", TAKEN)
def test_they_are_taken_apart(name: str, dynamic: bool) -> None:
    trained(TAKEN[name], *pairs(40), dynamic=dynamic, whole=None if dynamic else ())
