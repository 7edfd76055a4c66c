"""DDP: a training step eager, through jitney in both modes, and through torch.compile's DDPOptimizer.

    COLUMNS=140 NCCL_NVLS_ENABLE=0 torchrun --nproc_per_node=2 benchmarks/ddp.py
    torchrun --nproc_per_node=2 benchmarks/ddp.py --tiny          # gloo, on a CPU, in a minute

All variants train copies of one model in the same processes and take turns; a step is forward, loss, backward. Its
time is that of the slowest rank, speeds are medians of the ratios within a round. Each variant's first losses and
gradients are compared with eager's: a wrong answer gets no speed. Then torch's profiler says how much of the time of
communication is hidden behind computation (``jitney_ddp_bucketing.timeline``); its traces and a picture are kept.

Results are written after each model, so Ctrl-C keeps what there is. Exits with 1 if an answer was wrong or a variant
failed.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import report
import torch
import torch.distributed as dist
import torch.nn.functional as F
from bar_chart import BARS, GREY, speed_chart
from report import console
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import jitney
from jitney_ddp_bucketing import timeline

VARIANTS = ("eager", "torch", "split", "in_graph")
TOLERANCE = 0.03  # of the norm of all gradients: bfloat16 through a deep model
TURN_SECONDS = 1.0
GOAL = {"speed": 1 / 0.95, "hidden": 0.8}


# --- models ----------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.second, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class GPT(nn.Module):
    """As GPT-2: its input and output share one matrix."""

    def __init__(self, words: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.last(x), self.words.weight)


class MLP(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.gelu(layer(x), approximate="tanh")
        return x


@dataclass(frozen=True)
class Work:
    """A model, and batches: each a tuple of inputs and the loss of an output."""

    model: nn.Module
    batch: tuple[Tensor, ...]
    loss: Callable[[Tensor], Tensor]
    parameters: int


def gpt(device: torch.device, tiny: bool) -> Work:
    words, length, width, heads, layers, batch = (512, 16, 128, 2, 2, 2) if tiny else (50304, 1024, 768, 12, 12, 8)
    model = GPT(words, length, width, heads, layers).to(device)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    tokens, wanted = torch.randint(words, (2, batch, length), device=device)
    return Work(model, (tokens,), lambda y: F.cross_entropy(y.flatten(0, 1).float(), wanted.flatten()), count(model))


def mlp(device: torch.device, tiny: bool) -> Work:
    width, layers, batch = (256, 6, 32) if tiny else (4096, 24, 8192)
    model = MLP(width, layers).to(device)
    x = torch.randn(batch, width, device=device)
    return Work(model, (x,), lambda y: y.float().square().mean(), count(model))


MODELS = {"gpt2_small": gpt, "mlp_24": mlp}


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# --- one rank --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rank:
    """What all of a rank's measurements need."""

    number: int
    size: int
    device: torch.device
    arguments: argparse.Namespace

    def agreed(self, ok: bool) -> bool:
        """Is it so on all ranks?"""
        flag = torch.tensor([int(ok)], device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MIN)
        return bool(flag.item())

    def slowest(self, seconds: float) -> float:
        """The largest of the ranks' times."""
        value = torch.tensor([seconds], device=self.device, dtype=torch.float64)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return float(value.item())

    def say(self, text: str) -> None:
        """Printed by the first rank alone."""
        if self.number == 0:
            console.print(text, soft_wrap=True)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 on GPUs, as models are trained there."""
        if self.device.type == "cuda":
            return torch.autocast("cuda", torch.bfloat16)
        return contextlib.nullcontext()


def wrapped(variant: str, model: nn.Module, rank: Rank) -> nn.Module:
    """The model in DDP, compiled in one way."""
    ids = [rank.device.index] if rank.device.type == "cuda" else None
    ddp = DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True, bucket_cap_mb=rank.arguments.cap)
    if variant == "eager":
        return ddp
    if variant == "torch":
        compiled: nn.Module = torch.compile(ddp)
        return compiled
    made: nn.Module = jitney.compile(ddp, backend=rank.arguments.backend, options={"ddp": variant})
    return made


def step_of(model: nn.Module, work: Work, rank: Rank) -> Callable[[], Tensor]:
    """One training step without an optimizer, which would be the same for all."""

    def step() -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        with rank.autocast():
            output = model(*work.batch)
        loss = work.loss(output)
        loss.backward()
        return loss.detach()

    parameters = list(model.parameters())
    return step


def first_steps(
    variant: str, work: Work, rank: Rank
) -> tuple[Callable[[], Tensor], nn.Module, float, Tensor, list[Any]]:
    """The variant's step, run three times: (step, model, seconds of the first, loss, gradients)."""
    model = copy.deepcopy(work.model)
    step = step_of(wrapped(variant, model, rank), work, rank)
    begin = time.perf_counter()
    step()
    rank.synchronize()
    seconds = time.perf_counter() - begin
    step()
    loss = step()
    rank.synchronize()
    return step, model, seconds, loss, [p.grad for p in model.parameters()]


