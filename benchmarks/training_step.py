"""A training step compiled whole, beside the model and the optimizer's step compiled on their own, and beside eager.

All ways take turns in one process, in short blocks of steps; the medians over the blocks are compared. Each has a copy
of the same model, and after the warm-up its parameters are compared with eager's: a way that trains otherwise is said
to. ``torch`` is torch.compile of model and optimizer's step.
"""

from __future__ import annotations

import argparse
import copy
import functools
import math
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import jitney

WARM = 12
Step = Callable[[], Any]


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.mix, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, length, width)."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.mix(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class TinyGPT(nn.Module):
    """A few layers of a narrow GPT."""

    def __init__(self, words: int = 64, width: int = 32, layers: int = 4, length: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.attention = nn.ModuleList(Attention(width, 4) for _ in range(layers))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.words(ids) + self.places.weight[: ids.size(1)]
        for n, (attention, wide, narrow) in enumerate(zip(self.attention, self.wide, self.narrow, strict=True)):
            x = x + attention(self.norms[2 * n](x))
            x = x + narrow(F.gelu(wide(self.norms[2 * n + 1](x))))
        return self.head(self.norms[-1](x))


class LSTM(nn.Module):
    """An LSTM as people write it: a loop over time, gates of two linear layers."""

    def __init__(self, features: int = 16, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.width = width
        self.given, self.held = nn.Linear(features, 4 * width), nn.Linear(width, 4 * width, bias=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, length, features)."""
        h = c = x.new_zeros(len(x), self.width)
        for now in x.unbind(1):
            i, f, g, o = (self.given(now) + self.held(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.head(h)


def lstm() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Sixteen steps in time."""
    return LSTM(), (torch.randn(8, 16, 16), torch.randint(10, (8,)))


def mlp() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Four narrow layers."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return model, (torch.randn(16, 32), torch.randint(10, (16,)))


def gpt() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """A tiny GPT on four rows."""
    ids = torch.randint(64, (4, 33))
    return TinyGPT(), (ids[:, :-1], ids[:, 1:])


def deep() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Seven layers of 256."""
    hidden = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(256, 10)), (torch.randn(64, 256), torch.randint(10, (64,)))


CASES = {"mlp": mlp, "deep": deep, "gpt": gpt, "lstm": lstm}


def eager_step(model: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor, stepped: Step | None = None) -> Any:
    """Forward, backward, clipping, update."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    (stepped or optimizer.step)()
    return loss.detach()


def ways(case: str, backend: str, with_torch: bool, device: str = "cpu") -> dict[str, tuple[nn.Module, Step]]:
    """By name: a model, and what does a step with it; ``less`` is ``mode="reduce-overhead"``."""
    torch.manual_seed(0)
    first, (x, y) = CASES[case]()
    first, x, y = first.to(device), x.to(device), y.to(device)
    names = ["eager", "parts", "whole", *(["torch"] if with_torch else [])]
    if device != "cpu":
        names += [f"{name} less" for name in names[1:]]
    made: dict[str, tuple[nn.Module, Step]] = {}
    for name in names:
        model = copy.deepcopy(first)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        kind, _, less = name.partition(" ")
        mode = "reduce-overhead" if less else None
        if kind == "whole":
            whole = jitney.compile(eager_step, backend=backend, fullgraph=True, mode=mode)
            step = _bound(whole, model, optimizer, x, y)
        elif kind == "eager":
            step = _bound(eager_step, model, optimizer, x, y)
        else:
            compile_ = torch.compile if kind == "torch" else functools.partial(jitney.compile, backend=backend)
            # Inductor's CUDA graphs of an optimizer refuse gradients that those of the model have made.
            stepped = compile_(optimizer.step) if kind == "torch" else compile_(optimizer.step, mode=mode)
            step = _bound(eager_step, compile_(model, mode=mode), optimizer, x, y, stepped)
        made[name] = model, step
    return made


def _bound(step: Any, *args: Any) -> Step:
    return lambda: step(*args)


def measure(case: str, backend: str, with_torch: bool, blocks: int, device: str, only: str = "") -> dict[str, float]:
    """Microseconds of a step, by way; those that train otherwise than eager are NaN."""
    made = ways(case, backend, with_torch, device)
    made = {name: way for name, way in made.items() if not only or name in ("eager", *only.split(","))}
    wait = torch.cuda.synchronize if device != "cpu" else int
    for name, (_, step) in list(made.items()):
        try:
            for _ in range(WARM):
                step()
        except RuntimeError as error:  # a peer's, mostly
            print(f"{case}: {name} fails: {str(error).partition(chr(10))[0]}")
            del made[name]
    wanted = list(made["eager"][0].parameters())
    others = {
        name
        for name, (model, _) in made.items()
        if not all(torch.allclose(a, b, 1e-2, 1e-3) for a, b in zip(model.parameters(), wanted, strict=True))
    }
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(blocks):
        for name, (_, step) in made.items():
            wait()
            begin = perf_counter()
            for _ in range(10):
                step()
            wait()
            times[name].append((perf_counter() - begin) / 10)
    found = {name: median(each) * 1e6 for name, each in times.items()}
    for name in others:
        print(f"{case}: {name} trains otherwise than eager")
        found[name] = math.nan
    return found


def main() -> None:
    """A line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--backend", default="llvm_cpu")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--ways", default="", help="only these, by commas: Inductor's CUDA graphs want a process alone")
    parser.add_argument("--no-torch", action="store_true", help="without torch.compile")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in options.cases.split(","):
        found = measure(case, options.backend, not options.no_torch, options.blocks, options.device, options.ways)
        others = "  ".join(f"{name} {time:.0f} us ({found['eager'] / time:.2f})" for name, time in found.items())
        print(f"{case}: {others}   in brackets: times as fast as eager")


if __name__ == "__main__":
    main()
