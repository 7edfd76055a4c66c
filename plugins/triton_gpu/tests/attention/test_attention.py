"""Attention that is written out: one kernel, with eager's numbers and gradients, whatever is done to the products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_lowering.attention import Recent
from jitney_triton_gpu.attention import draft, kernels
from jitney_triton_gpu.attention.draft import Blocks

B, H, T, D, E = 2, 2, 53, 20, 12


@pytest.fixture(autouse=True, params=[(16, 16), (32, 16)], ids=["square", "oblong"])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Several blocks of queries and keys, of which some are whole and some are not."""
    monkeypatch.setattr(kernels, "blocks", lambda problem, goal: Blocks(*request.param, 4, 1))
    monkeypatch.setattr(kernels, "_launches", Recent(kernels.MOST))
    jitney.reset()
    return iter([None])


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).softmax(-1) @ v


def bare(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.matmul(torch.softmax(torch.matmul(q * 0.2, k.mT), -1), v)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()
    return F.softmax((q @ k.mT * 0.3).masked_fill(~mask, float("-inf")), dim=-1) @ v


def later_by_addition(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.full((q.size(-2), k.size(-2)), float("-inf"), device=q.device, dtype=q.dtype).triu(1)
    return (q @ k.mT * 0.3 + mask).softmax(-1) @ v


def padding(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    lengths = torch.tensor([17, 50], device=q.device)
    scores = torch.where((torch.arange(k.size(-2), device=q.device) < lengths[:, None])[:, None, None], q @ k.mT, -1e9)
    return F.dropout(scores.softmax(-1), 0.1, training=False) @ v


def soft_cap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    seen = (t[None, :] <= t[:, None]) & (t[:, None] - t[None, :] < 21)
    scores = (5 * torch.tanh(q @ k.mT / 5)).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    return torch.where((t[:, None] - t[None, :]).abs() <= 18, q @ k.mT, float("-inf")).softmax(-1) @ v


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    slopes = 2.0 ** -torch.arange(1, q.size(1) + 1, device=q.device)
    distance = torch.arange(k.size(-2), device=q.device) - torch.arange(q.size(-2), device=q.device)[:, None]
    added = (slopes[:, None, None] * distance).to(q.dtype).masked_fill(distance > 0, float("-inf"))
    return torch.einsum("bhij,bhje->bhie", (torch.einsum("bhid,bhjd->bhij", q, k) * 0.2 + added).softmax(-1), v)


def table(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    entries = torch.linspace(-1, 1, q.size(1) * (2 * len(t) - 1), device=q.device, dtype=q.dtype).view(q.size(1), -1)
    return (q @ k.mT + entries[:, t[:, None] - t[None, :] + len(t) - 1]).softmax(-1) @ v


def in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores *= 0.1
    scores += 0.5
    scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1), -1e9)
    return scores.softmax(dim=-1) @ v


def flat_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    b, h, t, d = q.shape
    scores = torch.bmm(q.reshape(b * h, t, d), k.reshape(b * h, -1, d).transpose(1, 2)).view(b, h, t, -1)
    heads = torch.linspace(0, 1, h, device=q.device, dtype=q.dtype).view(1, h, 1, 1)
    weights = (scores * (1 + heads)).softmax(-1).view(b * h, t, -1)
    return torch.bmm(weights, v.reshape(b * h, -1, v.size(-1))).view(b, h, t, -1)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    b, h, t, d = q.shape
    scores = torch.matmul(q.view(b, 1, h, t, d), k[:, :1].unsqueeze(2).transpose(-1, -2)) / d**0.5
    return torch.matmul(scores.softmax(-1), v[:, :1].unsqueeze(2)).flatten(1, 2)


def other_order(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.einsum("bhqk,bkhd->bqhd", torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1), v)


WAYS = [
    plain, bare, causal, later_by_addition, padding, soft_cap, window, alibi, table, in_place, flat_batch, grouped,
    other_order,
]  # fmt: skip


def close(found: Any, expected: Any, *, equal_nan: bool = False) -> None:
    """Float32 with gradients: of other sums, on tensor units of three parts."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=3e-5, equal_nan=equal_nan)


def given(device: torch.device, dtype: torch.dtype, trains: bool) -> list[Tensor]:
    q, k = (torch.randn(B, T, H, D, device=device, dtype=dtype).requires_grad_(trains) for _ in range(2))
    return [q, k, torch.randn(B, H, T, E, device=device, dtype=dtype).requires_grad_(trains)]


def called(way: Callable[..., Tensor], leaves: list[Tensor]) -> Tensor:
    q, k, v = leaves
    return way(q.transpose(1, 2), k.transpose(1, 2), v)


def fused(compile_and_call: Callable[[], Any]) -> tuple[Any, list[str]]:
    seen: list[events.Lowered] = []
    with events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None):
        result = compile_and_call()
    return result, [name for event in seen for name, _ in event.whole]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_numbers_and_gradients(way: Callable[..., Tensor], dtype: torch.dtype, device: torch.device) -> None:
    leaves = given(device, dtype, True)
    compiled = jitney.compile(way, backend="triton_gpu", fullgraph=True)

    def run() -> tuple[Tensor, ...]:
        result = called(compiled, leaves)
        return (result, *torch.autograd.grad(result, leaves, torch.ones_like(result) * 0.5 + result.detach()))

    found, whole = fused(run)
    assert any("jitney.attention." in name for name in whole) and any("attention_backward" in name for name in whole)
    assert not any(name.startswith(("aten.bmm", "aten._softmax")) for name in whole)
    eager = called(way, leaves)
    expected = (eager, *torch.autograd.grad(eager, leaves, torch.ones_like(eager) * 0.5 + eager.detach()))
    wide = [x.detach().double().requires_grad_() for x in leaves]
    exact = called(way, wide)
    exact_all = (exact, *torch.autograd.grad(exact, wide, torch.ones_like(exact) * 0.5 + exact.detach()))
    assert found[0].stride() == eager.stride()
    for mine, theirs, true in zip(found, expected, exact_all, strict=True):
        size = true.abs().max()
        least = 2e-2 if dtype is torch.bfloat16 else 5e-6
        assert (mine.double() - true).abs().max() <= max(2 * (theirs.double() - true).abs().max(), least * size)


@pytest.mark.parametrize("way", [causal, padding, soft_cap, table], ids=lambda way: way.__name__)
def test_inference(way: Callable[..., Tensor], device: torch.device) -> None:
    leaves = given(device, torch.float32, False)
    found, whole = fused(lambda: called(jitney.compile(way, backend="triton_gpu", fullgraph=True), leaves))
    assert any("jitney.attention." in name for name in whole)
    close(found, called(way, leaves))


def nothing_seen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    return (q @ k.mT).masked_fill((t < 20)[:, None], float("-inf")).softmax(-1) @ v


def infinite(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    return torch.where((t == 3)[:, None] & (t == 40), float("inf"), q @ k.mT).softmax(-1) @ v


def not_a_number(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    return (q @ k.mT).masked_fill((t == 5)[:, None] & (t == 40), float("nan")).softmax(-1) @ v


@pytest.mark.parametrize("way", [nothing_seen, infinite, not_a_number], ids=lambda way: way.__name__)
def test_rows_without_weights_are_nan_as_in_eager(way: Callable[..., Tensor], device: torch.device) -> None:
    leaves = given(device, torch.float32, True)
    found, whole = fused(lambda: called(jitney.compile(way, backend="triton_gpu", fullgraph=True), leaves))
    assert any("jitney.attention." in name for name in whole)
    expected = called(way, leaves)
    assert expected.isnan().any() and not expected.isnan().all()
    close(found, expected, equal_nan=True)
    mine, theirs = (torch.autograd.grad(r.nan_to_num(0.0).sum(), leaves) for r in (found, expected))
    for a, b in zip(mine, theirs, strict=True):
        close(a, b, equal_nan=True)


def weights_too(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


def scores_too(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT
    return scores.softmax(-1) @ v, scores.amax(-1)


def other_dimension(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-2) @ v


def normalised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    return (scores / scores.norm(dim=-1, keepdim=True)).softmax(-1) @ v


def turned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    return (scores + scores.mT).softmax(-1) @ v


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.dropout((q @ k.mT).softmax(-1), 0.5) @ v


def rescaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q @ k.mT).softmax(-1) * 2) @ v


@pytest.mark.parametrize(
    "way",
    [weights_too, scores_too, other_dimension, normalised, turned, dropped, rescaled],
    ids=lambda way: way.__name__,
)
def test_what_is_something_else_stays(way: Callable[..., Any], device: torch.device) -> None:
    leaves = given(device, torch.float32, True)
    torch.manual_seed(3)
    compiled = jitney.compile(way, backend="triton_gpu", fullgraph=True)
    found, whole = fused(lambda: called(compiled, leaves))
    assert not any("jitney.attention" in name for name in whole)
    torch.manual_seed(3)
    close(found, called(way, leaves))


def mask_is_changed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    spread = mask[:, None] & mask[None, :]
    mask.logical_not_()
    return (q @ k.mT).masked_fill(spread, -10.0).softmax(-1) @ v


def changed_between(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = (q @ k.mT).masked_fill(mask, -10.0)
    v.mul_(2)
    weights = scores.softmax(-1)
    return weights @ v


@pytest.mark.parametrize("way", [mask_is_changed, changed_between], ids=lambda way: way.__name__)
def test_what_is_written_to_meanwhile(way: Callable[..., Tensor], device: torch.device) -> None:
    q, k, v = given(device, torch.float32, False)
    mask = torch.arange(T, device=device) % 3 == 0
    mine, theirs = [v.clone(), mask.clone()], [v.clone(), mask.clone()]
    turned_q, turned_k = q.transpose(1, 2), k.transpose(1, 2)
    found = jitney.compile(way, backend="triton_gpu", fullgraph=True)(turned_q, turned_k, *mine)
    torch.testing.assert_close(found, way(turned_q, turned_k, *theirs))
    close(mine, theirs)


def test_places_in_64_bits_say_the_same(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitney_lowering.ir.index_width.NARROW", 1)
    leaves = given(device, torch.float32, True)
    found = called(jitney.compile(soft_cap, backend="triton_gpu"), leaves)
    expected = called(soft_cap, leaves)
    close(found, expected)
    for a, b in zip(*(torch.autograd.grad(r.sum(), leaves) for r in (found, expected)), strict=True):
        close(a, b)


def test_it_can_be_refused(device: torch.device) -> None:
    leaves = given(device, torch.float32, False)
    compiled = jitney.compile(causal, backend="triton_gpu", options={"fused_attention": False})
    _, whole = fused(lambda: called(compiled, leaves))
    assert not any("attention" in name for name in whole)


def test_second_gradients_are_eagers(device: torch.device) -> None:
    leaves = [x.detach().double().requires_grad_() if False else x for x in given(device, torch.float32, True)]

    def twice(way: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(called(way, leaves).sin().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    for a, b in zip(twice(jitney.compile(soft_cap, backend="triton_gpu")), twice(soft_cap), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def low_number(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    seen = (t[None, :] <= t[:, None]) & (t[:, None] - t[None, :] < 9)
    least = torch.tensor(torch.finfo(q.dtype).min, device=q.device, dtype=q.dtype)
    return torch.where(seen, q @ k.mT, least).softmax(-1) @ v


def low_number_of_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    return (q @ k.mT).masked_fill(t[:, None] - t[None, :] < 20, -1e30).softmax(-1) @ v


def two_masks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(q.size(-2), device=q.device)
    scores = (q @ k.mT).masked_fill(t[None, :] > t[:, None], float("-inf"))
    return scores.masked_fill(t[None, :] < 30, -1e30).softmax(-1) @ v


@pytest.mark.parametrize("way", [low_number, low_number_of_all, two_masks], ids=lambda way: way.__name__)
def test_masks_of_finite_numbers(way: Callable[..., Tensor], device: torch.device) -> None:
    """Queries that see nothing weigh all that is hidden by the same number."""
    leaves = given(device, torch.float32, True)
    found, whole = fused(lambda: called(jitney.compile(way, backend="triton_gpu", fullgraph=True), leaves))
    assert any("jitney.attention." in name for name in whole)
    expected = called(way, leaves)
    close(found, expected)
    for a, b in zip(*(torch.autograd.grad(r.sin().sum(), leaves) for r in (found, expected)), strict=True):
        close(a, b)


def shorter(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, low: float) -> Tensor:
    seen = torch.arange(k.size(-2), device=q.device) < lengths[:, None]
    return (q @ k.mT).masked_fill(~seen[:, None, None], low).softmax(-1) @ v


def shorter_and_causal(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, low: float) -> Tensor:
    t = torch.arange(k.size(-2), device=q.device)
    seen = (t < lengths[:, None])[:, None, None] & (t <= torch.arange(q.size(-2), device=q.device)[:, None])
    return torch.where(seen, q @ k.mT, low).softmax(-1) @ v


@pytest.mark.parametrize("low", [float("-inf"), -1e30], ids=["infinite", "finite"])
@pytest.mark.parametrize("way", [shorter, shorter_and_causal], ids=lambda way: way.__name__)
def test_lengths_that_are_read(
    way: Callable[..., Tensor], low: float, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One compiled function, many lengths: also none, all, and more than there are. They bound the loops."""
    bounds: list[Any] = []
    span = draft.span
    monkeypatch.setattr(draft, "span", lambda found, *rest, **named: bounds.extend(
        bound.number for mask in found for bound in mask.bounds) or span(found, *rest, **named))  # fmt: skip
    leaves = given(device, torch.float32, True)

    def program(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        return way(q.transpose(1, 2), k.transpose(1, 2), v, lengths, low)

    compiled = jitney.compile(program, backend="triton_gpu", fullgraph=True)
    for lengths in ([17, 100], [0, 33]):
        read = torch.tensor(lengths, device=device)
        found, whole = fused(lambda read=read: compiled(*leaves, read))
        assert not whole or any("jitney.attention." in name for name in whole)
        expected = program(*leaves, read)
        close(found, expected, equal_nan=True)
        weights = torch.ones_like(expected) * 0.5
        for a, b in zip(*(torch.autograd.grad(r, leaves, weights) for r in (found, expected)), strict=True):
            close(a, b, equal_nan=True)
    assert any(number is not None for number in bounds)


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * 0.3
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v


def written_out_of_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = causal_scores(q, k)
    e = (scores - scores.max(dim=-1, keepdim=True).values.detach()).exp()
    return torch.matmul(e.div(torch.sum(e, dim=-1, keepdim=True)), v)


def written_out_in_rows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = causal_scores(q, k)
    e = (scores - torch.max(scores, -1)[0][..., None]).exp()
    return (e / e.sum(-1).unsqueeze(-1)) @ v


def written_out_without_maximum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = causal_scores(q, k).exp()
    return (e / e.sum(dim=(-1,), keepdim=True)) @ v


def causal_scores(q: Tensor, k: Tensor) -> Tensor:
    mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).triu(1)
    return (q @ k.mT * 0.3).masked_fill(mask, float("-inf"))


@pytest.mark.parametrize(
    "way",
    [written_out, written_out_of_values, written_out_in_rows, written_out_without_maximum],
    ids=lambda way: way.__name__,
)
def test_softmax_that_is_written_out(way: Callable[..., Tensor], device: torch.device) -> None:
    leaves = given(device, torch.float32, True)
    found, whole = fused(lambda: called(jitney.compile(way, backend="triton_gpu", fullgraph=True), leaves))
    assert any("jitney.attention." in name for name in whole)
    expected = called(way, leaves)
    torch.testing.assert_close(found, expected)
    for a, b in zip(*(torch.autograd.grad(r.sin().sum(), leaves) for r in (found, expected)), strict=True):
        torch.testing.assert_close(a, b)


def written_before_division(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    e = scores.detach().exp()
    scores.zero_()
    return e / e.sum(-1, keepdim=True) @ v


def with_something_added(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = (q @ k.mT).exp()
    return e / (e.sum(-1, keepdim=True) + 1) @ v


def of_others(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = (q @ k.mT).exp()
    return e / (e * 2).sum(-1, keepdim=True) @ v


def doubled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = (q.detach() @ k.detach().mT).exp()
    total = e.sum(-1, keepdim=True)
    e *= 2
    return e / total @ v


def of_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    e = (q @ k.mT).exp()
    return e / e.sum(-2, keepdim=True) @ v


def of_few(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    e = torch.exp(scores - scores.amax(-2, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v


@pytest.mark.parametrize(
    "way",
    [written_before_division, with_something_added, of_others, doubled, of_all, of_few],
    ids=lambda way: way.__name__,
)
def test_what_is_no_softmax_stays(way: Callable[..., Tensor], device: torch.device) -> None:
    leaves = [x * 0.3 for x in given(device, torch.float32, False)]
    found, whole = fused(lambda: called(jitney.compile(way, backend="triton_gpu", fullgraph=True), leaves))
    assert not any("jitney.attention" in name for name in whole)
    torch.testing.assert_close(found, called(way, leaves))


def bias_of_keys(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return (q @ k.mT * 0.2 + k.mean(-1).unsqueeze(-2) * bias[:, :1, :1]).softmax(-1) @ v


def whole_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return (q @ k.mT * 0.2 + bias[:, :T, :T]).softmax(-1) @ v


def bias_below_a_mask(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    mask = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    return (q @ k.mT * 0.2 + bias[:, :T, :T]).masked_fill(mask, float("-inf")).softmax(-1) @ v


def capped_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return (3 * torch.tanh((q @ k.mT * 0.2 + bias[:, :T, :1]) / 3)).softmax(-1) @ v


def learned_slopes(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    t = torch.arange(T, device=q.device)
    return (q @ k.mT * 0.2 + bias[:, :1, :1] * (t[None] - t[:, None])).softmax(-1) @ v


def learned_table(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    t = torch.arange(T, device=q.device)
    return (q @ k.mT + F.embedding((t[None] - t[:, None]).clamp(-9, 9) + 9, bias[:, 0].mT).permute(2, 0, 1)).softmax(
        -1
    ) @ v


def learned_scale(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return (q @ k.mT * bias[:, :1, :1]).softmax(-1) @ v


LEARNED = [
    bias_of_keys, whole_bias, bias_below_a_mask, capped_bias, learned_slopes, learned_table, learned_scale,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("way", LEARNED, ids=lambda way: way.__name__)
def test_what_the_score_reads_learns(way: Callable[..., Tensor], dtype: torch.dtype, device: torch.device) -> None:
    bias = torch.randn(H, T + 3, T + 5, device=device, dtype=dtype).requires_grad_()
    leaves = [*given(device, dtype, True), bias]

    def whole_call(fn: Callable[..., Tensor], leaves: list[Tensor]) -> tuple[Tensor, ...]:
        result = fn(leaves[0].transpose(1, 2), leaves[1].transpose(1, 2), *leaves[2:])
        return result, *torch.autograd.grad(result, leaves, torch.ones_like(result) * 0.5 + result.detach())

    compiled = jitney.compile(way, backend="triton_gpu", fullgraph=True)
    found, whole = fused(lambda: whole_call(compiled, leaves))
    assert any("attention_scores_backward" in name for name in whole)
    assert not any(name.startswith("aten._softmax") for name in whole)
    wide = [x.detach().double().requires_grad_() for x in leaves]
    for mine, theirs, true in zip(found, whole_call(way, leaves), whole_call(way, wide), strict=True):
        # What is rounded of a result is the same in all of its row: slopes, which add up by distance, see it most.
        least = 5e-6 if dtype is torch.float32 else 1e-1 if way is learned_slopes else 2e-2
        error = (mine.double() - true).abs().max()
        assert error <= max(2 * (theirs.double() - true).abs().max(), least * true.abs().max())
