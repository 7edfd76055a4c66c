"""Data-parallel training with jitney: throughput, and checkpoints to go on from.

    torchrun --nproc_per_node=2 examples/ddp_train.py --steps 200 --checkpoint /tmp/spirals.pt
    torchrun --nproc_per_node=2 examples/ddp_train.py --steps 400 --checkpoint /tmp/spirals.pt   # goes on at step 200

A residual network learns which of several spirals a point belongs to. On GPUs (NCCL) and on CPUs (gloo).
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import jitney

ARMS = 5


class Net(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, width), nn.Linear(width, ARMS)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + F.gelu(layer(norm(x)))
        return self.last(x)


def spirals(count: int) -> TensorDataset:
    """Points on arms of a spiral, with some noise, and the number of the arm."""
    generator = torch.Generator().manual_seed(0)
    arm = torch.randint(ARMS, (count,), generator=generator)
    radius = torch.rand(count, generator=generator)
    angle = 4 * radius + arm * (2 * math.pi / ARMS) + 0.1 * torch.randn(count, generator=generator)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm)


def save(path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint, whole or not at all."""
    draft = path.with_suffix(".tmp")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, draft)
    draft.replace(path)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Go on from a checkpoint; the step that it was written after."""
    state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="train up to this step")
    parser.add_argument("--batch", type=int, default=256, help="points on each rank")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument(
        "--checkpoint", type=Path, help="read if it is there, written every --every steps and at the end"
    )
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--mode", choices=("split", "in_graph", "off", "eager"), default="in_graph")
    parser.add_argument("--backend", default="auto", help="jitney's backend")
    given = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("torchrun starts this: torchrun --nproc_per_node=2 examples/ddp_train.py")

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    first = dist.get_rank() == 0

    torch.manual_seed(0)
    model = Net(given.width, given.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    if given.checkpoint is not None and given.checkpoint.exists():
        step = load(given.checkpoint, model, optimizer, device)
        if first:
            print(f"going on at step {step} of {given.checkpoint}")
            if step >= given.steps:
                print(f"nothing left to do: --steps is {given.steps}")
    ddp: Any = DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)
    if given.mode != "eager":
        ddp = jitney.compile(ddp, backend=given.backend, options={"ddp": given.mode})

    data = spirals(20_000)
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    loader = DataLoader(data, given.batch, sampler=sampler, drop_last=True)
    epoch, points, begin = step * given.batch // len(sampler), 0, 0.0
    while step < given.steps:
        sampler.set_epoch(epoch)
        for x, arm in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(x.to(device)), arm.to(device))
            loss.backward()
            optimizer.step()
            step += 1
            points += len(x) * dist.get_world_size()
            if begin == 0.0:  # the first step compiles
                begin, points = time.perf_counter(), 0
            if step % given.every == 0 or step == given.steps:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                seconds = time.perf_counter() - begin
                if first:
                    rate = f"{points / seconds:,.0f} points/s" if points else "(compiled)"
                    print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}, {rate}", flush=True)
                if given.checkpoint is not None and first:
                    save(given.checkpoint, step, model, optimizer)
            if step >= given.steps:
                break
        epoch += 1
    dist.barrier()
    if not on_gpu:  # gloo's threads let go of tensors a moment later; one that does so while Python ends aborts
        time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
