"""Stand-ins have the strides that eager's results have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensor
from torch.utils._pytree import tree_map_only

from jitney.torch_compat.stand_ins.strides import StandInMode

aten = torch.ops.aten


def backwards(x: torch.Tensor) -> torch.Tensor:
    order = list(range(x.dim()))[::-1]
    return x.permute(order).contiguous().permute(order)


def last_two(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.dim() > 1 else x


def channels_last(x: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats.get(x.dim(), torch.contiguous_format))


def every_second(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], -1).flatten(-2)[..., ::2] if x.dim() else x


LAYOUTS = (torch.clone, backwards, last_two, channels_last, every_second)

BINARY = (
    aten.copysign.Tensor, aten.floor_divide.default, aten.heaviside.default, aten.logaddexp.default,
    aten.logaddexp2.default, aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default,
    aten.ldexp.Tensor, aten.normal.Tensor_Tensor, aten.add.Tensor,
)  # fmt: skip
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((10, 5), ()), ((5, 10, 5), (10, 5)), ((10, 1, 5), (10, 5)), ((10, 1, 5), (1, 10, 5)), ((2, 3, 4, 5), (3, 1, 5)),
)  # fmt: skip


def same_strides(call: Callable[..., Any], *args: Any) -> None:
    mode = StandInMode()
    fakes = tree_map_only(torch.Tensor, mode.from_tensor, args)
    wanted, got = call(*args), call(*fakes)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (wanted, got)), strict=True):
        assert (other.shape, other.dtype) == (one.shape, one.dtype)
        sizes = [(n, s) for n, s in zip(one.shape, one.stride(), strict=True) if n > 1]
        assert [(n, s) for n, s in zip(other.shape, other.stride(), strict=True) if n > 1] == sizes


@pytest.mark.parametrize("op", BINARY, ids=str)
def test_of_two_arguments_in_any_layout(op: Callable[..., Any]) -> None:
    for first, second in SHAPES:
        for a in LAYOUTS:
            for b in LAYOUTS:
                x, y = a(torch.rand(first)), b(torch.rand(second))
                same_strides(op, x, y)
                if second and op is not aten.normal.Tensor_Tensor:
                    same_strides(op, y, x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_one_argument_in_any_layout(layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    four, five = layout(torch.rand(2, 4, 3, 5)), layout(torch.rand(2, 4, 3, 5, 3))
    for x in (four, five, layout(torch.rand(3, 4)), layout(torch.rand(2, 0, 3))):
        same_strides(lambda x: 2.0**x, x)
        same_strides(torch._standard_gamma, x)
        for shifts, dims in (((1,), (-1,)), ((0,), (0,)), ((1, -2), (0, 1)), ((3,), ()), ((5,), (1,))):
            same_strides(lambda x, s=shifts, d=dims: torch.roll(x, s, d), x)
        same_strides(lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="floor"), x, torch.tensor(0.3))
        same_strides(lambda x: aten.native_dropout_backward(x, x > 0.5, 2.0), x)
        same_strides(torch.nn.functional.logsigmoid, x)
        for training in (True, False):
            same_strides(lambda x, t=training: torch.rrelu(x, 0.1, 0.3, t), x)
        same_strides(aten.log_sigmoid_forward.default, x)
    same_strides(lambda x: torch.channel_shuffle(x, 2), four)
    for x in (four, five):
        for pad in (aten.reflection_pad3d, aten.replication_pad3d):
            same_strides(lambda x, pad=pad: pad(x, [1, 1, 0, 1, 1, 0]), x)
    places = layout(torch.arange(2 * 4 * 3 * 5).reshape(2, 4, 3, 5) % 30)
    same_strides(lambda x, at: aten.max_unpool2d(x, at, [6, 10]), four, places)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_batch_norm_in_any_layout(layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for shape in ((4, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 4, 5, 2)):
        x, weight, spread = layout(torch.rand(shape)), torch.rand(3), torch.rand(6)[::2]
        for w in (weight, spread, None):
            same_strides(lambda x, w: aten.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5)[0], x, w)
            same_strides(
                lambda x, w, a, b: aten.native_batch_norm(x, w, w, a, b, False, 0.1, 1e-5)[0], x, w, weight, weight
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_sizes_of_what_bags_of_embeddings_leave_out(dtype: torch.dtype, mode: int) -> None:
    weight, indices, offsets = torch.rand(5, 3).to(dtype), torch.tensor([0, 4, 1, 2]), torch.tensor([0, 2])
    real = aten._embedding_bag.default(weight, indices, offsets, False, mode)
    with StandInMode() as mode_of_stand_ins:
        given = [mode_of_stand_ins.from_tensor(t) for t in (weight, indices, offsets)]
        made = aten._embedding_bag.default(*given, False, mode)
    assert [m.shape for m in made] == [r.shape for r in real]


@pytest.mark.parametrize("wanted", [False, True])
def test_attention_without_weights_gives_none(wanted: bool) -> None:
    x, weight, bias = torch.rand(2, 3, 4), torch.rand(12, 4), torch.rand(12)
    args = (x, x, x, 4, 2, weight, bias, weight[:4], bias[:4])
    with StandInMode() as mode:
        made = aten._native_multi_head_attention.default(
            *[mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args], need_weights=wanted
        )
    for one, real in zip(made, aten._native_multi_head_attention.default(*args, need_weights=wanted), strict=True):
        assert (one is None) == (real is None)
        assert real is None or one.shape == real.shape


@pytest.mark.parametrize("biased", [False, True])
def test_the_backward_of_efficient_attention_has_a_stand_in(biased: bool) -> None:
    aten = torch.ops.aten
    with StandInMode():
        query, key, value = torch.empty(2, 5, 3, 8), torch.empty(2, 7, 3, 8), torch.empty(2, 7, 3, 4)
        bias = torch.empty(2, 3, 5, 7) if biased else None
        out, sums, seed, offset, *_ = aten._efficient_attention_forward(
            query, key, value, bias, None, None, None, None, 0.0, 0, compute_log_sumexp=True
        )
        rest = (bias, out, None, None, 5, 7, sums, 0.0, seed, offset, 0, biased)
        made = aten._efficient_attention_backward(torch.empty_like(out), query, key, value, *rest, scale=0.5)
    assert [m.shape for m in made[:3]] == [query.shape, key.shape, value.shape]
    assert made[3].shape == (bias.shape if bias is not None else ())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "op",
    [aten.add.Tensor, aten.sub.Tensor, aten.maximum.default, aten.lt.Tensor, aten.smooth_l1_loss.default,
     aten.huber_loss.default, aten.mse_loss.default, aten.atan2.default],
    ids=str,
)  # fmt: skip
def test_expanded_halves_beside_any_layout(op: Callable[..., Any], dtype: torch.dtype) -> None:
    more = (0,) if "loss" in op.name() else ()
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        sizes = (2, 3, 2)
        other = torch.rand([sizes[d] for d in order]).permute([order.index(d) for d in range(3)]).to(dtype)
        same_strides(op, torch.rand(2).to(dtype).expand(sizes), other, *more)
        same_strides(op, other, torch.rand(2).to(dtype).expand(sizes), *more)


@pytest.mark.parametrize("order", [0, 1, 2, 3.0, float("inf")])
@pytest.mark.parametrize("dim", [-1, (-1,), (-1, 0), (0, 2), -3, None])
def test_norms_over_dimensions_of_one_element(order: float, dim: Any) -> None:
    """torch 2.11's stand-ins keep one that is counted from the end."""
    x = torch.randn(1, 5, 1)
    with StandInMode() as mode:
        made = torch.linalg.vector_norm(mode.from_tensor(x), order, dim)
    assert made.shape == torch.linalg.vector_norm(x, order, dim).shape


