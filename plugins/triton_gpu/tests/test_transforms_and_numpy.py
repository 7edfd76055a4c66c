"""Function transforms, and programs of NumPy, beside eager: a few of those of tests/capture, small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import vmap
from transform_cases import FUNCTIONS, TRANSFORMS

import jitney

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning"),  # torch's own forward-mode formulas
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),  # of linearize's
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # of vmap's, where it has no rule
]


@pytest.mark.parametrize("name", ["indexing", "roll and cat", "layer norm"])
def test_every_transform_gives_the_same(name: str, device: torch.device) -> None:
    made = [transform(FUNCTIONS[name]) for transform in TRANSFORMS.values()]

    def everything(x: torch.Tensor) -> list[Any]:
        return [transformed(x) for transformed in made]

    with torch.device(device):
        x = torch.tensor([0.3, -0.7, 1.1, 0.4])
        wanted = everything(x)
        found = jitney.compile(everything, backend="triton_gpu", fullgraph=True)(x)
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_gradients_of_samples(device: torch.device) -> None:
    """Of each sample by itself, as differential privacy wants them."""

    def gradients(weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def loss(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return ((w * x).sum().tanh() - y).square()

        return vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weight, x, y)

    given = [
        torch.linspace(-1, 1, n, device=device).reshape(shape) for n, shape in ((3, (3,)), (15, (5, 3)), (5, (5,)))
    ]
    found = jitney.compile(gradients, backend="triton_gpu", fullgraph=True)(*given)
    torch.testing.assert_close(found, gradients(*given), rtol=1e-5, atol=1e-6)


NUMPY: dict[str, Callable[[Any], Any]] = {
    "element by element": lambda x: np.where(x > 0, np.sqrt(np.abs(x)), -x) * np.arange(4.0) + np.float32(0.5),
    "softmax": lambda x: (
        np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
    ),
    "statistics": lambda x: (x.mean(0), x.std(1), x.argmax(1), np.cumsum(x, 1), (x > 0).sum()),
    "pieces": lambda x: np.concatenate([x[1:], x[:1] * 2]).T.reshape(2, 6)[:, ::2],
    "integers": lambda x: (x * 10).astype(np.int64) // 3 % 5,
}


@pytest.mark.parametrize("name", NUMPY)
def test_programs_of_numpy(name: str, device: torch.device) -> None:
    """The default device says where arrays are computed."""
    program, x = NUMPY[name], np.linspace(-2, 2.5, 12, dtype=np.float32).reshape(3, 4)
    wanted = program(x)
    with torch.device(device):
        found = jitney.compile(program, backend="triton_gpu")(x)
    for ours, theirs in zip(*[r if isinstance(r, tuple) else (r,) for r in (found, wanted)], strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_wrapped_numpy_trains(device: torch.device) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        wrapped: torch.Tensor = jitney.wrap_numpy(lambda a: np.sin(a) * a.sum() + np.zeros(6, np.float32))(x)
        return wrapped

    x = torch.linspace(-1, 1.5, 6, requires_grad=True, device=device)
    result = jitney.compile(program, backend="triton_gpu", fullgraph=True)(x)
    assert result.device == device
    (found,) = torch.autograd.grad(result.sum(), x)
    (wanted,) = torch.autograd.grad((x.sin() * x.sum()).sum(), x)
    torch.testing.assert_close(found, wanted)


def test_arrays_are_written_to_where_they_are(device: torch.device) -> None:
    def program(x: np.ndarray, y: np.ndarray) -> Any:
        x[1:] += np.cos(y[1:])
        return x.sum(), np.exp(y)

    x, y = np.linspace(-1, 1, 8), np.linspace(0, 1, 8)
    mine = x.copy()
    with torch.device(device):
        found = jitney.compile(program, backend="triton_gpu")(mine, y)
    wanted = program(x, y)
    np.testing.assert_allclose(mine, x, rtol=1e-12)
    for ours, theirs in zip(found, wanted, strict=True):
        assert type(ours) is type(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
