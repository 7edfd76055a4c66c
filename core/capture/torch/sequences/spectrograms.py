"""``torch.stft`` and ``torch.istft`` in the words of other operators: frames are windows, and nothing is read.

``istft`` divides by what its windows add up to, and asks before whether that is 0 somewhere: here the graph asks. In
``stft`` the gradients of frames are added up place by place, where those of ``as_strided`` are scattered. The formulas
are torch's (ATen/native/SpectralOps.cpp). Calls that torch refuses, or warns of, and rare ones are torch's own.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from jitney.capture.kinds import is_stand_in
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch import conversions
from jitney.torch_compat import torch_private

special = FunctionTable()

aten = torch.ops.aten
AS_IT_IS, BY_ROOT, BY_SIZE = range(3)  # what transforms are divided by: nothing, the root of their size, their size
FLOATS = (torch.float32, torch.float64)  # which autocast leaves as they are
COMPLEX = (torch.complex64, torch.complex128)
LEAST = 1e-11  # what the windows of ``istft`` must add up to


@special(torch.functional.stft)
def _stft(vm: Any, args: Args, kwargs: Kwargs) -> Any:
    made = _call_of(_frames_transformed, args, kwargs)
    return vm.native(torch.functional.stft, *args, **kwargs) if made is None else made


@special(torch.istft)
def _istft(vm: Any, args: Args, kwargs: Kwargs) -> Any:
    made = None if vm.tracer.mutates_inputs() else _call_of(_frames_added, args, kwargs)
    if made is None:
        return vm.native(torch.istft, *args, **kwargs)
    result, enough = made
    vm.native(torch_private.assert_async, enough, conversions.CHECKED)
    vm.tracer.checked = True
    return result


def _call_of(function: Any, args: Args, kwargs: Kwargs) -> Any:
    """What the function gives; None where these are not its arguments."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return None
    return function(*bound.args, **bound.kwargs)


def _frames_transformed(
    input: Any,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: Any = True,
    pad_mode: Any = "reflect",
    normalized: Any = False,
    onesided: Any = None,
    return_complex: Any = None,
    align_to_window: Any = None,
) -> Any:
    """``stft``."""
    sizes = _sizes(n_fft, hop_length, win_length)
    if sizes is None or return_complex is not True or align_to_window or not is_stand_in(input):
        return None
    hop, length = sizes
    if input.dtype not in FLOATS or input.dim() not in (1, 2) or not _fits(window, length, input):
        return None
    if center:
        edges = [n_fft // 2] * 2
        input = torch.nn.functional.pad(input[(None,) * (3 - input.dim())], edges, pad_mode).view(*input.shape[:-1], -1)
    if input.shape[-1] < n_fft:
        return None
    frames = input.unfold(-1, n_fft, hop) * _window(window, length, n_fft)
    scale = BY_ROOT if normalized else AS_IT_IS
    transformed = aten._fft_r2c.default(frames, [frames.dim() - 1], scale, onesided is not False)
    return transformed.transpose(-1, -2)


def _frames_added(
    input: Any,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: Any = True,
    normalized: Any = False,
    onesided: Any = None,
    length: Any = None,
    return_complex: Any = False,
) -> Any:
    """``istft``, and whether its windows add up to something everywhere."""
    sizes = _sizes(n_fft, hop_length, win_length)
    if sizes is None or return_complex or not is_stand_in(input) or input.dtype not in COMPLEX:
        return None
    hop, width = sizes
    if input.dim() not in (2, 3) or not _fits(window, width, input):
        return None
    bins, count = input.shape[-2], input.shape[-1]
    whole = bins != n_fft if onesided is None else bool(onesided)
    if bins != (n_fft // 2 + 1 if whole else n_fft) or count < 1 or type(length) not in (int, torch.SymInt, type(None)):
        return None
    total = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    end = total - start if length is None else start + length
    if end <= start or end > total:
        return None  # of which torch warns
    frames = (input if input.dim() == 3 else input.unsqueeze(0)).transpose(1, 2)
    frames = frames if whole else frames[..., : n_fft // 2 + 1]
    frames = aten._fft_c2r.default(frames, [2], BY_ROOT if normalized else BY_SIZE, n_fft)
    shape = _window(window, width, n_fft)
    signal = _added(frames * shape, total, n_fft, hop)
    weights = _added(shape.pow(2).expand(1, count, n_fft), total, n_fft, hop)
    signal, weights = signal[:, start:end], weights[:, start:end]
    result = signal / weights
    return result if input.dim() == 3 else result.squeeze(0), torch.logical_not(weights.abs().min() < LEAST)


def _sizes(n_fft: Any, hop_length: Any, win_length: Any) -> tuple[int, int] | None:
    """How far frames are apart, and how wide a window is; None for what torch refuses."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if any(type(n) is not int for n in (n_fft, hop, width)) or not (0 < width <= n_fft and hop > 0):
        return None
    return hop, width


def _fits(window: Any, width: int, input: Any) -> bool:
    """Is it a window of this width? torch warns of none."""
    plain = is_stand_in(window) and window.dtype in FLOATS and window.device == input.device
    return plain and window.dim() == 1 and window.shape[0] == width


def _window(window: Any, width: int, n_fft: int) -> Any:
    """The window in the middle of zeros."""
    left = (n_fft - width) // 2
    return window if width == n_fft else torch.nn.functional.pad(window, (left, n_fft - width - left))


def _added(frames: Any, total: int, n_fft: int, hop: int) -> Any:
    """What overlapping frames add up to."""
    return aten.unfold_backward.default(frames, [frames.shape[0], total], 1, n_fft, hop)
