"""Attention that is written out, block by block on a CPU: eager's numbers, and no memory for all products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flex_cases import MASKS, SCORES, B, H, M, plain, tensors
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import jitney
from jitney import events
from jitney_llvm_cpu.attention import blocks, choice, operators
from jitney_lowering.attention import Recent


@pytest.fixture(autouse=True, params=[(8, 300), (16, 16 * 37), (64, 3 * 37 * 37), (64, 1 << 20)], ids=str)
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Of some rows, the last of which are computed twice; of several matrices; of all."""
    rows, elements = request.param
    monkeypatch.setattr(blocks, "ROWS", rows)
    monkeypatch.setattr(blocks, "ELEMENTS", elements)
    for name in ("LARGE", "LARGEST"):
        monkeypatch.setattr(choice, name, 1)
    monkeypatch.setattr(operators, "_plans", Recent(operators.MOST))
    jitney.reset()
    return rows, elements


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * 0.25


def ahead(q: Tensor, by: int = 0) -> Tensor:
    t = torch.arange(q.size(-2))
    return t[None] > t[:, None] + by


def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores(q, k).softmax(-1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores(q, k).masked_fill(ahead(q), float("-inf")).softmax(-1) @ v


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = ahead(q) | ~ahead(q, -9)
    return torch.where(hidden, float("-inf"), 3 * torch.tanh(scores(q, k) / 3)).softmax(-1) @ v


def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    bias = torch.linspace(-1, 1, H * M * M).view(H, M, M)
    return (scores(q, k) + bias).softmax(-1) @ v


def nothing_seen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores(q, k).masked_fill((torch.arange(M) < 20)[:, None], float("-inf")).softmax(-1) @ v


def infinite(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = torch.arange(M)
    return torch.where((t == 3)[:, None] & (t == 30), float("inf"), scores(q, k)).softmax(-1) @ v


def low_numbers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores(q, k).masked_fill(ahead(q, -5), -1e30).softmax(-1) @ v


def other_sizes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores(q[:, :, :11], k[:, :1]).masked_fill(torch.arange(M) > 20, -1e9).softmax(-1) @ v[:, :1, :, :5]


WAYS = [whole, causal, window, biased, nothing_seen, infinite, low_numbers, other_sizes]


def alike(way: Callable[..., Any], reference: Callable[..., Any], leaves: list[Tensor], names: set[str]) -> None:
    """Are numbers and gradients the same, by operators of these names?"""
    called: set[str] = set()

    def note(event: object) -> None:
        if isinstance(event, events.Lowered):
            called.update(name for name, _ in event.whole)

    with events.listen(note):
        found = jitney.compile(way, backend="llvm_cpu", fullgraph=True)(*leaves)
        mine = torch.autograd.grad(found.nan_to_num(0.0).sin().sum(), leaves) if leaves[0].requires_grad else ()
    assert {name for name in called if "attention" in name} == names
    expected = reference(*leaves)
    theirs = torch.autograd.grad(expected.nan_to_num(0.0).sin().sum(), leaves) if leaves[0].requires_grad else ()
    for a, b in zip((found, *mine), (expected, *theirs), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_numbers_and_gradients(way: Callable[..., Tensor], trains: bool) -> None:
    leaves = [x.requires_grad_(trains) for x in tensors()]
    names = {"jitney.attention.default"} | ({"jitney.attention_backward.default"} if trains else set())
    alike(way, way, leaves, names)


@pytest.mark.parametrize("name", ["window", "documents", "rows without keys", "earlier"])
def test_flex_attention(name: str) -> None:
    blocks = create_block_mask(MASKS[name], B, H, M, M, device="cpu")
    score = SCORES["alibi"]
    alike(
        lambda q, k, v: flex_attention(q, k, v, score, blocks, enable_gqa=True),
        lambda q, k, v: plain(q, k, v, score, MASKS[name]),
        [x.requires_grad_() for x in tensors((H, 2, 2))],
        {"jitney.attention.default", "jitney.attention_backward.default"},
    )


def test_nobody_holds_all_products(small_blocks: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, elements = small_blocks
    sizes: list[int] = []
    bmm = torch.bmm

    def noting(a: Tensor, b: Tensor) -> Tensor:
        made = bmm(a, b)
        sizes.append(made.numel())
        return made

    leaves = [x.requires_grad_() for x in tensors()]
    fn = jitney.compile(causal, backend="llvm_cpu")
    fn(*leaves).sum().backward()
    monkeypatch.setattr(torch, "bmm", noting)
    fn(*leaves).sum().backward()
    assert sizes and max(sizes) <= max(rows * M, elements, rows * B * H * 16)


def test_halves_are_torchs_in_inference() -> None:
    leaves = tensors(dtype=torch.bfloat16)
    called: list[str] = []

    def note(event: object) -> None:
        if isinstance(event, events.Lowered):
            called.extend(name for name, _ in event.whole)

    with events.listen(note):
        found = jitney.compile(causal, backend="llvm_cpu")(*leaves)
    assert any("scaled_dot_product" in name for name in called)
    exact = causal(*(x.double() for x in leaves))
    error, eager = ((x.double() - exact).abs().max() for x in (found, causal(*leaves)))
    assert error <= 1.5 * eager


@pytest.mark.parametrize("way", [whole, causal])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_infinite_in_halves_is_not_lost(way: Callable[..., Tensor], dtype: torch.dtype) -> None:
    q, k, v = tensors(dtype=dtype)
    q[0, 0, 3, 1], k[0, 0, 0, 1] = float("inf"), 1.0
    k[1, 1, 2, 1] = float("inf")
    found = jitney.compile(way, backend="llvm_cpu")(q, k, v)
    assert torch.equal(found.isnan(), way(q.float(), k.float(), v.float()).isnan())


@pytest.mark.parametrize("refused", ["option", "few"])
def test_it_stays_as_it_was_written(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if refused == "few":
        for name in ("LARGE", "LARGEST"):
            monkeypatch.setattr(choice, name, B * H * M * M + 1)
    leaves = tensors()
    fn = jitney.compile(causal, backend="llvm_cpu", options={"fused_attention": refused != "option"})
    monkeypatch.delattr(operators, "attention")
    torch.testing.assert_close(fn(*leaves), causal(*leaves))


def learns_nothing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores(q, k).detach().softmax(-1) @ v


def whole_numbers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q, k) > 0).float().softmax(-1) @ v


def gradients_in_it(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    result = causal(q, k, v).sin().sum()
    (gradient,) = torch.autograd.grad(result, q, create_graph=True)
    return gradient.pow(2)


def backward_in_it(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    causal(q, k, v).sin().sum().backward(create_graph=True)
    gradient = q.grad
    assert gradient is not None
    q.grad = k.grad = v.grad = None
    return gradient.pow(2)


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
@pytest.mark.parametrize("way", [learns_nothing, whole_numbers, gradients_in_it, backward_in_it])
def test_weights_without_gradients_and_gradients_with_gradients_stay(way: Callable[..., Tensor]) -> None:
    def one(*given: Tensor) -> Tensor:
        return way(*given)

    leaves = [x.requires_grad_() for x in tensors()]
    results = [fn(*leaves).sum() for fn in (jitney.compile(one, backend="llvm_cpu", fullgraph=True), one)]
    found, expected = (torch.autograd.grad(r, leaves, allow_unused=True) for r in results)
    for a, b in zip((results[0], *found), (results[1], *expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
