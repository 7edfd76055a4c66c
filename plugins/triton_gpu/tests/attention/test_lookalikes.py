"""What looks like attention and is something else, or is written to, or seen, by others: all of it is eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_lowering.attention import Recent
from jitney_triton_gpu.attention import kernels
from jitney_triton_gpu.attention.draft import Blocks

T = 33
Way = Callable[[Tensor, Tensor, Tensor], Any]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "blocks", lambda problem, goal: Blocks(16, 16, 4, 1))
    monkeypatch.setattr(kernels, "_launches", Recent(kernels.MOST))
    jitney.reset()


def t(x: Tensor) -> Tensor:
    return torch.arange(T, device=x.device)


def in_a_log(q: Tensor, k: Tensor, v: Tensor) -> Any:
    log = torch.zeros(2, 2, 2, T, T, device=q.device)
    s = q @ k.mT
    log[0] = s
    return s.softmax(-1) @ v, log


def statistics_of_a_norm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mean, var = torch.zeros(T, device=q.device), torch.ones(T, device=q.device)
    bias = mean[:, None] * 1 + var[None] * 0.5
    F.batch_norm(q.detach()[0, 0].mT, mean, var, training=True)
    other = mean[:, None] + var[None]
    return (q @ k.mT + bias + other).softmax(-1) @ v


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


def doubled_between(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, v = q.detach() * 1, v.detach() * 1
    s = q @ k.mT
    with torch.no_grad():
        Doubled.apply(q)
        Doubled.apply(v)
    return s.softmax(-1).detach() @ v + k.sum()


def left_padding(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    padded = (t(q) < 5)[None, None, None, :]
    low = torch.zeros(1, 1, 1, T, device=q.device).masked_fill(padded, torch.finfo(q.dtype).min)
    return (q @ k.mT).masked_fill(t(q)[None] > t(q)[:, None], -1e9).add(low).softmax(-1) @ v


def low_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q.detach() @ k.detach().mT) * -1e9).masked_fill(t(q)[None] > t(q)[:, None], -1e9).softmax(-1) @ v


def bytes_wrap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    u = t(q).to(torch.uint8)
    return (q @ k.mT).masked_fill((u[:, None] - u[None]) < 3, float("-inf")).softmax(-1).nan_to_num() @ v


def bytes_wrap_here(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    u = t(q).to(torch.uint8)
    return torch.where((u[:, None] - u[None]) <= 250, q @ k.mT, float("-inf")).softmax(-1) @ v


def int32_wraps(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    u = t(q).to(torch.int32)
    return (q @ k.mT).masked_fill(u[:, None] + (2**31 - 20) < u[None], float("-inf")).softmax(-1) @ v


def two_layers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    o = (q @ k.mT).softmax(-1) @ v
    return (o @ o.mT).softmax(-1) @ o


def of_the_result(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q @ k.mT).softmax(-1) @ v[..., :T]).softmax(-1) @ v[..., :8, :]


def nothing_but_later(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).masked_fill(t(q)[None] > t(q)[:, None] - 5, float("-inf")).softmax(-1) @ v


WAYS: dict[str, Way] = {
    "transposed": lambda q, k, v: (q @ k.mT).mT.softmax(-1) @ v,
    "transposed product": lambda q, k, v: (q @ k.mT * 0.3).mT.softmax(-1) @ v,
    "permuted": lambda q, k, v: (q @ k.mT * 0.3).permute(1, 0, 2, 3).softmax(-1) @ v,
    "expanded heads": lambda q, k, v: (q @ k.mT)[:, :1].expand(-1, 2, -1, -1).softmax(-1) @ v,
    "expanded keys": lambda q, k, v: (q @ k.mT)[..., :1].expand(-1, -1, -1, T).softmax(-1) @ v,
    "keys first": lambda q, k, v: torch.einsum("bhkd,bhqd->bhqk", k, q).softmax(-1) @ v,
    "weights turned": lambda q, k, v: torch.einsum("bhij,bhid->bhjd", (q @ k.mT).softmax(-1), v),
    "other batch order": lambda q, k, v: torch.einsum("bhij,bhjd->hbid", (q @ k.mT).softmax(-1), v),
    "features first": lambda q, k, v: torch.einsum("bhij,bhjd->bhdi", (q @ k.mT).softmax(-1), v),
    "flat for a while": lambda q, k, v: ((q @ k.mT).view(-1) * 2).view(2, 2, T, T).softmax(-1) @ v,
    "flat in place": lambda q, k, v: ((s := q @ k.mT), s.view(-1).mul_(2), s.softmax(-1) @ v)[2],
    "in a log": in_a_log,
    "statistics of a norm": statistics_of_a_norm,
    "doubled between": doubled_between,
    "left padding": left_padding,
    "low scale": low_scale,
    "scores, not weights": lambda q, k, v: ((s := q @ k.mT * 0.1), s.softmax(-1), s @ v)[2],
    "scores of the weights' type": lambda q, k, v: ((s := q @ k.mT * 0.1), s.type_as(s.softmax(-1)) @ v)[1],
    "bytes that wrap": bytes_wrap,
    "bytes that wrap beside": bytes_wrap_here,
    "numbers that wrap": int32_wraps,
    "rounded weights": lambda q, k, v: (q @ k.mT).softmax(-1).bfloat16().float() @ v,
    "rounded softmax": lambda q, k, v: (q @ k.mT).softmax(-1, dtype=torch.bfloat16).float() @ v,
    "rounded scores": lambda q, k, v: (q @ k.mT).bfloat16().float().softmax(-1) @ v,
    "two products": lambda q, k, v: (q @ k.mT + (q * 2) @ (k + 1).mT).softmax(-1) @ v,
    "two layers": two_layers,
    "the result twice": lambda q, k, v: ((o := (q @ k.mT).softmax(-1) @ v), (q @ k.mT).softmax(-1) @ o)[1],
    "nothing but later": nothing_but_later,
    "a bias of the queries": lambda q, k, v: (q.detach() @ k.detach().mT + q.mean(-1, True)).softmax(-1) @ v.detach(),
}


def leaves_of(device: torch.device) -> list[Tensor]:
    return [torch.randn(2, 2, T, 8, device=device).requires_grad_() for _ in range(3)]


def results(way: Way, leaves: list[Tensor]) -> list[Tensor]:
    found = way(*leaves)
    found = list(found) if isinstance(found, tuple) else [found]
    total = sum((r * torch.linspace(-1, 1, r.numel(), device=r.device).view(r.shape)).sum() for r in found)
    return [*found, *(g for g in torch.autograd.grad(total, leaves, allow_unused=True) if g is not None)]


@pytest.mark.parametrize("name", WAYS)
def test_numbers_gradients_and_layouts(name: str, device: torch.device) -> None:
    leaves = leaves_of(device)
    found = results(jitney.compile(WAYS[name], backend="triton_gpu"), leaves)
    expected = results(WAYS[name], leaves)
    assert len(found) == len(expected)
    wide = 3e-2 if "rounded" in name else 1e-4
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=wide, atol=wide, equal_nan=True)
    assert [x.stride() for x in found] == [x.stride() for x in expected]


def test_a_result_that_the_caller_changes(device: torch.device) -> None:
    leaves = leaves_of(device)
    compiled = jitney.compile(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, backend="triton_gpu")

    def changed(way: Way) -> tuple[Tensor, ...]:
        result = way(*leaves)
        result += 1
        return torch.autograd.grad(result.square().sum(), leaves)

    for a, b in zip(changed(compiled), changed(lambda q, k, v: (q @ k.mT).softmax(-1) @ v), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_what_a_softmax_is_told_to_fill(device: torch.device) -> None:
    q, k, v = (x.detach() for x in leaves_of(device))

    def way(q: Tensor, k: Tensor, v: Tensor, buffer: Tensor) -> Tensor:
        return torch.softmax(q @ k.mT, -1, out=buffer) @ v

    mine, theirs = torch.zeros(2, 2, T, T, device=device), torch.zeros(2, 2, T, T, device=device)
    found = jitney.compile(way, backend="triton_gpu")(q, k, v, mine)
    torch.testing.assert_close(found, way(q, k, v, theirs))
    torch.testing.assert_close(mine, theirs)


def test_the_gradient_of_a_bias_alone(device: torch.device) -> None:
    q, k, v = (x.detach() for x in leaves_of(device))
    bias = torch.randn(T, T, device=device).requires_grad_()

    def way(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return (q @ k.mT + bias).softmax(-1) @ v

    compiled = jitney.compile(way, backend="triton_gpu")
    found, expected = (torch.autograd.grad(f(q, k, v, bias).sin().sum(), bias) for f in (compiled, way))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_numbers_that_nobody_reads_are_drawn(device: torch.device) -> None:
    leaves = [x.detach() for x in leaves_of(device)]

    def way(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.full_like(q, 0.5).bernoulli()
        F.dropout(q, 0.5)
        weights = (q @ k.mT).softmax(-1)
        return weights @ v + torch.rand(1, device=q.device)

    torch.manual_seed(5)
    found = jitney.compile(way, backend="triton_gpu", fullgraph=True)(*leaves)
    torch.manual_seed(5)
    torch.testing.assert_close(found, way(*leaves), rtol=1e-4, atol=1e-4)


def test_scores_that_nobody_reads(device: torch.device) -> None:
    """The logarithms of sums that a program computes and throws away do not keep the scores in memory."""
    seen: list[str] = []

    def way(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT
        torch.logsumexp(scores, -1).mul(2)
        return scores.softmax(-1) @ v

    def note(event: object) -> None:
        if isinstance(event, events.Lowered):
            seen.extend(name for name, _ in event.whole)

    leaves = [x.detach() for x in leaves_of(device)]
    with events.listen(note):
        found = jitney.compile(way, backend="triton_gpu", fullgraph=True)(*leaves)
    torch.testing.assert_close(found, way(*leaves), rtol=1e-4, atol=1e-4)
    assert any("jitney.attention." in name for name in seen)
