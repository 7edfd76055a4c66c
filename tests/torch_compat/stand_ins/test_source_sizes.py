"""What would make the tensor that is written to larger is eager's error, not a result of another size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import jitney

WRITES: dict[str, tuple[torch.dtype, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "remainder": (torch.float32, lambda x, y: x.__imod__(y)),
    "or": (torch.bool, lambda x, y: x.__ior__(y)),
    "pow": (torch.float32, lambda x, y: x.pow_(y)),
    "floor_divide": (torch.float32, lambda x, y: x.floor_divide_(y)),
    "clamp_min": (torch.float32, lambda x, y: x.clamp_min_(y)),
    "atan2": (torch.float32, lambda x, y: x.atan2_(y)),
    "gt": (torch.float32, lambda x, y: x.gt_(y)),
    "gcd": (torch.int64, lambda x, y: x.gcd_(y)),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_that_have_no_room_raise_before_anything_is_written(name: str) -> None:
    dtype, write = WRITES[name]

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        fresh = write(x.clone(), y)
        y.zero_()
        return fresh

    compiled = jitney.compile(f, backend="llvm_cpu")
    for size in ((4,), (1, 3, 1), (2, 3, 4)):
        x, y = torch.ones(3, 1, dtype=dtype), torch.ones(size, dtype=dtype)
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            f(x, y)
        for _ in range(2):  # torch's stand-ins remember what operators gave
            with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
                compiled(x, y)
        assert y.all()
    x, y = torch.ones(3, 1, dtype=dtype), torch.ones(1, dtype=dtype)
    torch.testing.assert_close(compiled(x, y.clone()), f(x, y))
