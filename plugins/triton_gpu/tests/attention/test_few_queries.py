"""Attention of few queries, as in decoding: torch's calls, whose keys are shared out among programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_lowering.attention import calls
from jitney_triton_gpu.attention import blocks, kernels

ATTENTION = F.scaled_dot_product_attention
Way = Callable[..., Tensor]


def plain(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    return ATTENTION(q, k, v, enable_gqa=True)


def cache(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    mask = torch.arange(k.size(2), device=k.device)[None] <= position
    return ATTENTION(q, k, v, mask, enable_gqa=True)


def window(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    at = torch.arange(k.size(2), device=k.device)
    mask = (at <= position) & (at > position - 40)
    return ATTENTION(q, k, v, mask[None, None, None].expand(q.size(0), 1, q.size(2), -1), scale=0.3, enable_gqa=True)


def bias(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    heads = torch.arange(q.size(1), device=q.device, dtype=q.dtype)
    far = (torch.arange(k.size(2), device=k.device) - position).to(q.dtype)
    return ATTENTION(q, k, v, (heads[:, None, None] * far / 64).expand(-1, q.size(2), -1), enable_gqa=True)


def written_before(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    k, v = (x.clone().index_copy_(2, position, x[:, :, :1] * 2) for x in (k, v))
    return cache(q, k, v, position) + k.sum()


def by_hand(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    groups = q.size(1) // k.size(1)
    k, v = (x.unsqueeze(2).expand(-1, -1, groups, -1, -1) for x in (k, v))
    q = q.unflatten(1, (-1, groups))
    scores = q @ k.mT * 0.2
    hidden = torch.arange(k.size(-2), device=k.device) > position
    return (scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v).flatten(1, 2)


def dequantised(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    """Keys that are in no memory where products read them as they are computed."""
    k, v = ((x * 4).to(torch.int8).repeat_interleave(q.size(1) // x.size(1), 1).to(q.dtype) / 4 for x in (k, v))
    return (q @ k.mT * 0.2).softmax(-1) @ v


SIZES = [(4, 4, 1, 256, 64, 64), (8, 2, 1, 300, 64, 32), (4, 2, 3, 130, 24, 24), (2, 2, 15, 200, 16, 16)]


def given(device: torch.device, dtype: torch.dtype, size: tuple[int, ...]) -> list[Tensor]:
    heads, key_heads, queries, keys, features, width = size
    shapes = (heads, queries, features), (key_heads, keys, features), (key_heads, keys, width)
    tensors = [torch.randn(2, *shape, device=device, dtype=dtype) for shape in shapes]
    return [*tensors, torch.tensor([keys // 2], device=device)]


def names(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What it gives, and the operators that ran whole."""
    seen: list[events.Lowered] = []
    with torch.no_grad(), events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None):
        result = call()
    return result, [name for event in seen for name, _ in event.whole]


