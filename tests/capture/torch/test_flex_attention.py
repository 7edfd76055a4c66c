"""``flex_attention`` in compiled functions: one graph, with the numbers of the one that is not compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flex_cases import BLOCK, LOW, MASKS, ROWS, SCORES, SLOPES, B, D, H, M, plain, tensors
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, create_mask, flex_attention

import jitney
from jitney.errors import Unsupported

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
    pytest.mark.filterwarnings("ignore:return_lse is deprecated"),
]
BACKENDS = ["eager", "llvm_cpu"]
CAUSAL = create_block_mask(MASKS["causal"], B, None, M, M, device="cpu", BLOCK_SIZE=BLOCK)


@pytest.fixture(autouse=True)
def compile_anew() -> None:
    jitney.reset()


def compiled(fn: Callable[..., Any], backend: str = "eager") -> Callable[..., Any]:
    return jitney.compile(fn, backend=backend, fullgraph=True)


def alike(found: Any, expected: Any, dtype: torch.dtype = torch.float32) -> None:
    least = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-12}.get(dtype, 1e-5)
    torch.testing.assert_close(found, expected, rtol=least, atol=least, equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str, backend: str) -> None:
    score = SCORES[name]
    given = tensors()
    alike(compiled(lambda q, k, v: flex_attention(q, k, v, score), backend)(*given), plain(*given, score))


@pytest.mark.parametrize("name", ROWS)
def test_scores_of_one_position(name: str) -> None:
    """What only a function of numbers may do: eager maps it, too."""

    def way(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, ROWS[name])

    given = tensors()
    expected = way(*given)
    for backend in BACKENDS:
        alike(compiled(way, backend)(*given), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, backend: str) -> None:
    mask, score = MASKS[name], SCORES["alibi"]
    outside = create_block_mask(mask, B, H, M, M, device="cpu", BLOCK_SIZE=BLOCK)

    def inside(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score, create_block_mask(mask, B, H, M, M, device="cpu"))

    given = tensors()
    alike(compiled(inside, backend)(*given), plain(*given, score, mask))
    alike(
        compiled(lambda q, k, v: flex_attention(q, k, v, block_mask=outside), backend)(*given), plain(*given, mask=mask)
    )
    alike(
        compiled(lambda q, k, v, m: flex_attention(q, k, v, block_mask=m), backend)(*given, outside),
        plain(*given, mask=mask),
    )


@pytest.mark.parametrize("name", MASKS)
def test_masks_as_tensors(name: str) -> None:
    mask = MASKS[name]

    def way(x: Tensor) -> Any:
        blocks = create_block_mask(mask, B, H, M, M, device=x.device, BLOCK_SIZE=(BLOCK, 8))
        scores = create_mask(SCORES["causal"], None, None, M, M + 3, device=x.device)
        return x + 1, create_mask(mask, B, H, M, M, device="cpu"), scores, blocks.as_tuple()[2:10], blocks.to_dense()

    for backend in BACKENDS:
        alike(compiled(way, backend)(torch.zeros(3)), way(torch.zeros(3)))


def shared_heads(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k[:, :2], v[:, :2], SCORES["alibi"], CAUSAL, scale=0.1, enable_gqa=True)


def one_batch(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k[:1], v[:1], block_mask=CAUSAL)


def other_sizes(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q[:, :, :9], k, v[..., :5], block_mask=CAUSAL._adjust(9, M))


def logarithms(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, SCORES["rows without keys"], return_lse=True)


def more_results(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, kernel_options={"BLOCK_M": 64}, return_aux=AuxRequest(lse=True))


def in_another_order(q: Tensor, k: Tensor, v: Tensor) -> Any:
    order = (q.transpose(1, 2).contiguous().transpose(1, 2), q.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0))
    return [flex_attention(x, k, v) for x in (*order, q[:, :1].expand(-1, H, -1, -1))]


def several_types(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q.bfloat16(), k, v)


def casting(q: Tensor, k: Tensor, v: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return flex_attention(q, k, v, SCORES["alibi"], CAUSAL), flex_attention(q.double(), k.double(), v.double())


WAYS = [shared_heads, one_batch, other_sizes, logarithms, more_results, in_another_order, several_types, casting]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_arguments(way: Callable[..., Any]) -> None:
    given = tensors()
    expected = way(*given)
    for backend in BACKENDS:
        found = compiled(way, backend)(*given)
        alike(found, expected, torch.bfloat16 if way in (several_types, casting) else torch.float32)
        leaves = zip(*(torch.utils._pytree.tree_leaves(made) for made in (found, expected)), strict=True)
        assert all(a.stride() == b.stride() and a.dtype is b.dtype for a, b in leaves if b is not None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    given = tensors(dtype=dtype)
    for backend in BACKENDS:
        found = compiled(lambda q, k, v: flex_attention(q, k, v, SCORES["cap"], CAUSAL), backend)(*given)
        alike(found, plain(*given, SCORES["cap"], MASKS["causal"]), dtype)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_gradients_of_captured_tensors_too(backend: str) -> None:
    """On CPUs, too, where torch's own flex_attention has none."""
    table = torch.randn(H, 2 * M, requires_grad=True)
    leaves = [*(x.requires_grad_() for x in tensors((H, 2, 2))), table]

    def way(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Any:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + table[h, i - j + M], CAUSAL, enable_gqa=True)

    def reference(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Any:
        return plain(q, k, v, lambda s, b, h, i, j: s + table[h, i - j + M], MASKS["causal"])

    both = compiled(way, backend)(*leaves), reference(*leaves)
    alike(both[0], both[1])
    mine, theirs = (torch.autograd.grad(r, leaves, torch.cos(r.detach())) for r in both)
    alike(mine, theirs)


def test_numbers_that_change() -> None:
    """A length that changes is a size of the graph."""

    def way(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Any:
        mask = create_block_mask(MASKS["causal"], None, None, q.size(2), k.size(2), device="cpu")
        length = q.size(2)
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + slopes[h] * ((j - i + length) / length), mask)

    fn = jitney.compile(way, backend="llvm_cpu", fullgraph=True, dynamic=True)
    for length in (20, 21, 33, 64):
        q, k, v = (torch.randn(1, H, length, D) for _ in range(3))
        expected = plain(q, k, v, lambda s, b, h, i, j: s + SLOPES[h] * ((j - i) / length), MASKS["causal"])  # noqa: B023
        alike(fn(q, k, v, SLOPES), expected)


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        (lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2]), ValueError),
        (lambda q, k, v: flex_attention(q[0], k[0], v[0]), NotImplementedError),
        (lambda q, k, v: flex_attention(q, k, v, block_mask=CAUSAL[0]), RuntimeError),
        (lambda q, k, v: flex_attention(q, k[:, :, :9], v[:, :, :9], block_mask=CAUSAL), ValueError),
        (lambda q, k, v: flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True)), NotImplementedError),
    ],
)
def test_errors_are_eagers(way: Callable[..., Any], kind: type[Exception]) -> None:
    given = tensors()
    with pytest.raises(kind) as theirs:
        way(*given)
    with pytest.raises(kind) as mine:
        jitney.compile(way, backend="eager")(*given)
    assert str(mine.value) == str(theirs.value)


def changed(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s * 2 if s > 0 else s


def written(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s.mul_(2)


def several(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return torch.stack([s, s])


@pytest.mark.parametrize(
    ("score", "reason"),
    [(changed, "values of a tensor|tensor"), (written, "changes something"), (several, "gives something else")],
)
def test_what_is_no_score_is_a_graph_break(score: Callable[..., Any], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        compiled(lambda q, k, v: flex_attention(q, k, v, score))(*tensors())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_a_number_that_changes(backend: str) -> None:
    weight = 1.0

    def way(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, lambda s, b, h, i, j: torch.where(i >= j, s * weight, LOW))

    fn, given = compiled(way, backend), tensors()
    for weight in (1.0, 2.5, 1.0, 3.5):
        alike(fn(*given), plain(*given, lambda s, b, h, i, j: s * weight, MASKS["causal"]))  # noqa: B023


def test_modules_of_torchs_are_left_as_they_are() -> None:
    before = flex.flex_attention, flex.create_mask
    compiled(lambda q, k, v: flex_attention(q, k, v, SCORES["cap"], CAUSAL))(*tensors())
    assert before == (flex.flex_attention, flex.create_mask)