def wrong(loss: Tensor, gradients: list[Any], expected: tuple[Tensor, list[Any]]) -> str:
    """What differs from eager; empty if nothing does."""
    if any(g is None for g in gradients):
        return "a parameter without a gradient"
    norm = sum(float(e.double().square().sum()) for e in expected[1]) ** 0.5
    distance = sum(float((g.double() - e.double()).square().sum()) for g, e in zip(gradients, expected[1], strict=True))
    if not distance**0.5 <= TOLERANCE * norm:
        return f"gradients differ by {distance**0.5 / norm:.1%} of their norm"
    if not abs(float(loss - expected[0])) <= TOLERANCE * abs(float(expected[0])):
        return f"the loss is {float(loss):.5g}, eager's {float(expected[0]):.5g}"
    return ""


def measure(name: str, rank: Rank) -> dict[str, Any]:
    """All variants of one model, in turn."""
    torch.manual_seed(0)
    work = MODELS[name](rank.device, rank.arguments.tiny)
    torch.manual_seed(1 + rank.number)
    work = Work(work.model, tuple(_own(t, rank) for t in work.batch), work.loss, work.parameters)
    records: dict[str, dict[str, Any]] = {}
    steps: dict[str, Callable[[], Tensor]] = {}
    models: dict[str, nn.Module] = {}
    expected: tuple[Tensor, list[Any]] | None = None
    for variant in rank.arguments.variants:
        rank.say(f"{name}: {variant}, first steps...")
        record = records[variant] = {}
        error = ""
        try:
            step, models[variant], record["first_seconds"], loss, gradients = first_steps(variant, work, rank)
            if expected is None:
                expected = loss, [g.clone() for g in gradients]
            error = wrong(loss, gradients, expected)
        except Exception as failure:  # whatever a compiler raises is a row of the table
            error = f"{type(failure).__name__}: {failure}".splitlines()[0]
            traceback.print_exc()
        if rank.agreed(not error):
            steps[variant] = step
        else:
            record["error"] = error or "another rank failed"
            rank.say(f"[red]{name}: {variant}: {record['error']}")
    del expected
    for variant, times in in_turns(steps, rank).items():
        records[variant]["seconds"] = times
    for variant, step in steps.items():
        records[variant] |= profiled(name, variant, step, rank)
    return {"parameters": work.parameters, "variants": records}


def _own(tensor: Tensor, rank: Rank) -> Tensor:
    """Data of this rank's."""
    if tensor.is_floating_point():
        return torch.randn_like(tensor)
    return tensor.roll(rank.number, -1)


def in_turns(steps: dict[str, Callable[[], Tensor]], rank: Rank) -> dict[str, list[float]]:
    """Seconds of a step, by variant and round: of the slowest rank, with the ranks begun together."""
    times: dict[str, list[float]] = {variant: [] for variant in steps}
    repeat: dict[str, int] = {}
    for number in range(rank.arguments.rounds + 1):
        for variant, step in steps.items():
            rank.synchronize()
            dist.barrier()
            count = repeat.get(variant, 2)
            begin = time.perf_counter()
            for _ in range(count):
                step()
            rank.synchronize()
            seconds = rank.slowest((time.perf_counter() - begin) / count)
            if number:
                times[variant].append(seconds)
            else:  # the first round only says how many steps a turn has
                repeat[variant] = max(2, min(50, round(rank.arguments.turn / seconds)))
    return times


