"""Windows and samples of images, as the reference runs them."""

from __future__ import annotations

import pytest
import torch
from image_programs import POLICY, PROGRAMS
from lowering.graphs import trained


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
