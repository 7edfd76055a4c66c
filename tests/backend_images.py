"""Windows and samples of images beside eager, for every backend that makes kernels.

A folder of tests that imports them (``from backend_images import *``) has the fixtures that they take: ``backend``, a
name, and ``device``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pytest
import torch
from backend_programs import On, on  # noqa: F401 (a fixture)
from image_programs import PROGRAMS
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


def results(run: Callable[..., torch.Tensor], args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The result, and the gradients of what can have any."""
    leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in args]
    y = run(*leaves)
    tangent = torch.linspace(-1, 2, y.numel(), device=y.device).reshape(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [a for a in leaves if a.requires_grad], tangent)]
