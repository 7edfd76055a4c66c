"""Attention as people write it, in eight ways, beside torch's fused forms: speed, memory, error from float64.

``hand`` columns run the program as written: eager, torch.compile, jitney. ``flex`` is ``flex_attention`` under
torch.compile and ``fused`` is ``scaled_dot_product_attention``, each given what the program computes in its own terms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

import jitney

WINDOW, CAP = 256, 30.0


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Nothing but a scale."""
    return (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).softmax(-1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A mask of what comes later."""
    mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()
    scores = (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).masked_fill(~mask, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def padding(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """A mask of what is padding."""
    mask = torch.arange(k.size(-2), device=q.device) < lengths[:, None]
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
    return F.softmax(scores, dim=-1) @ v


def bias(q: Tensor, k: Tensor, v: Tensor, added: Tensor) -> Tensor:
    """A bias of each head, in memory."""
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.size(-1) ** -0.5 + added
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)


def alibi(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    """A slope of each head, causal."""
    t = torch.arange(q.size(-2), device=q.device)
    distance = t[None, :] - t[:, None]
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5 + slopes[:, None, None] * distance
    return scores.masked_fill(distance > 0, float("-inf")).softmax(-1).to(q.dtype) @ v


def soft_cap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Gemma 2's: causal, the tanh of scores."""
    scores = CAP * torch.tanh(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5 / CAP)
    later = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal, over so many tokens."""
    t = torch.arange(q.size(-2), device=q.device)
    visible = (t[None, :] <= t[:, None]) & (t[:, None] - t[None, :] < WINDOW)
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    return torch.where(visible, scores, float("-inf")).softmax(-1) @ v


def table(q: Tensor, k: Tensor, v: Tensor, entries: Tensor) -> Tensor:
    """A table of relative positions, as Swin and T5 have it."""
    t = torch.arange(q.size(-2), device=q.device)
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    return (scores + entries[:, t[:, None] - t[None, :] + q.size(-2) - 1]).softmax(-1) @ v


@dataclass(frozen=True)
class Case:
    """One way.

    Args:
        hand: as people write it.
        more: what it is given besides: from batch, heads, tokens, dtype and device.
        score: flex_attention's score function, from what is given besides.
        mask: flex_attention's mask function.
        fused: arguments of torch's fused attention, if it says the same.
    """

    hand: Callable[..., Tensor]
    more: Callable[..., tuple[Tensor, ...]] = lambda *_: ()
    score: Callable[..., Any] | None = None
    mask: Callable[..., Any] | None = None
    fused: Callable[..., dict[str, Any]] | None = None


def _later(*_: Tensor) -> Any:
    return lambda b, h, i, j: j <= i


CASES = {
    "plain": Case(plain, fused=dict),
    "causal": Case(causal, mask=_later, fused=lambda: {"is_causal": True}),
    "padding": Case(
        padding,
        lambda b, h, t, dtype, device: (torch.linspace(t // 2, t, b, device=device).long(),),
        mask=lambda lengths: lambda b, h, i, j: j < lengths[b],
    ),
    "bias": Case(
        bias,
        lambda b, h, t, dtype, device: (torch.randn(h, t, t, dtype=dtype, device=device),),
        score=lambda added: lambda s, b, h, i, j: s + added[h, i, j],
        fused=lambda added: {"attn_mask": added},
    ),
    "alibi": Case(
        alibi,
        lambda b, h, t, dtype, device: (2.0 ** (-8.0 * torch.arange(1, h + 1, device=device) / h),),
        score=lambda slopes: lambda s, b, h, i, j: s + slopes[h] * (j - i),
        mask=_later,
    ),
    "soft cap": Case(
        soft_cap, score=lambda: lambda s, b, h, i, j: CAP * torch.tanh(s / CAP), mask=_later
    ),
    "window": Case(window, mask=lambda: lambda b, h, i, j: (j <= i) & (i - j < WINDOW)),
    "table": Case(
        table,
        lambda b, h, t, dtype, device: (torch.randn(h, 2 * t - 1, dtype=dtype, device=device),),
        score=lambda entries: lambda s, b, h, i, j: s + entries[h, i - j + entries.size(1) // 2],
    ),
}  # fmt: skip


def flex(case: Case, more: tuple[Tensor, ...], b: int, h: int, t: int, device: str) -> Callable[..., Tensor]:
    """The same by ``flex_attention`` under torch.compile."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    score = None if case.score is None else case.score(*more)
    mask = None if case.mask is None else create_block_mask(case.mask(*more), b, None, t, t, device=device)
    return lambda q, k, v, *_: compiled(q, k, v, score_mod=score, block_mask=mask)


def milliseconds(run: Callable[[], object]) -> float:
    """The device's time for one run."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(200_000)  # the host is ahead
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def in_turns(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median of each step's time in milliseconds, where all take turns."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            found[name].append(milliseconds(step))
    return {name: statistics.median(times) for name, times in found.items()}


def step_of(function: Callable[..., Tensor], inputs: list[Tensor], gradient: Tensor | None) -> Callable[[], Any]:
    """What computes a result, and with a gradient those of the inputs too."""
    leaves = [x for x in inputs if x.requires_grad]

    def step() -> Any:
        if gradient is None:
            with torch.no_grad():
                return (function(*inputs),)
        result = function(*inputs)
        return (result.detach(), *torch.autograd.grad(result, leaves, gradient))

    return step


def peak_of(step: Callable[[], object]) -> float:
    """MiB at the peak beyond what there is before, after three runs."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def off(found: Any, exact: Any) -> float:
    """The largest error of any result, as a part of its largest value."""
    return max(
        float((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in zip(found, exact, strict=True)
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--tokens", default="512,2048,8192")
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--total", type=int, default=16384, help="tokens of all sequences together")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--front-ends", default="eager,jitney,torch.compile,flex,fused")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("these figures are of a GPU, which torch does not see")
    warnings.simplefilter("ignore")
    console = Console(width=150)
    wanted = options.front_ends.split(",")
    shown = Table(
        title=f"milliseconds (MiB) of attention, {options.dtype}, {options.heads} heads of {options.features}"
    )
    for name in ("case", "tokens", "mode", *wanted, "/ flex", "/ fused", "error: eager, jitney"):
        shown.add_column(name, justify="left" if name in ("case", "mode") else "right")
    ratios: dict[str, list[float]] = {}
    for name in options.cases.split(","):
        for tokens in map(int, options.tokens.split(",")):
            for mode in options.modes.split(","):
                row, found = _row(CASES[name], tokens, mode == "training", wanted, options)
                for other in found.keys() - {"jitney"}:
                    if "jitney" in found:
                        ratios.setdefault(f"{mode}, over {other}", []).append(found[other] / found["jitney"])
                shown.add_row(name, str(tokens), mode, *row)
                console.print(name, tokens, mode, *row)
    console.print(shown)
    for what, numbers in sorted(ratios.items()):
        console.print(f"{what}: geometric mean {statistics.geometric_mean(numbers):.2f}, least {min(numbers):.2f}")
    return 0


def _row(case: Case, tokens: int, trains: bool, wanted: list[str], options: Any) -> tuple[list[str], dict[str, float]]:
    b, h, d = max(1, options.total // tokens), options.heads, options.features
    dtype, device = getattr(torch, options.dtype), "cuda"
    torch.manual_seed(0)
    inputs = [torch.randn(b, tokens, h, d, dtype=dtype, device=device).requires_grad_(trains) for _ in range(3)]
    views = [x.transpose(1, 2) for x in inputs]
    heads = [x.detach().requires_grad_(trains) for x in views]
    more = case.more(b, h, tokens, dtype, device)
    front_ends: dict[str, Callable[..., Tensor]] = {
        "eager": case.hand,
        "jitney": jitney.compile(case.hand, backend="triton_gpu", fullgraph=True, dynamic=False),
        "torch.compile": torch.compile(case.hand, fullgraph=True, dynamic=False),
    }
    if case.fused is not None:
        given = case.fused(*more)
        front_ends["fused"] = lambda q, k, v, *_: F.scaled_dot_product_attention(q, k, v, **given)
    if "flex" in wanted:
        front_ends["flex"] = flex(case, more, b, h, tokens, device)
    gradient = torch.randn_like(heads[0]) if trains else None
    steps: dict[str, Callable[[], Any]] = {}
    peaks: dict[str, float] = {}
    failed: dict[str, str] = {}
    errors: dict[str, float] = {}
    exact = _exact(case, heads, more, gradient) if tokens <= 2048 else None
    for name in (n for n in wanted if n in front_ends):
        step = step_of(front_ends[name], [*heads, *more], gradient)
        try:
            peaks[name] = peak_of(step)
        except Exception as error:
            failed[name] = type(error).__name__
            print(name, str(error)[:300], flush=True)
            continue
        steps[name] = step
        if name in ("eager", "jitney") and exact is not None:
            errors[name] = off([r[:1] for r in step()], exact)
    found = in_turns(steps, options.rounds)
    row = [f"{found[n]:.3f} ({peaks[n]:.0f})" if n in found else failed.get(n, "") for n in wanted]
    jitneys = found.get("jitney", float("nan"))
    row += [f"{found[n] / jitneys:.2f}" if n in found else "" for n in ("flex", "fused")]
    row.append(", ".join(f"{errors[n]:.1e}" for n in ("eager", "jitney") if n in errors))
    torch.compiler.reset()
    jitney.reset()
    torch.cuda.empty_cache()
    return row, found


def _exact(case: Case, heads: list[Tensor], more: tuple[Tensor, ...], gradient: Tensor | None) -> Any:
    """The results of the first sequence in float64."""
    first = [x[:1].detach().double().requires_grad_(gradient is not None) for x in heads]
    wide = [x.double() if x.is_floating_point() else x[:1] for x in more]
    return step_of(case.hand, [*first, *wide], None if gradient is None else gradient[:1].double())()


if __name__ == "__main__":
    sys.exit(main())
