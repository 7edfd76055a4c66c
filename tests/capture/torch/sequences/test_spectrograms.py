"""``torch.stft`` and ``torch.istft`` as parts of graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import jitney

window = torch.hann_window(16)
Program = Callable[[torch.Tensor], torch.Tensor]

FORWARD: dict[str, Program] = {
    "plain": lambda x: torch.stft(x, 16, 4, window=window, return_complex=True),
    "a single signal": lambda x: torch.stft(x[0], 16, 5, window=window, return_complex=True),
    "without edges": lambda x: torch.stft(x, 16, window=window, center=False, return_complex=True),
    "zeros around": lambda x: torch.stft(x, 16, 4, window=window, pad_mode="constant", return_complex=True),
    "a short window": lambda x: torch.stft(x, 20, 7, 16, window, normalized=True, return_complex=True),
    "both sides": lambda x: torch.stft(x, 16, 4, window=window, onesided=False, return_complex=True),
    "a wide window": lambda x: torch.stft(x, 16, 4, window=window.double(), return_complex=True),
    "a method": lambda x: x.stft(16, 4, window=window, return_complex=True),
}
INVERSE: dict[str, Program] = {
    "plain": lambda z: torch.istft(z, 16, 4, window=window),
    "of a length": lambda z: torch.istft(z, 16, 4, window=window, length=90),
    "longer than its frames": lambda z: torch.istft(z, 16, 4, window=window, length=150),
    "one after the other": lambda z: torch.istft(z, 16, 16, window=torch.ones(16)),
    "a single signal": lambda z: torch.istft(z[0], 16, 5, window=window, normalized=True),
    "a short window": lambda z: torch.istft(z, 16, 3, 12, torch.hann_window(12)),
}


def assert_alike(program: Program, given: torch.Tensor, dynamic: bool) -> None:
    compiled = jitney.compile(program, backend="eager", dynamic=dynamic)
    with torch.no_grad():
        got, wanted = compiled(given), program(given)
    torch.testing.assert_close(got, wanted)
    assert got.stride() == wanted.stride()


@pytest.mark.filterwarnings("ignore:The length of signal")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FORWARD)
def test_stft_as_in_eager(name: str, dynamic: bool) -> None:
    assert_alike(FORWARD[name], torch.randn(3, 100), dynamic)


@pytest.mark.filterwarnings("ignore:The length of signal")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", INVERSE)
def test_istft_as_in_eager(name: str, dynamic: bool) -> None:
    spectrum = torch.stft(torch.randn(3, 100), 16, 4, window=torch.ones(16), return_complex=True)
    assert_alike(INVERSE[name], spectrum, dynamic)


def test_both_are_part_of_one_graph() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
        return torch.istft(spectrum * 2, 16, 4, window=window, length=x.shape[-1])

    x = torch.randn(3, 100, requires_grad=True)
    compiled = jitney.compile(program, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), program(x))
    (got,), (wanted,) = (torch.autograd.grad(f(x).square().sum(), x) for f in (compiled, program))
    torch.testing.assert_close(got, wanted)


def test_windows_that_add_up_to_nothing_are_eagers_error() -> None:
    def program(z: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.istft(z, 16, 4, window=window)

    z = torch.randn(2, 9, 8, dtype=torch.complex64)
    compiled = jitney.compile(program, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(z, torch.ones(16)), program(z, torch.ones(16)))
    with pytest.raises(RuntimeError, match="window overlap add min"):
        compiled(z, torch.zeros(16))


def test_what_torch_refuses_it_refuses() -> None:
    for call in (
        lambda x: torch.stft(x, 16, 4, window=torch.ones(8), return_complex=True),
        lambda x: torch.stft(x, 16, -1, window=window, return_complex=True),
        lambda x: torch.istft(x, 16, 4),
    ):
        with pytest.raises(RuntimeError):
            jitney.compile(call, backend="eager")(torch.randn(2, 50))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_transforms_of_sizes_that_change(dim: int, order: tuple[int, ...]) -> None:
    """Backends count on the strides that are promised; ``reshape`` is a view or a copy by them."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        frames = (x.unfold(1, 8, 4) * 2).permute(order)
        spectrum = torch.fft.rfft(frames, dim=dim)
        back = torch.fft.irfft(spectrum, 8, dim=dim)
        return spectrum, torch.fft.fft(frames * 1j, dim=dim), back, back.permute(1, 2, 0).reshape(-1)

    compiled = jitney.compile(program, backend="aot_eager", dynamic=True, fullgraph=True)
    for columns in (40, 52):
        x = torch.randn(3, columns)
        for got, wanted in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(got, wanted)
            assert got.stride() == wanted.stride()
