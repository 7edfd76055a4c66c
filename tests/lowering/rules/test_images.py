"""Windows and samples of images, as the reference runs them."""

from __future__ import annotations

import pytest
import torch
from image_programs import CUBIC, POLICY, PROGRAMS
from lowering.graphs import lowered, trained


def leaves(name: str) -> list[torch.Tensor]:
    return [a.requires_grad_(a.is_floating_point()) for a in PROGRAMS[name][1]()]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_images_are_loops(name: str, dynamic: bool) -> None:
    trained(PROGRAMS[name][0], *leaves(name), dynamic=dynamic, policy=POLICY, whole=None if dynamic else ())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_images_where_kernels_do_not_choose(name: str, dynamic: bool) -> None:
    trained(PROGRAMS[name][0], *leaves(name), dynamic=dynamic, whole=None)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CUBIC)
def test_cubics_at_places_of_a_grid(name: str, dynamic: bool) -> None:
    fn, make = CUBIC[name]
    lowered(fn, *make(), dynamic=dynamic, policy=POLICY)
