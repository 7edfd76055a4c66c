"""Decoding: one token at a time through a language model whose weights are what takes time to read.

Caches are written in place at the position. Each front end replays a CUDA graph where it can
(``mode="reduce-overhead"``). A time is that of several calls in a row, as a loop has them that does not look at each
token; ``--calls 1`` waits for each. Bandwidth is that of the weights alone, beside what torch's copy moves; with
``--profile`` each kernel's part.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch
from front_ends import FrontEnd, Jitney, Torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

KINDS = ("float32", "bfloat16", "int8", "int4")
GROUP = 128  # int4 weights that have a scale in common
FRONT_ENDS = ("eager", "jitney", "torch.compile")  # eager is the first: the others are compared with it


@dataclass(frozen=True)
class Shape:
    """A model's sizes; the context is what caches have room for."""

    layers: int = 16
    width: int = 2048
    heads: int = 16
    key_heads: int = 16
    hidden: int = 5632
    words: int = 32000
    context: int = 1024


class Int8Linear(nn.Module):
    """Weights of 8 bits with a scale for each output."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (outer, inner), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(outer) / (127 * inner**0.5))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale.to(x.dtype)


class Int4Linear(nn.Module):
    """Two weights of 4 bits in a byte, with a scale for each group of them."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(0, 256, (outer, inner // 2), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(outer, inner // GROUP, 1) / (7 * inner**0.5))

    def forward(self, x: Tensor) -> Tensor:
        low, high = (self.weight & 15).to(torch.int8) - 8, (self.weight >> 4).to(torch.int8) - 8
        weight = torch.stack((low, high), dim=-1).view(len(low), -1, GROUP).to(x.dtype) * self.scale.to(x.dtype)
        return F.linear(x, weight.flatten(1))


def linear(kind: str, inner: int, outer: int) -> nn.Module:
    """A layer without bias whose weights are of that kind."""
    if kind == "int8":
        return Int8Linear(inner, outer)
    return Int4Linear(inner, outer) if kind == "int4" else nn.Linear(inner, outer, bias=False)


class Layer(nn.Module):
    """Attention over a cache, and a gated MLP, as LLaMA has them."""

    def __init__(self, shape: Shape, batch: int, kind: str) -> None:
        super().__init__()
        self.shape = shape
        self.each = each = shape.width // shape.heads
        self.before_attention, self.before_mlp = nn.RMSNorm(shape.width, 1e-6), nn.RMSNorm(shape.width, 1e-6)
        self.query = linear(kind, shape.width, shape.width)
        self.key, self.value = (linear(kind, shape.width, shape.key_heads * each) for _ in range(2))
        self.out = linear(kind, shape.width, shape.width)
        self.gate, self.up = (linear(kind, shape.width, shape.hidden) for _ in range(2))
        self.down = linear(kind, shape.hidden, shape.width)
        room = (batch, shape.key_heads, shape.context, each)
        self.register_buffer("keys", torch.randn(room))
        self.register_buffer("values", torch.randn(room))

    def forward(self, x: Tensor, position: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        normed = self.before_attention(x)
        query, key, value = (
            layer(normed).unflatten(-1, (-1, self.each)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        self.keys.index_copy_(2, position, rotated(key, *turn))
        self.values.index_copy_(2, position, value)
        grouped = self.shape.heads != self.shape.key_heads
        mixed = F.scaled_dot_product_attention(rotated(query, *turn), self.keys, self.values, mask, enable_gqa=grouped)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        normed = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Decoder(nn.Module):
    """Tokens (batch, 1) and their position (1,) to the next tokens' scores (batch, words)."""

    def __init__(self, shape: Shape, batch: int, kind: str) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.words, shape.width)
        self.layers = nn.ModuleList(Layer(shape, batch, kind) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, 1e-6)
        self.head = linear(kind, shape.width, shape.words)
        half = shape.width // shape.heads // 2
        angles = torch.arange(shape.context)[:, None] / 10_000.0 ** (torch.arange(half) / half)
        self.register_buffer("cosine", angles.cos().repeat(1, 2))
        self.register_buffer("sine", angles.sin().repeat(1, 2))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        x = self.embedding(tokens)
        mask = torch.arange(self.shape.context, device=tokens.device)[None] <= position
        turn = self.cosine[position], self.sine[position]
        for layer in self.layers:
            x = layer(x, position, mask, turn)
        return self.head(self.norm(x))[:, -1]


def read(model: Decoder) -> int:
    """Bytes of weights that a token needs."""
    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, Int8Linear, Int4Linear))]
    return sum(t.numel() * t.element_size() for m in layers for t in (*m.parameters(), *m.buffers()))


