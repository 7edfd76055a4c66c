"""What eager refuses is refused by compiled code in the same words; and zeros have eager's signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney

INTEGERS = (torch.int64, torch.uint8, torch.bool)
REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[torch.dtype, ...]]] = {
    "a truth value is subtracted": (lambda x: x - True, (torch.float32, torch.bfloat16, *INTEGERS)),
    "from a truth value": (lambda x: True - x, (torch.float32, *INTEGERS)),
    "a tensor of truth values is subtracted": (lambda x: x * 2 - (x > 0), (torch.float32, torch.int64)),
    "a truth value as a factor": (lambda x: torch.sub(x, x, alpha=True), (torch.float32, *INTEGERS)),
    "a truth value as a factor of a sum": (lambda x: torch.add(x, x, alpha=True), (torch.float32, torch.int64)),
    "relu": (torch.relu, (torch.bool,)),
    "abs": (torch.abs, (torch.bool,)),
    "rounding": (lambda x: (x.floor(), x.round()), (torch.bool,)),
    "elu": (F.elu, INTEGERS),
    "hardswish": (F.hardswish, INTEGERS),
    "bits of floats": (lambda x: x.clone().bitwise_not_(), (torch.float32, torch.bfloat16)),
    "bits of floats and truth values": (lambda x: x.clone().bitwise_and_(x > 0), (torch.float64,)),
    "between integers": (lambda x: x.clone().lerp_(x, 0.5), INTEGERS[1:]),
    "products of truth values": (lambda x: x.clone().addcmul_(x, x), (torch.bool,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name: str) -> None:
    fn, dtypes = REFUSED[name]
    for dtype in dtypes:
        x = torch.tensor([0.0, 1.0, 2.0, 3.0]).to(dtype)
        with pytest.raises((RuntimeError, NotImplementedError)) as eager:
            fn(x)
        with pytest.raises(type(eager.value)) as compiled:
            jitney.compile(fn, backend="llvm_cpu")(x)
        assert str(compiled.value) == str(eager.value), dtype


def test_what_is_like_it_is_computed() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + True, x + y, torch.add(y, y, alpha=True), x - 1, (x > 0) * 2 - 1, x.int().relu()

    x, y = torch.tensor([0.5, -2.0, 3.0]), torch.tensor([True, False, True])
    torch.testing.assert_close(jitney.compile(fn, backend="llvm_cpu")(x, y), fn(x, y))


SIGNS: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "not below": lambda x: (x.clamp_min(0), x.clamp_min(-0.0)),
    "not above": lambda x: (x.clamp_max(0), x.clamp_max(-0.0)),
    "between": lambda x: (x.clamp(0, 1), x.clamp(-1, 0), x.clamp(-0.0, 0.0)),
    "the greatest of a window": lambda x: F.max_pool2d(x.view(1, 1, -1, 2), 2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SIGNS)
def test_zeros_keep_their_sign(name: str, dtype: torch.dtype) -> None:
    nan = float("nan")
    x = torch.tensor([-0.0, 0.0, 0.0, -0.0, -0.0, -0.0, 1.0, -1.0, nan, 2.5, -0.0, -3.0] * 3, dtype=dtype)
    wanted, found = SIGNS[name](x), jitney.compile(SIGNS[name], backend="llvm_cpu")(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (wanted, found)), strict=True):
        assert torch.equal(one.signbit() & ~one.isnan(), other.signbit() & ~other.isnan())
