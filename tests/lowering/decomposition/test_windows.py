"""Windows of signals are part of what reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney
from jitney import events

WINDOWS: dict[str, Callable[..., torch.Tensor]] = {
    "hann": torch.hann_window,
    "hamming": torch.hamming_window,
    "hamming of two": lambda n, **options: torch.hamming_window(n, alpha=0.6, beta=0.3, **options),
    "blackman": torch.blackman_window,
    "bartlett": torch.bartlett_window,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("periodic", [True, False], ids=["periodic", "symmetric"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_computed_where_they_are_read(name: str, periodic: bool, dtype: torch.dtype) -> None:
    whole: list[Any] = []
    for n in (1, 2, 7, 64):
        x = torch.randn(3, n, dtype=dtype)

        def f(x: torch.Tensor, n: int = n) -> tuple[torch.Tensor, torch.Tensor]:
            window = WINDOWS[name](n, periodic=periodic, dtype=dtype)
            return window, x * window

        compiled = jitney.compile(f, backend="llvm_cpu", fullgraph=True)
        with events.listen(lambda e: whole.extend(e.whole) if isinstance(e, events.Lowered) else None):
            got = compiled(x)
        torch.testing.assert_close(got, f(x), rtol=1e-6, atol=1e-6)
    assert not whole


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_halves_are_rounded_as_by_eager(name: str, dtype: torch.dtype) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * WINDOWS[name](100, periodic=True, dtype=dtype)

    x = torch.ones(100, dtype=dtype)
    torch.testing.assert_close(jitney.compile(f, backend="llvm_cpu", fullgraph=True)(x), f(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_integers_are_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match="floating point"):
        jitney.compile(lambda x: x * WINDOWS[name](4, periodic=True, dtype=torch.int32), backend="llvm_cpu")(
            torch.ones(4)
        )
