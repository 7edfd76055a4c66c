"""Along one axis, which elements an image that is made larger or smaller is put together of, and their weights.

In the arithmetic of eager's kernels: float32, or float64 for such images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from jitney_lowering.aten.call import Call
from jitney_lowering.index import Index, fits_int32, max_
from jitney_lowering.ir.scalar import Scalar, maximum, minimum, one
from jitney_lowering.ir.values import constant, position
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.signals import NoRule

Mode = Literal["nearest", "nearest-exact", "linear", "cubic"]
Tap = tuple[Scalar, Scalar | None]  # a place (maybe outside: the nearest one is meant), a weight (None: 1)
MOST = 1 << 16  # elements of an axis that are looked at one by one
_CUBIC = -0.75
_DOUBT = 2.0**-20  # relative to a place: rounding, once or twice
_REACH = {"nearest": (0, 1), "nearest-exact": (0, 1), "linear": (0, 2), "cubic": (-1, 4)}  # the first tap, how many


@dataclass(frozen=True)
class Axis:
    """One axis of an image and of what is made of it.

    Args:
        old, new: elements before and after.
        mode: how elements are put together.
        aligned: are the centres of the first and of the last element those of the image's?
        scale: how much larger; 0 if that follows from the sizes.
        compute: float32 or float64.
        is_same: is it known to stay as it is?
    """

    old: Index
    new: Index
    mode: Mode
    aligned: bool
    scale: float
    compute: torch.dtype
    is_same: bool = False

    def taps(self, at: Index) -> list[Tap]:
        """What element ``at`` of the result is put together of."""
        if self.is_same:
            return [(Scalar(position(at)), None)]
        place = self._place(Scalar(position(at)).to(self.compute))
        narrow = fits_int32(self.old) and fits_int32(self.new)
        number = torch.int32 if narrow else torch.int64
        first = minimum(one("floor", place).to(number), Scalar(position(self.old - 1, number)))
        if self.mode.startswith("nearest"):
            return [(first, None)]
        part = minimum(maximum(place - first.to(self.compute), 0.0), 1.0)
        if self.mode == "linear":
            return [(first, 1.0 - part), (first + 1, part)]
        return [(first + n - 1, weight) for n, weight in enumerate(cubic_weights(part))]

    def _place(self, at: Scalar) -> Scalar:
        """Where in the image the centre of an element is."""
        step = self._step()
        if self.mode == "nearest":
            return at * step
        if self.mode == "nearest-exact":
            return (at + 0.5) * step
        if self.aligned:
            return at * step
        place = (at + 0.5) * step - 0.5
        return place if self.mode == "cubic" else maximum(place, 0.0)

    def _step(self) -> Scalar:
        """How far it is from element to element."""

        if self._is_scaled:
            return Scalar(constant(1.0 / self.scale, self.compute))
        if self.aligned:
            return self._ratio(self.old - 1, max_(self.new - 1, 1))
        return self._ratio(self.old, self.new)

    def _ratio(self, a: Index, b: Index) -> Scalar:
        if a.value is not None and b.value is not None:
            return Scalar(constant((torch.tensor(a.value, dtype=self.compute) / b.value).item(), self.compute))
        return Scalar(position(a)).to(self.compute) / Scalar(position(b)).to(self.compute)

    # ------------------------------------------------------------------ backwards

    def users(self) -> tuple[Callable[[Index], Index], int]:
        """From an element of the image to the first of the results that may be made of it, and how many these are.

        Raises:
            NoRule: that is not known.
        """
        if self.is_same:
            return lambda i: i, 1
        low, width = _REACH[self.mode]
        times = self._times()
        if times is not None:  # one more on either side, for what is rounded
            ahead = (0 if self.mode.startswith("nearest") else times // 2) - (low + width - 1) * times - 1
            return lambda i: i * times + ahead, width * times + 3
        old, new = self.old.value, self.new.value
        if old is None or new is None or not 0 < old <= MOST or not 0 < new <= MOST:
            raise NoRule("an image of symbolic size")
        places = self._lowest(old, new)
        met = torch.cat([(p + n).clamp(0, old - 1) for p in places for n in range(low, low + width)])
        results = torch.arange(new).repeat(width * len(places))
        distance = results - met * new // old
        first, last = int(distance.min()), int(distance.max())
        return lambda i: i * new // old + first, last - first + 1

    @property
    def is_whole(self) -> bool:
        """Is it a whole number of times larger, as far as is known?"""
        old, new = self.old.value, self.new.value
        if old is None or new is None:
            return self._times() is not None
        return old > 0 and new % old == 0

    def _times(self) -> int | None:
        """How many times larger an image of symbolic size is, if that is a whole number."""
        if self.aligned or self.old.value is not None:
            return None
        return next((n for n in range(1, 9) if self.new is self.old * n and self.scale in (0.0, float(n))), None)

    def _lowest(self, old: int, new: int) -> list[torch.Tensor]:
        """Places of all results, rounded down: the lowest and the greatest that machines may find, or the only one."""
        at = torch.arange(new, dtype=torch.float64)
        if self.mode.startswith("nearest"):  # a product, which is the same everywhere
            step = torch.tensor(1.0 / self.scale if self._is_scaled else old / new, dtype=self.compute)
            shift = 0.5 if self.mode == "nearest-exact" else 0.0
            return [((at.to(self.compute) + shift) * step).floor().to(torch.int64)]
        if self.aligned:
            place = at * ((old - 1) / max(new - 1, 1))
        else:
            place = (at + 0.5) * (1.0 / self.scale if self._is_scaled else old / new) - 0.5
        doubt = _DOUBT * place.abs().clamp(min=1.0)
        return [(place - doubt).floor().to(torch.int64), (place + doubt).floor().to(torch.int64)]

    @property
    def _is_scaled(self) -> bool:
        """Does the scale count?"""
        return self.scale > 0 and not self.aligned


def cubic_weights(part: Scalar) -> list[Scalar]:
    """Weights of four elements around a place: Keys' convolution with a = -0.75."""

    def near(x: Scalar) -> Scalar:
        return (x * (_CUBIC + 2) - (_CUBIC + 3)) * x * x + 1.0

    def far(x: Scalar) -> Scalar:
        return ((x * _CUBIC - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC

    rest = 1.0 - part
    return [far(part + 1.0), near(part), near(rest), far(rest + 1.0)]


def axes(
    call: Call, old: Sequence[Index], new: Sequence[Index], mode: Mode, aligned: bool, scales: Sequence[Any]
) -> list[Axis]:
    """The axes of an operator's image."""
    compute = opmath(call.dtype) if not mode.startswith("nearest") else torch.float32
    if any(s is not None and not isinstance(s, (int, float)) for s in scales):
        raise NoRule("a symbolic scale")
    cpu = call.val.device.type == "cpu"
    same = [n is o for o, n in zip(old, new, strict=True)]
    found = []
    for o, n, scale, equal in zip(old, new, scales, same, strict=True):
        factor = 0.0 if scale is None else float(scale)
        if cpu and mode == "nearest" and n is o * 2:  # which its kernel does without the scale
            factor = 0.0
        stays = equal and mode in ("nearest", "linear") and (cpu or all(same))
        found.append(Axis(o, n, mode, aligned, factor, compute, stays))
    return found
