"""Rows of a few elements are written out: no scratch memory, no tile of a row's own; the numbers stay eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from row_programs import STEPS, check_chain

import jitney
from jitney_triton_gpu.code import Function

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF, NAN = float("inf"), float("nan")


def toned(v: torch.Tensor) -> torch.Tensor:
    grey = 0.2 * v[..., 0] + 0.7 * v[..., 1] + 0.07 * v[..., 2]
    return (v - grey[..., None]).clamp(min=1e-6) ** 0.4


def marched(p: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        p = p + torch.tanh(p.norm(dim=-1, keepdim=True) - p.abs().amax(-1, keepdim=True)) * p.flip(-1)
    return p


def boxes(a: torch.Tensor) -> torch.Tensor:
    low, high = a[..., :2], a[..., 2:]
    size = (torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)).clamp(min=0)
    return size.prod(-1)


def planes(v: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        half = torch.nn.functional.normalize(v + v.roll(1, 0), dim=0)
        v = v + (half * v).sum(0, keepdim=True).clamp(min=0) * half.flip(0)
    return v.clamp(-2, 2)


@pytest.mark.parametrize("shape", [(3, 150), (2, 7, 11), (4, 5, 6)])
def test_one_kernel_for_planes(shape: tuple[int, ...], compiled_functions: list[Function]) -> None:
    x, y = torch.randn(shape, device=DEVICE), torch.randn(shape[1:], device=DEVICE)

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return planes(x * (1 + y)) - y

    torch.testing.assert_close(jitney.compile(fn, backend="triton_gpu", dynamic=False)(x, y), fn(x, y))
    assert len(compiled_functions) == 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("fn", "columns"), [(toned, 3), (marched, 3), (boxes, 4)])
def test_one_kernel_without_rows(
    fn: Callable[[torch.Tensor], torch.Tensor], columns: int, dynamic: bool, compiled_functions: list[Function]
) -> None:
    x = torch.randn(150, columns, device=DEVICE)
    if dynamic:
        jitney.maybe_mark_dynamic(x, 0)
    compiled = jitney.compile(fn, backend="triton_gpu", dynamic=False)
    torch.testing.assert_close(compiled(x), fn(x), rtol=1e-4, atol=1e-5)
    text = compiled_functions[0].text
    assert len(compiled_functions) == 1
    assert "RBLOCK" not in text and "barrier" not in text


def test_a_few_numbers_do_not_make_few_rows_of_all(compiled_functions: list[Function]) -> None:
    """One for each image: a program for each image would have all of its elements to itself."""

    def fn(x: torch.Tensor, exposure: torch.Tensor) -> torch.Tensor:
        return toned(x * exposure.exp2()[:, None, None])

    x, exposure = torch.randn(2, 12000, 3, device=DEVICE), torch.randn(2, device=DEVICE)
    compiled = jitney.compile(fn, backend="triton_gpu", dynamic=False)
    torch.testing.assert_close(compiled(x, exposure), fn(x, exposure), rtol=1e-4, atol=1e-5)
    assert compiled_functions and not any("RBLOCK" in f.text or "R1BLOCK" in f.text for f in compiled_functions)


REDUCED: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(-1),
    "prod": lambda x: x.prod(-1),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(-1, keepdim=True),
    "max": lambda x: x.max(-1),
    "min": lambda x: x.min(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "any": lambda x: (x > 0).any(-1),
    "all": lambda x: (x > 0).all(-1),
    "count": lambda x: x.count_nonzero(-1),
    "first": lambda x: x.sum(0),
    "two": lambda x: x[:, :2, None].expand(-1, -1, 3).amax((1, 2)),
}
OF_FLOATS: dict[str, Callable[[torch.Tensor], Any]] = {
    "mean": lambda x: x.mean(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, 2, -1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1),
    "variance": lambda x: x.var(-1),
    "cross": lambda x: torch.linalg.cross(x[:, :3], x[:, 1:4]),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [4, 8])
def test_reductions_of_few(dtype: torch.dtype, length: int) -> None:
    """NaN, ties, zeros of both signs, integers that wrap around."""
    rows = REDUCED | (OF_FLOATS if dtype.is_floating_point else {})
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-2, 3, (8, length), generator=generator)
    if dtype.is_floating_point:
        x = x + 0.25 * torch.randn(8, length, generator=generator)
        x[0, 1:3], x[1], x[2, -1], x[3] = NAN, -0.0, INF, 1.5
    else:
        x[0], x[1, 1] = torch.iinfo(dtype).max, torch.iinfo(dtype).min
    x = x.to(dtype).to(DEVICE)

    def every(x: torch.Tensor) -> list[Any]:
        return [fn(x) for fn in rows.values()]

    found = torch.utils._pytree.tree_leaves(jitney.compile(every, backend="triton_gpu", fullgraph=True)(x))
    wanted = torch.utils._pytree.tree_leaves(every(x))
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
    assert not found[0][1].signbit().any() if dtype.is_floating_point else True


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=4),
    st.sampled_from([(130,), (67,), (2, 70)]),
    st.integers(2, 9),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.booleans(),
    st.booleans(),
)
def test_any_chain_gives_what_eager_gives(
    names: list[str], rows: tuple[int, ...], length: int, dtype: torch.dtype, gradient: bool, dynamic: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(*rows, length, device=DEVICE).to(dtype)
    check_chain(names, x, "triton_gpu", gradient=gradient and dtype is not torch.bfloat16, dynamic=dynamic)
