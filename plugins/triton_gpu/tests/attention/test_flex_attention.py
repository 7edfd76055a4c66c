"""``flex_attention``: the same kernel as attention that is written out, with zeros where a query sees nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flex_cases import MASKS, SCORES, B, D, H, M, plain
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import jitney
from jitney import events
from jitney_lowering.attention import Recent
from jitney_triton_gpu.attention import kernels
from jitney_triton_gpu.attention.draft import Blocks

FITTING = ["none", "alibi", "table", "causal", "documents", "rows without keys", "all low", "nan"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "blocks", lambda problem, goal: Blocks(16, 16, 4, 1))
    monkeypatch.setattr(kernels, "_launches", Recent(kernels.MOST))
    jitney.reset()


@pytest.fixture(autouse=True)
def tables_there(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """What the functions read lies where the tensors are."""
    for name in ("SLOPES", "TABLE", "BIAS", "DOCUMENTS", "WIDTH", "DOUBLE"):
        monkeypatch.setattr(f"flex_cases.{name}", getattr(__import__("flex_cases"), name).to(device))


def leaves(device: torch.device, heads: int = H, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    made = [torch.randn(B, n, M, D, device=device).to(dtype) for n in (H, heads, heads)]
    return [x.requires_grad_() for x in made]


def same(
    way: Callable[..., Any],
    reference: Callable[..., Any],
    given: list[Tensor],
    least: float = 1e-4,
    *,
    whole: bool = True,
) -> None:
    """Are numbers and gradients the same, by the kernel (or without it)?"""
    seen: list[events.Lowered] = []
    with events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None):
        found = jitney.compile(way, backend="triton_gpu", fullgraph=True)(*given)
        mine = torch.autograd.grad(found, given, torch.cos(found.detach()))
    called = {name for event in seen for name, _ in event.whole}
    assert any("jitney.attention." in name for name in called) is whole
    assert any("jitney.attention_backward" in name for name in called) is whole
    expected = reference(*given)
    theirs = torch.autograd.grad(expected, given, torch.cos(expected.detach()))
    for a, b in zip((found, *mine), (expected, *theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=least, atol=least, equal_nan=True)


@pytest.mark.parametrize("name", FITTING)
def test_scores(name: str, device: torch.device) -> None:
    score = SCORES[name]
    same(lambda q, k, v: flex_attention(q, k, v, score), lambda q, k, v: plain(q, k, v, score), leaves(device))


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, device: torch.device) -> None:
    mask, score = MASKS[name], SCORES["cap"]
    blocks = create_block_mask(mask, B, H, M, M, device=device)
    same(
        lambda q, k, v: flex_attention(q, k, v, score, blocks),
        lambda q, k, v: plain(q, k, v, score, mask),
        leaves(device),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_shared_heads(dtype: torch.dtype, device: torch.device) -> None:
    """Halves are multiplied as such: torch multiplies them as float32."""
    blocks = create_block_mask(MASKS["causal"], None, None, M, M, device=device)
    same(
        lambda q, k, v: flex_attention(q, k, v, SCORES["alibi"], blocks, enable_gqa=True),
        lambda q, k, v: plain(q, k, v, SCORES["alibi"], MASKS["causal"]),
        leaves(device, 2, dtype),
        1e-4 if dtype is torch.float32 else 4e-2,
    )


def test_in_another_order(device: torch.device) -> None:
    q = torch.randn(B, M, H, D, device=device, requires_grad=True)
    same(
        lambda q, k, v: flex_attention(q.transpose(1, 2), k, v),
        lambda q, k, v: plain(q.transpose(1, 2), k, v),
        [q, *leaves(device)[1:]],
    )


def test_a_table_that_learns(device: torch.device) -> None:
    table = torch.randn(H, 2 * M, device=device, requires_grad=True)

    def score(table: Tensor) -> Callable[..., Any]:
        return lambda s, b, h, i, j: 5 * torch.tanh((s + table[h, i - j + M]) / 5)

    blocks = create_block_mask(MASKS["window"], None, None, M, M, device=device)
    same(
        lambda q, k, v, table: flex_attention(q, k, v, score(table), blocks),
        lambda q, k, v, table: plain(q, k, v, score(table), MASKS["window"]),
        [*leaves(device), table],
    )


def test_what_is_hidden_by_position_is_not_looked_at(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though some queries see nothing: their weights are zeros, so are all gradients."""
    texts: list[str] = []
    load = kernels.load

    def noting(source: str, *rest: Any) -> Any:
        texts.append(source)
        return load(source, *rest)

    monkeypatch.setattr(kernels, "load", noting)
    blocks = create_block_mask(MASKS["earlier"], None, None, M, M, device=device)
    given = leaves(device)
    found = jitney.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), backend="triton_gpu")(*given)
    torch.testing.assert_close(found, plain(*given, mask=MASKS["earlier"]))
    assert found[:, :, :21].eq(0).all()
    (text,) = texts
    (line,) = [line for line in text.splitlines() if "end = tl.minimum(" in line][:1]
    assert "first + YBLOCK - 1" in line