def strides(x: Tensor) -> list[int]:
    """But for single elements, of which torch's stand-ins say other things than its kernels."""
    return [step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_few_queries_of_many_keys(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    inputs = given(device, dtype, size)
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    for way in (plain, cache, window, bias, by_hand):
        found, whole = names(lambda way=way: jitney.compile(way, backend="triton_gpu", fullgraph=True)(*inputs))
        assert [name for name in whole if "attention" in name] == ["jitney.attention.default"], way
        expected, exact = way(*inputs), way(*wide)
        assert strides(found) == strides(expected) and found.dtype is expected.dtype
        least = 1e-2 if dtype is torch.bfloat16 else 5e-6
        off, eagers = ((x.double() - exact).abs().max() for x in (found, expected))
        assert off <= max(2 * eagers, least * exact.abs().max()), way


def test_keys_that_are_computed_stay_in_products(device: torch.device) -> None:
    inputs = given(device, torch.float32, SIZES[1])
    found, whole = names(lambda: jitney.compile(dequantised, backend="triton_gpu", fullgraph=True)(*inputs))
    assert whole == []
    torch.testing.assert_close(found, dequantised(*inputs), rtol=1e-4, atol=2e-5)


def test_another_position_is_another_number_of_keys(device: torch.device) -> None:
    *inputs, _ = given(device, torch.float32, SIZES[1])
    compiled = jitney.compile(cache, backend="triton_gpu", fullgraph=True)
    for position in (0, 31, 32, 299, -1):  # of which the last sees nothing
        at = torch.tensor([position], device=device)
        found, _ = names(lambda at=at: compiled(*inputs, at))
        torch.testing.assert_close(found, cache(*inputs, at), rtol=1e-4, atol=2e-5)


def test_keys_that_were_written_before(device: torch.device) -> None:
    inputs = given(device, torch.float32, SIZES[0])
    found, whole = names(lambda: jitney.compile(written_before, backend="triton_gpu", fullgraph=True)(*inputs))
    assert any("jitney.attention" in name for name in whole)
    torch.testing.assert_close(found, written_before(*inputs), rtol=1e-4, atol=2e-5)


def test_results_in_another_order(device: torch.device) -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ATTENTION(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))

    q = torch.randn(2, 5, 3, 16, device=device)
    k, v = (torch.randn(2, 150, 3, 16, device=device) for _ in range(2))
    found, whole = names(lambda: jitney.compile(program, backend="triton_gpu", fullgraph=True)(q, k, v))
    assert any("jitney.attention" in name for name in whole)
    expected = program(q, k, v)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


def test_strides_of_single_elements(device: torch.device) -> None:
    with FakeTensorMode():
        q, k = (torch.randn(2, 4, n, 64, device=device) for n in (1, 256))
        call = torch.fx.Graph()
        given = [call.placeholder(name) for name in "qkv"]
        node = call.call_function(ATTENTION, tuple(given))
        call.output(node)
        for each, stand in zip((*given, node), (q, k, k, q.transpose(1, 2).contiguous().transpose(1, 2)), strict=True):
            each.meta["example_value"] = stand
        node.meta["example_value"] = torch.empty_strided((2, 4, 1, 64), (256, 64, 256, 1), device=device)
    made, _ = calls.written_out(torch.fx.GraphModule(torch.nn.Module(), call), 15)
    real = [torch.randn(2, 4, n, 64, device=device) for n in (1, 256, 256)]
    assert made(*real).stride() == (256, 64, 256, 1)
    torch.testing.assert_close(made(*real), ATTENTION(*real), rtol=1e-4, atol=2e-5)


def several(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """One that is taken among others that are not."""
    many = q.expand(-1, -1, 20, -1)
    causal = ATTENTION(q, k, v, is_causal=True)
    return ATTENTION(many, k, v), ATTENTION(q, k, v), causal, ATTENTION(q, k[:, :, :40], v[:, :, :40])


def test_calls_that_are_not_taken_stay(device: torch.device) -> None:
    q, k, v, _ = given(device, torch.float32, SIZES[0])
    found, whole = names(lambda: jitney.compile(several, backend="triton_gpu", fullgraph=True)(q, k, v))
    assert sum("jitney.attention" in name for name in whole) == 1
    for mine, theirs in zip(found, several(q, k, v), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("refused", ["score", "gradient", "dropout"])
def test_what_cannot_be_said_stays(refused: str, device: torch.device) -> None:
    q, k, v, _ = given(device, torch.float32, SIZES[0])
    table = torch.randn(2, 4, 256, 1, device=device)

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if refused == "score":
            return ATTENTION(q, k, v, table.cumsum(-2).mT * q.sum())
        return ATTENTION(q, k, v, dropout_p=1.0 if refused == "dropout" else 0.0)

    q.requires_grad_(refused == "gradient")
    seen: list[events.Lowered] = []
    with events.listen(lambda e: seen.append(e) if isinstance(e, events.Lowered) else None):
        found = jitney.compile(program, backend="triton_gpu", fullgraph=True)(q, k, v)
    taken = any("jitney.attention" in name for event in seen for name, _ in event.whole)
    assert taken == (refused == "score")  # a tensor beside the products is read as it is
    torch.testing.assert_close(found, program(q, k, v), rtol=1e-4, atol=2e-5, equal_nan=True)


def test_keys_are_shared_where_processors_would_have_nothing_to_do() -> None:
    def parts(batch: int, heads: int, keys: int, groups: int = 1) -> int:
        q = torch.empty(batch, heads, groups, 1, 64, dtype=torch.bfloat16)
        k = torch.empty(batch, heads, 1, keys, 64, dtype=torch.bfloat16).expand(-1, -1, groups, -1, -1)
        return blocks.parts_of(q, k, k)

    assert parts(1, 8, 4096) == 32 and parts(1, 8, 512) == 4 and parts(64, 8, 4096) == 1
    assert parts(1, 8, 4096, groups=4) == parts(1, 8, 4096)  # which one program looks at together


def test_queries_of_a_group_are_one_matrix(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    forward = kernels._forward
    monkeypatch.setattr(kernels, "_forward", lambda *args: [made.append(f.text) or f for f in forward(*args)])  # type: ignore[func-returns-value]
    jitney.reset()
    inputs = given(device, torch.float32, SIZES[1])
    names(lambda: jitney.compile(plain, backend="triton_gpu", fullgraph=True)(*inputs))
    assert len(made) == 2 and "y < 4" in made[0]
