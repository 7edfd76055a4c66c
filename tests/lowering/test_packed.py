"""Sums over numbers of which several are in one integer go integer by integer, and the numbers are in no memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.graphs import lowered
from torch import Tensor
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_lowering.ir.values import holds

Program = Callable[[Tensor, Tensor, Tensor], Tensor]


def put_together(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    low, high = (w & 15).to(torch.int8) - 8, (w >> 4).to(torch.int8) - 8
    whole = torch.stack((low, high), -1).view(len(w), -1, 32).to(x.dtype) * scale[:, None, None].to(x.dtype)
    return F.linear(x, whole.flatten(1))


def shifted(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    shifts = torch.arange(0, 8, 2, dtype=w.dtype)
    return F.linear(x, ((w[..., None] >> shifts) & 3).flatten(1).to(x.dtype)) * scale.to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("program", "count"), [(put_together, 2), (shifted, 4)], ids=["stack", "shifts"])
def test_integers_are_loaded_once(program: Program, count: int, dtype: torch.dtype) -> None:
    w, scale = torch.randint(0, 256, (50, 128), dtype=torch.uint8), torch.rand(50) + 0.5
    x = torch.randn(1, 128 * count).to(dtype)
    seen: list[str] = []

    def look(event: events.Event) -> None:
        if isinstance(event, events.Scheduled):
            seen.extend(launch.text for launch in event.launches)

    with events.listen(look), events.details():
        lowered(program, x, w, scale, whole=[])
        found = jitney.compile(program, backend="llvm_cpu")(x, w, scale)
    text = "\n".join(seen)
    assert text and "//" not in text and "%" not in text and "where" not in text
    exact = program(x.double(), w, scale)
    assert (found - exact).abs().max() <= 2 * (program(x, w, scale) - exact).abs().max()


@pytest.mark.parametrize("kind", ["amax", "prod", "any"])
def test_other_reductions(kind: str) -> None:
    def program(w: Tensor) -> Tensor:
        shifts = torch.arange(0, 8, 4, dtype=w.dtype)
        whole = ((w[..., None] >> shifts) & 15).flatten(1)
        return whole.amax(-1) if kind == "amax" else getattr(whole.float() / 8, kind)(-1)

    lowered(program, torch.randint(0, 256, (7, 9), dtype=torch.uint8), whole=[], exact=kind != "prod")


def test_what_reads_them_one_by_one(dtype: torch.dtype = torch.int8) -> None:
    lowered(
        lambda w: torch.stack((w & 15, w >> 4), -1).to(dtype) - 8, torch.randint(0, 256, (5, 33)).byte(), exact=True
    )


def test_bytes_pass_through_halves_as_they_are() -> None:
    for half in (torch.bfloat16, torch.float16):
        for small in (torch.uint8, torch.int8):
            every = torch.arange(256).to(small)
            assert holds(half, small) and torch.equal(every.to(half).float(), every.float())
    seen: list[str] = []

    def look(event: events.Event) -> None:
        if isinstance(event, events.Scheduled):
            seen.extend(launch.text for launch in event.launches)

    def program(x: Tensor, w: Tensor) -> Tensor:
        return F.linear(x, w.to(x.dtype))

    with events.listen(look), events.details():
        x, w = torch.randn(1, 64).bfloat16(), torch.arange(-128, 128).char().view(4, 64).repeat(40, 1)
        found = jitney.compile(program, backend="llvm_cpu")(x, w)
    (total,) = (line for line in "".join(seen).splitlines() if "sum(" in line)
    assert "to_float32(to_bfloat16(" not in total
    torch.testing.assert_close(found, program(x, w), rtol=2e-2, atol=1.0)
