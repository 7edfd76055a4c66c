"""Products of a vector and weights of few bits: integers are loaded once, and rows of bytes go together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import jitney
from jitney import events

Program = Callable[[Tensor, Tensor, Tensor], Tensor]


def integers(dtype: torch.dtype, *size: int) -> Tensor:
    return torch.randint(-(2**31), 2**31 - 1, size).to(dtype)


def nibbles(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """Two in a byte, with a scale for each 32."""
    low, high = (w & 15).to(torch.int8) - 8, (w >> 4).to(torch.int8) - 8
    whole = torch.stack((low, high), -1).view(len(w), -1, 32).to(x.dtype) * scale[:, None, None].to(x.dtype)
    return F.linear(x, whole.flatten(1))


def along_rows(bits: int) -> Program:
    def program(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        shifts = torch.arange(0, w.dtype.itemsize * 8, bits, dtype=w.dtype, device=w.device)
        return F.linear(x, ((w[..., None] >> shifts) & (2**bits - 1)).flatten(1).to(x.dtype)) * scale.to(x.dtype)

    return program


def along_columns(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """Eight in an integer, below each other (GPTQ)."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=w.device)
    whole = ((w[:, None] >> shifts[None, :, None]) & 15).flatten(0, 1).to(x.dtype) - 8
    return x @ whole * scale.to(x.dtype)


def whole_bytes(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype)) * scale.to(x.dtype)


U8, I8, I32 = torch.uint8, torch.int8, torch.int32
PROGRAMS: dict[str, tuple[Program, Callable[[], Tensor], int, int]] = {  # of how many numbers, for how many results
    "int4": (nibbles, lambda: integers(U8, 24, 512), 1024, 24),
    "2 bits": (along_rows(2), lambda: integers(U8, 24, 256), 1024, 24),
    "1 bit": (along_rows(1), lambda: integers(U8, 24, 128), 1024, 24),
    "4 bits of 32": (along_rows(4), lambda: integers(I32, 24, 128), 1024, 24),
    "2 bits of 32": (along_rows(2), lambda: integers(I32, 24, 64), 1024, 24),
    "GPTQ": (along_columns, lambda: integers(I32, 128, 40), 1024, 40),
    "int8": (whole_bytes, lambda: integers(I8, 300, 2048), 2048, 300),
    "int8, a row that is no multiple": (whole_bytes, lambda: integers(I8, 1100, 1536 + 17), 1536 + 17, 1100),
}


def compiled(program: Program, *inputs: Tensor) -> tuple[Tensor, str]:
    """The result, and the kernels' text."""
    seen: list[str] = []

    def look(event: events.Event) -> None:
        if isinstance(event, events.Scheduled):
            seen.extend(launch.text for launch in event.launches)

    with torch.no_grad(), events.listen(look), events.details():
        return jitney.compile(program, backend="triton_gpu", fullgraph=True)(*inputs), "\n".join(seen)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(name: str, rows: int, device: torch.device) -> None:
    program, weights, count, results = PROGRAMS[name]
    torch.manual_seed(0)
    w, scale = weights().to(device), (torch.rand(results) + 0.5).to(device)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(rows, count, device=device, dtype=dtype)
        found, _ = compiled(program, x, w, scale)
        expected, exact = program(x, w, scale), program(x.double(), w, scale)
        off, eagers = ((y.double() - exact).abs().max() for y in (found, expected))
        assert off <= 2 * eagers, dtype


@pytest.mark.parametrize(("name", "count"), [("int4", 512), ("2 bits", 256), ("4 bits of 32", 128)])
def test_each_integer_is_loaded_once(name: str, count: int, device: torch.device) -> None:
    program, weights, size, results = PROGRAMS[name]
    _, text = compiled(program, *(x.to(device) for x in (torch.randn(1, size), weights(), torch.rand(results))))
    loop = next(line for line in text.splitlines() if f"< {count}:" in line)
    assert f"for {loop.split()[1]} < {count}:" in loop and f"< {size}:" not in text
