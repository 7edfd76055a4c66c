"""Windows and samples of images beside eager, for every backend that makes kernels.

A folder of tests that imports them (``from backend_images import *``) has the fixtures that they take: ``backend``, a
name, and ``device``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from backend_programs import Check, On, check, on  # noqa: F401 (fixtures)
from image_programs import CUBIC, NOWHERE, PROGRAMS, normal
from lowering.graphs import assert_same

import jitney
from jitney_testing.opinfo.referee import wide


@pytest.mark.parametrize(
    ("dtype", "dynamic"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False)], ids=str
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_images_and_their_gradients_are_eagers(
    backend: str,
    on: On,  # noqa: F811
    name: str,
    dynamic: bool,
    dtype: torch.dtype,
) -> None:
    fn, make = PROGRAMS[name]
    args = [a.to(dtype) if a.is_floating_point() else a for a in on(make())]
    compiled = jitney.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic)
    want, got = results(fn, args), results(compiled, args)
    assert got[0].stride() == want[0].stride()
    assert_same(got, want, strides=False, truth=functools.cache(lambda: results(fn, wide(args))))


@pytest.mark.parametrize("name", CUBIC)
def test_cubics_are_eagers(check: Check, name: str) -> None:  # noqa: F811
    fn, make = CUBIC[name]
    check(fn, *make(), fullgraph=True)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_outside_and_what_is_no_number(check: Check, mode: str, padding: str) -> None:  # noqa: F811
    places = torch.tensor([p for p in NOWHERE if padding != "reflection" or abs(p[0]) != 1e30]).view(1, -1, 1, 2)

    def fn(x: torch.Tensor, at: torch.Tensor) -> list[torch.Tensor]:
        return [F.grid_sample(x * 2, at, mode, padding, aligned) + 1 for aligned in (False, True)]

    check(fn, normal(1, 2, 4, 5), places)


def results(run: Callable[..., torch.Tensor], args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The result, and the gradients of what can have any."""
    leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in args]
    y = run(*leaves)
    tangent = torch.linspace(-1, 2, y.numel(), device=y.device).reshape(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [a for a in leaves if a.requires_grad], tangent)]


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_places_that_are_no_numbers(mode: str, padding: str, backend: str, on: On) -> None:  # noqa: F811
    def program(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid, mode, padding, align_corners=True) * 2

    compiled = jitney.compile(program, backend=backend)
    torch.manual_seed(0)
    volume = torch.randn(1, 1, 2, 2, 2)
    for x in (volume, volume[:, :, 0]):
        for value in (math.nan, math.inf, -math.inf, 1e9, 3e9, -3e9, 1e20):
            places = torch.tensor([[value, 0.1, 0.2], [0.1, value, 0.3]])[:, : x.dim() - 2]
            args = on((x, places.reshape(1, 2, *[1] * (x.dim() - 3), x.dim() - 2)))
            torch.testing.assert_close(compiled(*args), program(*args), equal_nan=True)
