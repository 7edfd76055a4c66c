"""Training runs of thousands of steps, compiled and eager: do the losses drift apart?

    python tests/differential/drift.py --steps 2000 --backend llvm_cpu --device cpu

A small GPT and a small ResNet, in float32 and under autocast to bfloat16. Sums in another order end up in another place
after many steps, in eager as well: so eager trains three times, twice with the rows of each batch in another order,
which changes nothing but the order of sums. The compiled run may be as far from eager as these are from each other, by
losses averaged over windows. Twice compiled, with torch's deterministic algorithms, losses are equal to the bit.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jitney

VOCABULARY, LENGTH, WIDTH = 32, 24, 32
# How far from eager a compiled run may be: so many times what eager runs were apart until then, or this part of a loss.
FACTOR, FLOOR = 3.0, {torch.float32: 1e-5, torch.bfloat16: 5e-3}


class Block(nn.Module):
    """Of a GPT: attention to what came before, then an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.projection, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Four heads."""
        parts = self.projection(self.norms[0](x)).unflatten(-1, (3, 4, -1)).movedim(2, 0).transpose(2, 3)
        attended = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    """Two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The loss of the next tokens."""
        x = self.tokens(tokens) + self.places.weight
        return F.cross_entropy(self.head(self.blocks(x)).flatten(0, 1).float(), targets.flatten())


class Residual(nn.Module):
    """Of a ResNet: two convolutions beside the identity, or beside a smaller one."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.beside = nn.Identity() if stride == 1 else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Rectified sums."""
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + self.beside(x)).relu()


class ResNet(nn.Module):
    """Three blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """The loss of the classes."""
        pooled = self.blocks(self.stem(x).relu()).mean((2, 3))
        return F.cross_entropy(self.head(pooled).float(), targets)


def texts(generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Sequences each token of which follows from the two before it, but for some noise."""
    while True:
        made = torch.randint(VOCABULARY, (8, LENGTH + 1), generator=generator)
        noise = torch.rand(8, LENGTH + 1, generator=generator) < 0.1
        for i in range(2, LENGTH + 1):
            made[:, i] = torch.where(noise[:, i], made[:, i], (made[:, i - 1] * 3 + made[:, i - 2]) % VOCABULARY)
        yield made[:, :-1], made[:, 1:]


def pictures(generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Noise over one of ten patterns."""
    patterns = torch.randn(10, 3, 12, 12, generator=generator)
    while True:
        targets = torch.randint(10, (16,), generator=generator)
        yield patterns[targets] + 2 * torch.randn(16, 3, 12, 12, generator=generator), targets


Batches = Callable[[torch.Generator], Iterator[tuple[Tensor, Tensor]]]
MODELS: dict[str, tuple[type[nn.Module], Batches]] = {"gpt": (Gpt, texts), "resnet": (ResNet, pictures)}


@dataclass(frozen=True)
class Setting:
    """What is trained, where, and how."""

    model: str
    dtype: torch.dtype
    device: str
    steps: int
    seed: int


def losses(setting: Setting, backend: Any = "", order: int = 0) -> list[float]:
    """A run's loss at each step.

    Args:
        setting: of all runs.
        backend: what compiles; empty: eager.
        order: which order the rows of batches have; 0: as they come.
    """
    make, batches = MODELS[setting.model]
    torch.manual_seed(setting.seed)
    model = make().to(setting.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    called: Any = jitney.compile(model, backend=backend) if backend else model
    rows, found = torch.Generator().manual_seed(order), list[Tensor]()
    given = batches(torch.Generator().manual_seed(setting.seed))
    for inputs, targets in itertools.islice(given, setting.steps):
        where = torch.randperm(len(inputs), generator=rows) if order else torch.arange(len(inputs))
        with torch.autocast(setting.device, torch.bfloat16, enabled=setting.dtype == torch.bfloat16):
            loss = called(inputs[where].to(setting.device), targets[where].to(setting.device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return [float(loss) for loss in found]


def windows(curve: list[float]) -> list[float]:
    """Means of twenty parts."""
    size = max(len(curve) // 20, 1)
    return [statistics.fmean(curve[at : at + size]) for at in range(0, len(curve) - size + 1, size)]


def problems(setting: Setting, backend: Any) -> Iterator[str]:
    """Where the compiled run is further from eager than eager is from itself; prints one line."""
    name = f"{setting.model} {setting.dtype}".replace("torch.", "")
    begin = time.perf_counter()
    eager = [windows(losses(setting, order=order)) for order in range(3)]
    curves = []
    for _ in range(2):
        jitney.reset()
        curves.append(losses(setting, backend))
    if curves[0] != curves[1]:
        at = next(i for i, (a, b) in enumerate(zip(*curves, strict=True)) if a != b)
        yield f"{name}: two compiled runs differ at step {at}"
    spread, furthest, most = 0.0, 0.0, 0.0
    ours = windows(curves[0])
    for number, (mine, *theirs) in enumerate(zip(ours, *eager, strict=True)):
        spread = max(spread, max(theirs) - min(theirs))
        away = max(min(theirs) - mine, mine - max(theirs), 0.0)
        furthest, most = max(furthest, abs(mine - theirs[0])), max(most, spread)
        if not away <= FACTOR * spread + FLOOR[setting.dtype] * abs(theirs[0]):
            yield f"{name}, window {number}: {mine:.6f}, eager {min(theirs):.6f} to {max(theirs):.6f} ({spread:.2g})"
    ends = ", ".join(f"{curve[-1]:.4f}" for curve in eager)
    seconds = time.perf_counter() - begin
    print(
        f"{name}, {setting.steps} steps: loss {eager[0][0]:.4f} to {ours[-1]:.4f} (eager {ends}); "
        f"furthest from eager {furthest:.2g}, eager runs from each other {most:.2g}; {seconds:.0f} s",
        flush=True,
    )


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if something drifts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="of each run (%(default)s)")
    parser.add_argument("--models", default=",".join(MODELS), help="which (%(default)s)")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="bfloat16: by autocast (%(default)s)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    torch.use_deterministic_algorithms(True)
    faults = list[str]()
    for model, dtype in itertools.product(options.models.split(","), options.dtypes.split(",")):
        setting = Setting(model, getattr(torch, dtype), options.device, options.steps, options.seed)
        faults += problems(setting, options.backend)
    print(f"seed {options.seed}, {options.backend} on {options.device}: {len(faults)} faults", *faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