def profiled(name: str, variant: str, step: Callable[[], Tensor], rank: Rank) -> dict[str, Any]:
    """Compute, communication and what is hidden of it, per step and rank (the means), from torch's profiler."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if rank.device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    steps = 5
    step()
    rank.synchronize()
    dist.barrier()
    plan = torch.profiler.schedule(wait=0, warmup=2, active=steps)  # starting to record makes the ranks uneven
    with torch.profiler.profile(activities=activities, schedule=plan) as profile:
        for number in range(2 + steps):
            step()
            if number + 1 < 2 + steps:
                profile.step()
        rank.synchronize()
    folder = rank.arguments.traces
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}_{variant}_rank{rank.number}.json"
    profile.export_chrome_trace(str(path))
    found = timeline.read(path)
    mine = [found.compute_time / 1e6 / steps, found.communication_time / 1e6 / steps, found.hidden or 0.0]
    everyone: list[Any] = [None] * rank.size
    dist.all_gather_object(everyone, mine)
    if rank.number == 0:
        paths = [folder / f"{name}_{variant}_rank{r}.json" for r in range(rank.size)]
        (folder / f"{name}_{variant}.svg").write_text(timeline.svg([timeline.read(p) for p in paths]))
    compute, communication, hidden = (sum(values) / rank.size for values in zip(*everyone, strict=True))
    return {"compute_seconds": compute, "communication_seconds": communication, "hidden": hidden}


# --- results ---------------------------------------------------------------------------------------------------------


def speeds(record: dict[str, Any], peer: str) -> dict[str, float | None]:
    """How many times faster than ``peer`` each variant is: the median of the ratios within a round."""
    variants = record["variants"]
    base = variants.get(peer, {}).get("seconds")
    found = {}
    for variant, row in variants.items():
        own = row.get("seconds")
        found[variant] = median(b / t for b, t in zip(base, own, strict=True)) if own and base else None
    return found


def show(results: dict[str, Any]) -> None:
    rows: list[list[object]] = []
    for name, record in results.items():
        over_eager, over_torch = speeds(record, "eager"), speeds(record, "torch")
        for variant, row in record["variants"].items():
            times = [1000 * median(row["seconds"])] if "seconds" in row else ["failed"]
            parts = [1000 * row[k] if k in row else None for k in ("compute_seconds", "communication_seconds")]
            hidden = f"{row['hidden']:.0%}" if "hidden" in row else None
            first = row.get("first_seconds")
            shown = [over_eager[variant], over_torch[variant], *parts, hidden, first]
            rows.append([name if variant == next(iter(record["variants"])) else "", variant, *times, *shown])
    head = ["model", "variant", "step ms", "x eager", "x torch", "compute ms", "comm ms", "hidden", "first s"]
    report.print_table("DDP: forward, loss, backward", head, rows, "compute, comm, hidden: from the profiler")
    for name, record in results.items():
        for variant, row in record["variants"].items():
            if "error" in row:
                console.print(f"{name}, {variant}: {row['error']}", soft_wrap=True, markup=False)


def write(results: dict[str, Any], rank: Rank) -> None:
    about = report.about() | {"ranks": rank.size, "backend": rank.arguments.backend, "rounds": rank.arguments.rounds}
    about |= {"group": dist.get_backend(), "bucket_cap_mb": rank.arguments.cap, "tiny": rank.arguments.tiny}
    if rank.device.type == "cuda":
        about["device"] = torch.cuda.get_device_name()
    name = f"ddp_{rank.device.type}_{rank.size}" + ("_tiny" if rank.arguments.tiny else "")
    series = dict(zip(rank.arguments.variants, [GREY, *BARS], strict=False))
    groups = {n: dict(speeds(record, "eager")) for n, record in results.items()}
    note = f"speed beside eager DDP, {rank.size} ranks, {about.get('device', 'CPU')}, torch {torch.__version__}"
    picture = speed_chart("DDP training step", note, series, groups)
    report.save(rank.arguments.out, name, {"about": about, "goal": GOAL, "models": results}, picture)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--variants", default=",".join(VARIANTS), help=f"of {', '.join(VARIANTS)}; eager first")
    parser.add_argument("--backend", default="triton_gpu" if cuda else "llvm_cpu", help="jitney's backend")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each variant that count")
    parser.add_argument("--turn", type=float, default=TURN_SECONDS, help="seconds of a turn")
    parser.add_argument("--cap", type=float, default=None, help="DDP's bucket_cap_mb for all variants")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="folder of the results")
    parser.add_argument("--traces", type=Path, default=Path("build/ddp_traces"), help="folder of traces and timelines")
    parser.add_argument("--timeout", type=float, default=300, help="seconds after which ranks give up on each other")
    given = parser.parse_args()
    try:
        given.models = report.choice(given.models, tuple(MODELS))
        given.variants = report.choice(given.variants, VARIANTS)
    except ValueError as error:
        parser.error(str(error))
    if "RANK" not in os.environ:
        parser.error("torchrun starts this: torchrun --nproc_per_node=2 benchmarks/ddp.py")
    return given


def main() -> int:
    arguments = parse()
    on_cuda = torch.cuda.is_available() and not arguments.tiny
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if on_cuda else torch.device("cpu")
    if on_cuda:
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True
    if arguments.tiny:
        arguments.cap = arguments.cap or 1.0  # torch.compile wants no less than the first bucket, of 1 MiB
        arguments.turn = min(arguments.turn, 0.1)
    dist.init_process_group("nccl" if on_cuda else "gloo", timeout=timedelta(seconds=arguments.timeout))
    rank = Rank(dist.get_rank(), dist.get_world_size(), device, arguments)
    results: dict[str, Any] = {}
    try:
        for name in arguments.models:
            results[name] = measure(name, rank)
            if rank.number == 0:
                show(results)
                write(results, rank)
            gc.collect()
            if on_cuda:
                torch.cuda.empty_cache()
    except KeyboardInterrupt:
        rank.say("stopped; what was measured is kept")
        return 130
    failed = any("error" in row for record in results.values() for row in record["variants"].values())
    dist.barrier()
    dist.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
