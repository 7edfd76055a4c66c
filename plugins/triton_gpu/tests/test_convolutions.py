"""Convolutions of single channels beside eager: filters of images, depthwise layers, with what is around them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_lowering.decomposition import convolutions

# Sizes of the input and of the weight, and the arguments of the convolution.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one channel": ((2, 1, 9, 11), (1, 1, 3, 3), {"padding": 1}),
    "several filters": ((2, 1, 9, 11), (3, 1, 5, 3), {"padding": (2, 1)}),
    "depthwise": ((2, 4, 8, 7), (4, 1, 3, 3), {"padding": 1, "groups": 4}),
    "two for each": ((2, 3, 9, 11), (6, 1, 3, 5), {"padding": (1, 2), "stride": 2, "groups": 3}),
    "with holes": ((1, 3, 12, 9), (3, 1, 3, 3), {"padding": 2, "dilation": (2, 1), "groups": 3}),
    "wide": ((1, 2, 12, 9), (2, 1, 9, 9), {"padding": 4, "groups": 2}),
    "rows": ((2, 4, 10), (4, 1, 4), {"padding": 3, "groups": 4}),
    "rows with holes": ((2, 4, 12), (4, 1, 3), {"padding": 4, "dilation": 2, "groups": 4}),
    "rows, few": ((2, 4, 13), (4, 1, 3), {"padding": 1, "stride": 2, "groups": 4}),
    "long windows": ((1, 2, 40), (2, 1, 25), {"padding": 12, "groups": 2}),
    "an edge beyond": ((1, 2, 5), (2, 1, 3), {"padding": 4, "groups": 2}),
}


def made(name: str, dtype: torch.dtype, device: torch.device) -> tuple[Any, list[torch.Tensor]]:
    size, window, numbers = CASES[name]
    fn = F.conv1d if len(size) == 3 else F.conv2d
    generator = torch.Generator().manual_seed(0)
    shapes = (size, window, window[:1])
    given = [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]
    return lambda x, w, b: F.silu(fn(x, w, b, **numbers)), given


def compiled(f: Any) -> Any:
    return jitney.compile(f, backend="triton_gpu", dynamic=False, options={"layout_optimization": False})


def whole_of(seen: list[Any]) -> list[str]:
    return [str(name) for event in seen for name in event.whole]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_windows_of_single_channels(name: str, dynamic: bool, dtype: torch.dtype, device: torch.device) -> None:
    f, given = made(name, dtype, device)
    run, seen = compiled(f), []
    if dynamic:
        jitney.maybe_mark_dynamic(given[0], 2)
    with events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None):
        found = run(*given)
    exact, eager = f(*[t.double() for t in given]), f(*given)
    assert (found.double() - exact).abs().max() <= 2 * (eager.double() - exact).abs().max() + 1e-6
    assert found.stride() == eager.stride()
    assert not whole_of(seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_their_gradients(name: str, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "DEVICE", device.type)
    f, given = made(name, dtype, device)
    run = compiled(f)
    sides = []
    for call, kind in ((run, dtype), (f, dtype), (f, torch.float64)):
        own = [t.to(kind).requires_grad_() for t in given]
        y = call(*own)
        sides.append(
            torch.autograd.grad(y, own, torch.linspace(-1, 2, y.numel(), device=device).view(y.shape).to(kind))
        )
    for ours, eagers, exact in zip(*sides, strict=True):
        limit = 2 * (eagers.double() - exact).norm() + 1e-5 * exact.norm()
        assert (ours.double() - exact).norm() <= limit
        assert ours.stride() == eagers.stride()


def test_what_is_no_number(device: torch.device) -> None:
    f, (x, w, b) = made("depthwise", torch.float32, device)
    x[0, 2, 3, 3], x[1, 0, 0, 0] = float("nan"), float("inf")
    torch.testing.assert_close(jitney.compile(f, backend="triton_gpu")(x, w, b), f(x, w, b), equal_nan=True)


def test_the_channels_last_are_the_librarys(device: torch.device) -> None:
    f, (x, w, b) = made("depthwise", torch.float32, device)
    seen: list[Any] = []
    with events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None):
        x = x.to(memory_format=torch.channels_last)
        found = jitney.compile(f, backend="triton_gpu")(x, w, b)
    torch.testing.assert_close(found, f(x, w, b))
    assert any("convolution" in name for name in whole_of(seen))


def test_a_dot_product_is_a_sum(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from jitney_lowering.decomposition import products

    monkeypatch.setattr(products, "DEVICE", device.type)
    seen: list[Any] = []
    a, b = torch.randn(2, 100, device=device)
    with events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None):
        found = jitney.compile(lambda a, b: torch.dot(a, b).sqrt().relu(), backend="triton_gpu")(a.abs(), b.abs())
    torch.testing.assert_close(found, torch.dot(a.abs(), b.abs()).sqrt())
    assert not whole_of(seen)


@pytest.mark.parametrize(("results", "whole"), [(4, False), (64, True)])
def test_a_channel_with_many_results_is_the_librarys(results: int, whole: bool, device: torch.device) -> None:
    x, weight = torch.randn(2, 1, 12, 12, device=device), torch.randn(results, 1, 3, 3, device=device)
    seen: list[Any] = []
    with events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None), torch.no_grad():
        got = jitney.compile(F.conv2d, backend="triton_gpu")(x, weight)
    torch.testing.assert_close(got, F.conv2d(x, weight))
    assert any("convolution" in name for name in whole_of(seen)) is whole