@pytest.mark.parametrize("scale", [2, 0.5])
def test_images_of_few_channels_keep_their_format_on_gpus(scale: float) -> None:
    """Where torch's stand-ins are contiguous, as its decomposition is."""
    x = torch.empty(2, 4, 6, 8, device="meta").contiguous(memory_format=torch.channels_last)
    with StandInMode() as mode:
        image = FakeTensor(mode, x, torch.device("cuda", 0))
        made = aten.upsample_bilinear2d.default(image, [round(6 * scale), round(8 * scale)], False)
        assert made.stride()[1] == 1
        assert aten.upsample_bilinear2d.vec(image, None, False, [scale] * 2).stride() == made.stride()


def test_writes_to_lists_count() -> None:
    """As on tensors with data: who captures asks the versions what has been written to."""
    with StandInMode() as mode, torch.no_grad():
        x, y = mode.from_tensor(torch.ones(3)), mode.from_tensor(torch.ones(3))
        before = x._version, y._version
        torch._foreach_add_([x], [y])
        assert x._version > before[0] and y._version == before[1]
        torch._foreach_add([x], [y])
        assert y._version == before[1]


def test_poisson_gives_contiguous_numbers() -> None:
    for layout in LAYOUTS:
        same_strides(torch.poisson, layout(torch.rand(2, 3, 4, 5)))


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_margin_losses_of_one_sample_without_a_batch(reduction: int) -> None:
    """torch's stand-ins have a batch of one."""
    x, labels = torch.randn(4), torch.tensor([1, 0, -1, 2])
    same_strides(aten.multi_margin_loss.default, x, torch.tensor(1), 1, 1, None, reduction)
    same_strides(aten.multi_margin_loss.default, x[None], torch.tensor([1]), 1, 1, None, reduction)
    same_strides(aten.multilabel_margin_loss_forward.default, x, labels, reduction)
    same_strides(aten.multilabel_margin_loss_forward.default, x[None], labels[None], reduction)


def test_what_indices_pick_in_any_layout() -> None:
    """Dimensions of one element, and the layout of the indices, have a say in the order of the others."""
    for shape in ((1, 5, 2), (4, 5, 2), (3, 1, 2, 2)):
        for layout in LAYOUTS:
            x = layout(torch.rand(shape))
            for sizes in ((2,), (2, 3), (2, 1, 3)):
                for of_index in (torch.clone, backwards):
                    picked = of_index(torch.zeros(sizes, dtype=torch.int64))
                    for indices in ([picked], [None, picked], [None, picked, picked], [picked, None, picked]):
                        same_strides(aten.index.Tensor, x, indices)
    x = torch.rand(10).as_strided((1, 5, 2), (1, 2, 1))
    same_strides(aten.index.Tensor, x, [None, torch.zeros(2, dtype=torch.int64)])


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y: x.add_(y),
        lambda x, y: x.sub_(y),
        lambda x, y: x.add_(1j),
        lambda x, y: x.mul_(y),
        lambda x, y: x.addcmul_(x, y),
        lambda x, y: x.addcdiv_(y, x),
        lambda x, y: x.long().addcmul_(x, x),
    ],
)
def test_what_does_not_fit_is_not_written(write: Callable[..., Any]) -> None:
    x, y = torch.ones(3), torch.ones(3, dtype=torch.complex64)
    with pytest.raises(RuntimeError, match="can't be cast"):
        write(x, y)
    with pytest.raises(RuntimeError, match="can't be cast"), StandInMode() as mode:
        write(mode.from_tensor(x), mode.from_tensor(y))
