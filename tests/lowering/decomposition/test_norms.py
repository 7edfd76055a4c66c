"""Variances and normalisations, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import kinds, lowered, trained

from jitney.torch_compat.torch_private import FakeTensorMode
from jitney_lowering import decompositions
from jitney_lowering.decomposition import norms

WIDE = [torch.float32, torch.float64]


def parameter(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_layer_norm(affine: str, dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, w: Any = None, b: Any = None) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-2:], w, b)

    given = [parameter(3, 4, 8, dtype=dtype)]
    given += [parameter(4, 8, dtype=dtype) for _ in range({"both": 2, "weight": 1, "none": 0}[affine])]
    trained(fn, *given)


def test_layer_norm_where_sizes_are_symbols() -> None:
    given = parameter(3, 8), parameter(8), parameter(8)
    trained(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), *given, dynamic=True)


def test_layer_norm_of_halves_is_exactly_eagers() -> None:
    x, w, b = (torch.randn(s).to(torch.bfloat16) for s in ((4, 64), (64,), (64,)))
    lowered(lambda x, w, b: F.layer_norm(x, (64,), w, b), x, w, b, exact=True)


def test_layer_norm_of_halves_with_wide_parameters() -> None:
    """The forward; eager's gradient of the parameters is a few per cent off."""
    lowered(lambda x, w: F.layer_norm(x, (64,), w), torch.randn(4, 64).to(torch.bfloat16), torch.randn(64), exact=True)


def test_layer_norm_reads_its_input_three_times_and_stores_it_nowhere() -> None:
    x, w = torch.randn(5, 64), torch.randn(64)
    program = lowered(lambda x, w: F.layer_norm(x, (64,), w, w), x, w).program
    assert kinds(program) == ["sum", "sum", "pointwise", "pointwise"]
    assert [len(s.loops) for s in program.steps] == [2, 2, 1, 2]


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("groups", [1, 3])
def test_group_norm(groups: int, affine: bool, dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, w: Any = None, b: Any = None) -> torch.Tensor:
        return F.group_norm(x, groups, w, b)

    trained(fn, *[parameter(*s, dtype=dtype) for s in [(2, 6, 4, 5), (6,), (6,)][: 3 if affine else 1]])


@pytest.mark.parametrize("affine", ["both", "weight", "none"])
@pytest.mark.parametrize("groups", [2, 8, 24])
@pytest.mark.parametrize("shape", [(3, 24, 16), (2, 24, 4, 5), (1, 24, 3, 2, 4)])
def test_group_norm_by_channels(shape: tuple[int, ...], groups: int, affine: str) -> None:
    def fn(x: torch.Tensor, w: Any = None, b: Any = None) -> torch.Tensor:
        return F.group_norm(x, groups, w, b)

    given = [parameter(*shape), parameter(24), parameter(24)][: {"both": 3, "weight": 2, "none": 1}[affine]]
    trained(fn, *given)
    if len(shape) == 4:
        last = given[0].detach().to(memory_format=torch.channels_last).requires_grad_()
        trained(fn, last, *given[1:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_group_norm_of_halves_by_channels(dtype: torch.dtype) -> None:
    x = (torch.randn(2, 32, 6, 6) + 3).to(dtype)
    lowered(lambda x, w, b: F.group_norm(x, 4, w, b), x, torch.randn(32).to(dtype), torch.randn(32).to(dtype))
    lowered(lambda x, w, b: F.group_norm(x, 4, w, b), x, torch.randn(32), torch.randn(32))


def test_group_norm_by_channels_where_sizes_are_symbols() -> None:
    trained(
        lambda x, w, b: F.group_norm(x, 4, w, b), parameter(3, 32, 6, 5), parameter(32), parameter(32), dynamic=True
    )


@pytest.mark.parametrize("shape", [(2, 16, 15), (2, 15, 16), (4, 32)])
def test_group_norms_of_few_channels_or_pixels_are_rows(shape: tuple[int, ...]) -> None:
    program = lowered(lambda x: F.group_norm(x, 1 if shape[1] % 2 else 2), torch.randn(shape)).program
    assert kinds(program) == ["sum", "sum", "pointwise", "pointwise"]


@pytest.mark.parametrize("dtype", WIDE)
def test_rms_norm(dtype: torch.dtype) -> None:
    trained(lambda x, w: F.rms_norm(x, (8,), w), parameter(4, 8, dtype=dtype), parameter(8, dtype=dtype))
    trained(lambda x: F.rms_norm(x, (8,), None, 1e-5), parameter(4, 8, dtype=dtype))


@pytest.mark.parametrize("dtype", WIDE)
def test_instance_norm(dtype: torch.dtype) -> None:
    trained(lambda x: F.instance_norm(x), parameter(2, 3, 4, 5, dtype=dtype))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_with_statistics_as_arguments(training: bool) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, m.clone(), v.clone(), w, b, training)

    trained(fn, parameter(4, 6, 5), parameter(6), parameter(6), torch.randn(6), torch.rand(6) + 0.5, whole=None)


def test_cudnns_batch_norm_by_running_statistics_is_arithmetic() -> None:
    cudnn = decompositions()[torch.ops.aten.cudnn_batch_norm.default]
    x, w, b, m, v = torch.randn(4, 6, 5), torch.randn(6), torch.randn(6), torch.randn(6), torch.rand(6) + 0.5
    result, mean, rstd, reserve = cudnn(x, w, b, m, v, False, 0.1, 1e-5)
    torch.testing.assert_close(result, F.batch_norm(x, m, v, w, b))
    assert (mean.numel(), rstd.numel(), reserve.numel()) == (0, 0, 0)
    assert cudnn(x, w, b, m, v, True, 0.1, 1e-5) is NotImplemented  # in training it is cuDNN's


def test_batch_norm_where_sizes_are_symbols() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, w, b, True)

    trained(fn, parameter(4, 6, 5), parameter(6), parameter(6), dynamic=True)