def made(shape: Shape, batch: int, kind: str, device: str) -> Decoder:
    torch.manual_seed(0)
    with torch.device(device):
        model = Decoder(shape, batch, kind).eval().requires_grad_(False)
    return model.to(torch.float32 if kind == "float32" else torch.bfloat16)


def front_ends(mode: str) -> dict[str, FrontEnd]:
    """By name; both compilers in this mode."""
    return {
        "eager": FrontEnd("eager"),
        "jitney": Jitney("jitney", "auto", mode),
        "torch.compile": Torch("torch.compile", "inductor", mode),
    }


def milliseconds(run: Callable[[], object], device: str, calls: int = 1) -> float:
    """One of several calls, for whose end the host waits."""
    begin = perf_counter()
    for _ in range(calls):
        run()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (perf_counter() - begin) / calls


def copy_bandwidth(device: str) -> float:
    """Bytes per second that torch's copy reads and writes."""
    source = torch.randn(1 << (28 if device == "cuda" else 26), device=device)
    target = torch.empty_like(source)
    times = [milliseconds(lambda: target.copy_(source), device) for _ in range(8)]
    return 2e3 * source.nbytes / median(times)


def profile(run: Callable[[], object]) -> Iterator[str]:
    """Microseconds, count and name of the kernels that take most of the device's time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    for event in sorted(found.key_averages(), key=lambda e: -e.device_time_total)[:14]:
        yield f"{event.device_time_total:9.1f} us {event.count:4d}  {event.key[:110]}"


def case(options: argparse.Namespace, kind: str, batch: int, console: Console) -> dict[str, Any]:
    """Times of all front ends, in turns; the largest difference from eager's scores as a part of the largest."""
    shape = Shape(**{k: v for k, v in vars(options).items() if k in Shape.__dataclass_fields__ and v})
    tokens = torch.randint(shape.words, (batch, 1), device=options.device)
    position = torch.tensor([shape.context // 2], device=options.device)
    steps: dict[str, Callable[[], Tensor]] = {}
    differences: dict[str, float] = {}
    expected = torch.empty(0)
    model = made(shape, batch, kind, options.device)
    mode = options.mode or ("reduce-overhead" if options.device == "cuda" else "default")
    for tool in options.frontends.split(","):
        run = front_ends(mode)[tool].compile(model)

        def step(run: Callable[..., Tensor] = run) -> Tensor:
            with torch.no_grad():
                return run(tokens, position)

        try:
            for _ in range(3):
                found = step().clone()
        except Exception as error:
            console.print(f"{tool}: {type(error).__name__}: {str(error)[:300]}", highlight=False)
            continue
        if tool == "eager":
            expected = found
        differences[tool] = float((found - expected).abs().max() / expected.abs().max())
        steps[tool] = step
    times: dict[str, list[float]] = {tool: [] for tool in steps}
    for _ in range(options.rounds):
        for tool, step in steps.items():
            times[tool].append(milliseconds(step, options.device, options.calls))
    if options.profile:
        for tool, step in steps.items():
            console.print(f"[bold]{tool}", *profile(step), sep="\n", highlight=False)
    return {"bytes": read(model), "ms": {tool: median(found) for tool, found in times.items()}, "off": differences}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--kinds", default="bfloat16,int8,int4", help=f"of {', '.join(KINDS)} (%(default)s)")
    parser.add_argument("--batches", default="1,4,16", help="sequences at once (%(default)s)")
    parser.add_argument("--frontends", default=",".join(FRONT_ENDS), help="(%(default)s)")
    parser.add_argument("--mode", default="", help="of both compilers (reduce-overhead on GPUs)")
    parser.add_argument("--rounds", type=int, default=30, help="of which the median is shown (%(default)s)")
    parser.add_argument("--calls", type=int, default=20, help="in a row (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of torch (torch's default)")
    parser.add_argument("--profile", action="store_true", help="print each front end's kernels")
    for name, field in Shape.__dataclass_fields__.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=0, help=f"({field.default})")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    warnings.simplefilter("ignore")
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console(width=120)
    bandwidth = copy_bandwidth(options.device)
    table = Table(title=f"a token through the decoder; torch's copy moves {bandwidth / 1e9:.0f} GB/s")
    for head in ("weights", "batch", "front end", "ms", "GB/s of weights", "of copy", "off"):
        table.add_column(head, justify="left" if head in ("weights", "front end") else "right")
    for kind in options.kinds.split(","):
        for batch in map(int, options.batches.split(",")):
            found = case(options, kind, batch, console)
            for tool, ms in found["ms"].items():
                speed = found["bytes"] / ms * 1e3
                cells = (f"{ms:.3f}", f"{speed / 1e9:.0f}", f"{speed / bandwidth:.0%}", f"{found['off'][tool]:.1e}")
                table.add_row(kind, str(batch), tool, *cells)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
