"""Kernels of the program's own in Triton: a launch is one operation of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKENDS = ["eager", "aot_eager", "llvm_cpu"]


@triton.jit
def add_kernel(x, y, out, n, scale, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, (tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)) * scale, mask=at < n)


@triton.jit
def double_kernel(x, n, KIND: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n).to(KIND) * 2, mask=at < n)


def t(*sizes: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(sizes).numel(), device=DEVICE).reshape(sizes)


def add(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, scale, BLOCK=16)
    return out


def agrees(fn: Callable[..., Any], *calls: tuple[Any, ...], backend: str = "eager") -> int:
    """Is it the same as eager, what is written to arguments included? How many graphs there are, without breaks."""
    compiled = compile_fn(fn, backend=backend)
    with observe() as seen:
        for args in calls:
            own = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
            torch.testing.assert_close(compiled(*own), fn(*args), rtol=1e-6, atol=1e-6)
            for one, other in zip(own, args, strict=True):
                torch.testing.assert_close(one, other)
    assert not seen.breaks and not seen.skips
    return len(seen.graphs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_graph_for_all_sizes(backend: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return add((x * 2).sin(), y.cos()).relu() + 1

    assert agrees(fn, *((t(n), t(n)) for n in (20, 33, 40, 7)), backend=backend) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_it_writes_is_written(backend: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        before = x + 1
        view = x[:8]
        double_kernel[(2,)](x, 20, tl.float32, BLOCK=16)
        made = torch.zeros(20, device=x.device)
        add_kernel[(triton.cdiv(20, 16), 1)](x, y, made, 20, scale=0.5, BLOCK=16)
        return before, view * 1, made, x.sum()

    assert agrees(fn, (t(20), t(20)), (t(20) + 1, t(20)), backend=backend) == 1


def test_what_is_known_of_constants_is_no_more() -> None:
    def fn(x: torch.Tensor) -> Any:
        ones = torch.ones(4, device=x.device)
        double_kernel[(1,)](ones, 4, tl.float32, BLOCK=4)
        return x * 2 if bool(ones.sum() > 5) else x * 3

    compiled = compile_fn(fn)
    torch.testing.assert_close(compiled(t(3)), t(3) * 2)


def test_a_grid_that_reads_tensors_and_defaults() -> None:
    def fn(x: torch.Tensor, block: int) -> torch.Tensor:
        out = torch.empty_like(x)
        add_kernel[lambda meta, size=block: (triton.cdiv(x.numel(), size),)](x, x, out, x.numel(), 1.0, BLOCK=block)
        return out

    assert agrees(fn, (t(20), 16), (t(20), 4), (t(24), 4)) <= 3


def test_another_kernel_in_its_place() -> None:
    kernels = {"run": add_kernel}

    def fn(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        kernels["run"][(1,)](x, x, out, 8, 1.0, BLOCK=8)
        return out * 1

    @triton.jit
    def sub_kernel(x, y, out, n, scale, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at) - 3 * tl.load(y + at))

    compiled = compile_fn(fn)
    torch.testing.assert_close(compiled(t(8)), t(8) * 2)
    kernels["run"] = sub_kernel
    torch.testing.assert_close(compiled(t(8)), t(8) * -2)


def test_what_a_launch_gives_is_used() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        handle = double_kernel[(1,)](y, 8, tl.float32, BLOCK=8)
        return y + 1, handle is None

    compiled = compile_fn(fn)
    got, wanted = compiled(t(8)), fn(t(8))
    torch.testing.assert_close(got[0], wanted[0])
    assert got[1] == wanted[1]


def test_a_grid_with_effects() -> None:
    asked: list[int] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2

        def grid(meta: Any) -> tuple[int]:
            asked.append(meta["BLOCK"])
            return (1,)

        double_kernel[grid](y, 8, tl.float32, BLOCK=8)
        return y + 1

    compiled = compile_fn(fn)
    torch.testing.assert_close(compiled(t(8)), t(8) * 4 + 1)
    assert asked == [8]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        out = torch.empty_like(x)
        n = x.numel()
        add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, x, out, n, scale, BLOCK=16)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        made = torch.empty_like(grad)
        add_kernel[(triton.cdiv(grad.numel(), 16),)](grad, grad, made, grad.numel(), ctx.scale, BLOCK=16)
        return made, None


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_autograd_function_launches(backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (Doubled.apply((x + 1).abs(), 0.5) * 3).square()

    compiled = compile_fn(fn, backend=backend)
    with observe() as seen:
        for n in (20, 33, 40):
            one, other = t(n).requires_grad_(), t(n).requires_grad_()
            got, wanted = compiled(one), fn(other)
            torch.testing.assert_close(got, wanted)
            got.sum().backward()
            wanted.sum().backward()
            torch.testing.assert_close(one.grad, other.grad)
    assert not seen.breaks
    assert len(seen.graphs) == 2