@pytest.mark.parametrize("fn", [torch.var, torch.std, torch.var_mean], ids=lambda f: f.__name__)
def test_too_few_elements_give_what_eager_gives(fn: Any) -> None:
    with pytest.warns(UserWarning, match="degrees of freedom"):
        lowered(lambda x: fn(x, dim=1), torch.randn(4, 1))
    lowered(lambda x: fn(x, dim=1, correction=0), torch.randn(4, 1))


@pytest.mark.parametrize("fn", [torch.var, torch.std], ids=lambda f: f.__name__)
def test_gradients_of_variances(fn: Any) -> None:
    trained(lambda x: fn(x, dim=1), parameter(4, 5))
    trained(lambda x: fn(x, dim=(0, 2), keepdim=True), parameter(4, 5, 6), dynamic=True)


def test_variances_keep_their_precision_far_from_zero() -> None:
    lowered(lambda x: x.var(1), torch.randn(4, 100) + 1e4)


@pytest.mark.parametrize("outer", [(5,), (2, 3), ()])
@pytest.mark.parametrize("affine", [True, False])
def test_gradients_of_rms_norm_with_what_its_forward_gives(outer: tuple[int, ...], affine: bool) -> None:
    """On CUDA there is an operator for them."""
    x = parameter(*outer, 4, 8, dtype=torch.float64)
    w = parameter(4, 8, dtype=torch.float64) if affine else None
    table, aten = decompositions(), torch.ops.aten
    made, rstd = table[aten._fused_rms_norm.default](x, [4, 8], w, 1e-5)
    grad = torch.randn_like(x)
    wanted = torch.autograd.grad(F.rms_norm(x, (4, 8), w, 1e-5), [x, w] if w is not None else [x], grad)
    got = table[aten._fused_rms_norm_backward.default](grad, x, [4, 8], rstd, w, [True, affine])
    torch.testing.assert_close(got[: len(wanted)], wanted)
    assert table[aten._fused_rms_norm_backward.default](grad, x, [4, 8], rstd, w, [False, False]) == (None, None)


def test_rms_norm_of_a_gpu_is_taken_apart() -> None:
    """Its operator gives contiguous results in the dtype of the input, the reciprocals in float32."""
    table, aten = decompositions(), torch.ops.aten
    with FakeTensorMode():
        x = torch.empty(6, 8, dtype=torch.bfloat16, device="cuda")
        w = torch.empty(8, dtype=torch.bfloat16, device="cuda")
        made, rstd = table[aten._fused_rms_norm.default](x, [8], w, None)
        grads = table[aten._fused_rms_norm_backward.default](made, x, [8], rstd, w, [True, True])
    assert made.is_contiguous() and made.dtype is torch.bfloat16
    assert (rstd.shape, rstd.dtype) == ((6, 1), torch.float32)
    assert [(g.shape, g.dtype, g.is_contiguous()) for g in grads] == [((6, 8), w.dtype, True), ((8,), w.dtype, True)]


@pytest.mark.parametrize(("device", "size"), [("cuda", 3), ("cpu", 0)])
def test_what_batch_norm_gives_beside_its_result_by_running_statistics(device: str, size: int) -> None:
    """CUDA's own kernel what it was made with, the CPU's and cuDNN's nothing."""
    with FakeTensorMode():
        x = torch.empty(2, 3, 4, 4, device=device, dtype=torch.bfloat16)
        numbers = torch.empty(3, device=device)
        given = (x, numbers, numbers, numbers, numbers, False, 0.1, 1e-5)
        assert [t.shape for t in norms.native_batch_norm(*given)[1:]] == [(size,), (size,)]
        assert [t.shape for t in norms.cudnn_batch_norm(*given)[1:3]] == [(0,), (0,)]
