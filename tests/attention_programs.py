"""Generated attention: sizes, types, layouts, masks, biases, caps and softmaxes, drawn by a number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import jitney

LOWS = (float("-inf"), float("-inf"), -1e9, -1e30, torch.finfo(torch.float32).min, -7.0)


@dataclass(frozen=True)
class Attention:
    """One program.

    Args:
        way: from query, key, value and others to the result.
        given: these; queries, keys and values of (batch, heads, tokens, features).
        text: what it does.
    """

    way: Callable[..., Tensor]
    given: tuple[Tensor, ...]
    text: str


def _mask(draw: random.Random, batch: int, queries: int, keys: int, text: list[str]) -> tuple[Any, list[Tensor]]:
    """What is seen, of positions and of tensors that are read; and these."""
    kind = draw.choice(["causal", "window", "documents", "lengths", "given", "later", "both", "none"])
    text.append(kind)
    width = draw.randrange(1, 12)
    if kind == "causal":
        return lambda i, j: j <= i, []
    if kind == "later":
        return lambda i, j: j >= i + width - 4, []
    if kind == "window":
        return lambda i, j: (i - j).abs() < width, []
    if kind == "both":
        return lambda i, j: (j <= i) & (i - j < width), []
    if kind == "documents":
        longest = max(queries, keys)
        documents = torch.arange(longest).div(width, rounding_mode="floor").expand(batch, -1).contiguous()
        return lambda i, j, d: d[:, None, :queries, None] == d[:, None, None, :keys], [documents]
    if kind == "lengths":
        lengths = torch.tensor([draw.randrange(0, keys + 3) for _ in range(batch)])
        return lambda i, j, n: (j < n[:, None]).view(batch, 1, 1, keys), [lengths]
    if kind == "given":
        seen = torch.rand(draw.choice([1, batch]), 1, draw.choice([1, queries]), keys) < draw.choice([0.1, 0.7])
        return lambda i, j, m: m, [seen]
    return None, []


def _softmax(kind: str, scores: Tensor, dtype: torch.dtype) -> Tensor:
    if kind == "float32":
        return scores.softmax(-1, dtype=torch.float32).to(dtype)
    if kind == "safe":
        return torch._safe_softmax(scores, -1).to(dtype)
    if kind == "written out":
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        return (e / e.sum(-1, keepdim=True)).to(dtype)
    return scores.softmax(-1).to(dtype)


def attention(seed: int, dtype: torch.dtype = torch.float32, trains: bool = True) -> Attention:
    """The program of this number."""
    draw, _ = random.Random(seed), torch.manual_seed(seed)
    batch, heads = draw.choice([1, 2]), draw.choice([1, 2, 3])
    queries, keys = draw.choice([1, 17, 21, 33]), draw.choice([16, 19, 40])
    if draw.random() < 0.6:
        keys = queries = max(queries, 16)
    features, width = draw.choice([16, 20]), draw.choice([16, 12])
    text = [f"{batch}x{heads}, {queries} by {keys}"]
    shared = draw.random() < 0.3
    turned = draw.random() < 0.4

    def matrices(count: int, tokens: int, size: int) -> Tensor:
        if turned:
            made = torch.randn(batch, tokens, count, size).to(dtype).requires_grad_(trains)
            return made.transpose(1, 2)
        return torch.randn(batch, count, tokens, size).to(dtype).requires_grad_(trains)

    few = 1 if shared else heads
    q, k, v = matrices(heads, queries, features), matrices(few, keys, features), matrices(few, keys, width)
    q, k, v = (x.detach().requires_grad_(trains) for x in (q, k, v))
    seen, read = _mask(draw, batch, queries, keys, text)
    low = draw.choice(LOWS)
    bias = None
    if draw.random() < 0.5:
        size = [draw.choice([1, n]) for n in (batch, heads, queries, keys)]
        bias = torch.randn(size).to(draw.choice([dtype, torch.float32])).requires_grad_(trains and draw.random() < 0.5)
    cap, wide = draw.choice([None, None, 3.0]), draw.random() < 0.4
    softmax = draw.choice(["plain", "float32", "safe", "written out"])
    how = draw.choice(["where", "masked_fill", "add"])
    before = draw.random() < 0.5
    learned = bias is not None and bias.requires_grad
    text += [str(low), how, f"bias {None if bias is None else tuple(bias.shape)} {learned}", f"cap {cap}", softmax]
    text += [f"shared {shared}", f"turned {turned}", f"wide {wide}"]

    def way(q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
        rest = list(others)
        added = rest.pop() if bias is not None else None
        at_query, at_key = torch.arange(queries, device=q.device)[:, None], torch.arange(keys, device=q.device)
        left, right = (q.float(), k.mT.float()) if wide else (q, k.mT)
        scores = left @ right * 0.3
        if added is not None and before:
            scores = scores + added
        if cap is not None:
            scores = cap * torch.tanh(scores / cap)
        if seen is not None:
            shown = seen(at_query, at_key, *rest)
            if how == "where":
                scores = torch.where(shown, scores, torch.tensor(low, dtype=scores.dtype, device=q.device))
            elif how == "masked_fill":
                scores = scores.masked_fill(~shown, max(low, torch.finfo(scores.dtype).min) if low > -1e38 else low)
            else:
                scores = scores + torch.zeros(shown.shape, dtype=scores.dtype, device=q.device).masked_fill(~shown, low)
        if added is not None and not before:
            scores = scores + added
        return _softmax(softmax, scores, v.dtype) @ v

    given = (q, k, v, *read, *([bias] if bias is not None else []))
    return Attention(way, given, ", ".join(text))


DTYPES = (torch.float32, torch.bfloat16, torch.float32, torch.float16)


def check(seed: int, backend: str, device: torch.device | str = "cpu") -> None:
    """The program of that number beside eager, with gradients of what learns."""
    dtype = DTYPES[seed % len(DTYPES)]
    program = attention(seed, dtype, trains=seed % 3 != 0)
    given = [x.detach().to(device).requires_grad_(x.requires_grad) for x in program.given]
    leaves = [x for x in given if x.requires_grad]
    found, expected = jitney.compile(program.way, backend=backend, fullgraph=True)(*given), program.way(*given)
    weights = torch.linspace(-1, 1, expected.numel(), device=expected.device).view(expected.shape).to(expected.dtype)

    def gradients(result: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(result, leaves, weights) if leaves else ()

    for mine, theirs in zip((found, *gradients(found)), (expected, *gradients(expected)), strict=True):
        least = 2e-5 if dtype is torch.float32 else 5e-2
        size = max(1.0, float(theirs.detach().nan_to_num(0.0).abs().max()))
        torch.testing.assert_close(mine, theirs, rtol=least, atol=least * size, equal_nan=True, msg=program.text)
