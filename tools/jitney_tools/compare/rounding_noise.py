"""The same computation in float64 with its roundings shaken: what moves then, nobody can expect to be eager's.

Where a number is far from float64's, the program may still be one that magnifies roundings (the gradient of a bias
before a batch norm is zero but for them), or that decides by them (``floor``, ``argmax``, a comparison). Then it is run
in float64 some times more, each result of an operator changed by a random rounding (stochastic arithmetic, as in
Parker's Monte Carlo arithmetic).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from jitney_tools.compare.float64_oracle import TOLERANCES, Doubles, InDoubles, doubled, mapped

RUNS = 6  # with roundings shaken
SPREAD = 4.0  # how far beyond them a result may be
ULPS = 1.0  # how much one operator's result is changed, in units of its dtype
EXACT, DEFAULT = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps
# Operators that add up: what they round on the way is relative to the terms, which may cancel out.
ADDING = frozenset(
    """
    sum mean mm addmm bmm baddbmm dot mv addmv convolution convolution_backward native_batch_norm var var_mean std
    std_mean native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward native_layer_norm logsumexp
    native_layer_norm_backward native_group_norm native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward
    _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data cumsum linalg_vector_norm _cdist_forward
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward trace
    """.split()
)
# Operators that choose, move or negate numbers: exactly, and others look for the results among the arguments.
CHOOSING = frozenset(
    """
    abs alias_copy amax amin aminmax as_strided_copy cat ceil clamp clamp_max clamp_min clone constant_pad_nd copysign
    cummax cummin diag_embed embedding expand_copy flip floor fmax fmin gather index index_select kthvalue masked_fill
    masked_scatter masked_select max max_pool2d_with_indices max_pool3d_with_indices maximum median min minimum mode
    nanmedian neg new_ones new_zeros ones ones_like permute_copy relu repeat roll round scatter select_copy
    select_scatter sgn sign slice_copy slice_scatter sort stack threshold_backward topk tril triu trunc unbind_copy
    where zeros zeros_like
    """.split()
)
NORMS = frozenset(("native_batch_norm", "cudnn_batch_norm", "native_layer_norm", "native_group_norm"))


class Shaken(Doubles):
    """Runs operators in float64, and changes what they return by a random rounding of the dtype that it has in eager.

    So are the terms of those that add up.

    That dtype is known of each memory: an operator's result has the finest of its arguments, unless it is told another.
    """

    def __init__(self, draws: list[Any], seed: int) -> None:
        super().__init__(draws)
        self.units: dict[int, float] = {}
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operator."""
        unit = self._unit((args, kwargs or {}))
        name = getattr(func, "__name__", "").partition(".")[0]
        if name in ADDING:
            args = mapped(args, lambda value: self._shaken(doubled(value), unit))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if any(returned.alias_info is not None for returned in func._schema.returns):
            return result  # a view, or what it wrote to
        if name in CHOOSING:
            return mapped(result, lambda value: self._noted(value, unit))
        result = mapped(result, lambda value: self._shaken(value, unit))
        if name in NORMS:
            out, mean, scale = result[:3]
            self._shift(out, mean, scale, unit)
        return result

    def _shift(self, out: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, unit: float) -> None:
        """Move all that was normalised together by one rounding of the mean that was taken off."""
        if not mean.numel() or mean.shape != scale.shape or not out.is_floating_point():
            return
        noise = self._noise(mean) * unit * (1 + (mean * scale).abs()).double() * out.square().mean().sqrt()
        if mean.dim() == 1:  # a batch norm's, by channel
            out += noise.reshape(-1, *[1] * (out.dim() - 2))
        elif mean.dim() == out.dim():  # a layer norm's, by row
            out += noise
        else:  # a group norm's
            out += noise.repeat_interleave(out.shape[1] // mean.shape[1], 1).reshape(
                *out.shape[:2], *[1] * (out.dim() - 2)
            )

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        return 2 * torch.rand(like.shape, dtype=torch.float64, generator=self.generator).to(like.device) - 1

    def _unit(self, given: Any) -> float:
        """The rounding of the dtype that the result has in eager."""
        found, asked = [], []

        def look(value: Any) -> None:
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                own = torch.finfo(value.dtype).eps
                known = self.units.get(value.untyped_storage().data_ptr(), DEFAULT)
                found.append(own if value.dtype is not torch.float64 else known)
            elif isinstance(value, torch.dtype) and value.is_floating_point:
                asked.append(torch.finfo(value).eps)

        mapped(given, look)
        finest = min(found, default=None)
        if asked:  # float64 may be asked for since a tensor in float64 is to be like another
            return asked[0] if asked[0] > EXACT or finest is None else finest
        return DEFAULT if finest is None else finest

    def _shaken(self, value: Any, unit: float) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        moved = torch.where(value.isfinite(), value * (1 + ULPS * unit * self._noise(value)), value).to(value.dtype)
        return self._noted(moved, unit)

    def _noted(self, value: Any, unit: float) -> Any:
        """A value whose roundings are now known."""
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            self.units[value.untyped_storage().data_ptr()] = unit
        return value


class InShaken(InDoubles):
    """A block in which everything is computed in float64, with roundings shaken.

    Args:
        draws: what random operators return.
        seed: of the roundings.
    """

    mode: Shaken

    def __init__(self, draws: list[Any], seed: int) -> None:
        self.mode = Shaken(draws, seed)

    def know(self, wide: Sequence[tuple[torch.Tensor, torch.dtype]]) -> None:
        """What roundings an operator's result has depends on these."""
        for tensor, dtype in wide:
            if dtype.is_floating_point and type(tensor.data) is torch.Tensor and tensor.is_floating_point():
                self.mode.units[tensor.untyped_storage().data_ptr()] = torch.finfo(dtype).eps


def credible(eager: torch.Tensor, exact: torch.Tensor, shaken: Sequence[torch.Tensor]) -> bool:
    """May eager's number be one of these runs'? If not, the program does something else in float64."""
    return within(eager, exact, exact, shaken)


def within(found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, shaken: Sequence[torch.Tensor]) -> bool:
    """Is every element among what roundings may make of it? All of one shape."""
    if not found.is_floating_point():
        if found.is_complex():
            return False
        moves = functools.reduce(torch.logical_or, [other != exact for other in shaken])
        moves |= eager != exact
        return bool(((found == eager) | moves).all())
    result, own, best = found.double(), eager.double(), exact.double()
    spread = functools.reduce(torch.maximum, [(other.double() - best).abs() for other in shaken])
    spread = torch.maximum(spread, (own - best).abs())
    usual = spread[spread.isfinite()].median() if bool(spread.isfinite().any()) else spread.new_zeros(())
    spread = torch.maximum(spread, usual)  # a few runs may have one element right by chance
    size = best[best.isfinite()].square().mean().sqrt().nan_to_num() if best.numel() else best.sum()
    each = TOLERANCES.get(found.dtype, TOLERANCES[torch.float32]).each
    near = (result - best).abs() <= SPREAD * spread + each * (best.abs() + size) / 4
    same = (result == own) | (result.isnan() & own.isnan())
    odd = functools.reduce(torch.logical_or, [_sort(other) != _sort(best) for other in (own, *shaken)])
    return bool((near | same | odd).all())


def _sort(tensor: torch.Tensor) -> torch.Tensor:
    """0 for what is finite, 1 for NaN, 2 and 3 for infinities: if that differs from run to run, nobody can say."""
    return tensor.isnan() * 1 + tensor.isposinf() * 2 + tensor.isneginf() * 3
