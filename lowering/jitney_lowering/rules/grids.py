"""Images sampled at the places that a grid holds: ``grid_sample`` of planes and volumes, and its gradients.

Coordinates are numbers from -1 to 1, computed in float32 at least. What is outside is 0, or the edge, or the mirrored
image. Gradients of images are added up by several threads (``Policy.scatters``).
"""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.scattering import scattered
from jitney_lowering.aten.tensor import Shape, Tensor
from jitney_lowering.index import Index, index
from jitney_lowering.ir.scalar import Scalar, absolute, eq, minimum, one, two, where
from jitney_lowering.ir.values import Value, constant, masked, position
from jitney_lowering.rules.axes import cubic_weights
from jitney_lowering.rules.gathers import at_computed_places
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.rules.scatters import allow

aten = torch.ops.aten
GRIDS: dict[Any, Rule] = {}
BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
_FAR = 2.0**31 - 256  # coordinates beyond this are outside, like what is no number
_OUTSIDE = -100.0


grids = registering(GRIDS)


@dataclass(frozen=True)
class Side:
    """One side of an image: ``size`` elements, what is beyond them, and where -1 and 1 are."""

    size: Index
    padding: int
    aligned: bool
    compute: torch.dtype
    is_plane_of_cpu: bool = False  # whose kernel rounds otherwise
    nan_is_last: bool = False  # as for the CPU's kernel of volumes; else it is the first
    saturates: bool = False  # as CUDA's integers do, the largest of which is odd

    @property
    def length(self) -> Scalar:
        """Of the interval from -1 to 1."""
        return Scalar(position(self.size - 1 if self.aligned else self.size)).to(self.compute)

    @property
    def last(self) -> Scalar:
        """The last place."""
        return Scalar(position(self.size - 1)).to(self.compute)

    def place(self, given: Scalar) -> Scalar:
        """A coordinate of the grid in elements."""
        if self.aligned:
            if self.is_plane_of_cpu:
                return (given + 1.0) * (self.length / 2.0)
            return (given + 1.0) / 2.0 * self.length
        if self.is_plane_of_cpu:
            return (given + 1.0) * (self.length / 2.0) - 0.5
        return ((given + 1.0) * self.length - 1.0) / 2.0

    def inside(self, place: Scalar) -> Scalar:
        """The place that is meant: the nearest one, or its mirror image; what is no number is at an end."""
        if self.padding == ZEROS:
            return place
        if self.padding == REFLECTION:
            place = self._mirrored(place)[0]
        if self.nan_is_last:
            place = where(place < 0.0, 0.0, place)
            return where(place < self.last, place, self.last)
        return minimum(where(place > 0.0, place, 0.0), self.last)

    def inside_with_slope(self, given: Scalar) -> tuple[Scalar, Scalar]:
        """The place that a coordinate means, and how far that moves with it; at the edge it does not."""
        place, slope = self.place(given), self.length / 2.0
        if self.padding == REFLECTION:
            place, sign = self._mirrored(place)
            slope = slope * sign
        if self.padding != ZEROS:
            low, high = place <= 0.0, place >= self.last
            slope = where(low | high, 0.0, slope)
            place = where(low, 0.0, where(high, self.last, place))
        return place, slope

    def _mirrored(self, place: Scalar) -> tuple[Scalar, Scalar]:
        """In the mirrors at the first and the last place, or half an element beyond; and 1 or -1, where it turns."""
        start, span = (0.0 if self.aligned else -0.5), self.length
        moved = place - start
        away = absolute(moved)
        rest = two("fmod", away, span)
        turns = one("floor", away / span)
        even = eq(turns - 2.0 * one("floor", turns / 2.0), 0.0)
        if self.saturates:
            even = even & ~(turns >= 2.0**31)
        sign = where(even, where(moved < 0.0, span.like(-1.0), 1.0), where(moved < 0.0, span.like(1.0), -1.0))
        found = where(even, rest + start, span - rest + start)
        if (self.aligned and self.size.value is None) or (self.size == 1 and self.aligned):
            nowhere = eq(span, 0.0)
            return where(nowhere, 0.0, found), where(nowhere, 0.0, sign)
        return found, sign


def safe(place: Scalar) -> Scalar:
    """The place; outside if no integer holds it."""
    return where(absolute(place) < _FAR, place, _OUTSIDE)


@dataclass(frozen=True)
class Pick:
    """An element along one side: its index, whether it is there, and its weight."""

    at: Index
    there: Scalar
    weight: Scalar | None


def _pick(call: Call, side: Side, place: Scalar, weight: Scalar | None) -> Pick:
    """The element at a whole place."""
    there = (place > -1.0) & (place <= side.last)
    return Pick(call.builder.within(safe(place).to(torch.int32).value, side.size), there, weight)


class _Sampler:
    """What forward and backward share: the arguments of one call."""

    def __init__(self, call: Call, x: Tensor, grid: Tensor, mode: int, padding: int, aligned: bool) -> None:
        self.call, self.x, self.grid, self.mode = call, x, grid, mode
        call.refuse_unless(call.builder.policy.samples, "sampled at computed places")
        call.refuse_unless(all(s != 0 for s in (*x.size, *grid.size)), "an empty image")
        self.compute = opmath(x.dtype)
        cuda = x.device.type == "cuda"
        self.is_plane_of_cpu = len(x.size) == 4 and not cuda
        volume = len(x.size) == 5 and not cuda
        self.sides = [Side(s, padding, aligned, self.compute, self.is_plane_of_cpu, volume, cuda) for s in x.size[2:]]

    def given(self, at: Shape) -> list[Scalar]:
        """The coordinates at (batch, place in the grid), in the order of the image's sides."""
        count = len(self.sides)
        order = reversed(range(count))
        return [Scalar(self.grid.load((*at, index(d)))).to(self.compute) for d in order]

    def read(self, at: Shape, picks: tuple[Pick, ...], there: Scalar) -> Scalar:
        """The image's element, or anything where it is not there."""
        value = self.x.load((*at[:2], *(p.at for p in picks)))
        return Scalar(masked(value, there.value) if self.call.builder.policy.chooses else value).to(self.compute)

    def term(self, at: Shape, picks: tuple[Pick, ...]) -> Scalar:
        """The weighted element; nothing where it is not there."""
        there = functools.reduce(operator.and_, [p.there for p in picks])
        weights = [p.weight for p in reversed(picks) if p.weight is not None]
        value = self.read(at, picks, there)
        if not weights:
            return where(there, value, 0.0)
        weight = functools.reduce(operator.mul, weights)
        if self.is_plane_of_cpu:  # its kernel has zeros there, which do not hide what is no number
            return where(there, value, 0.0) * weight
        return where(there, value * weight, 0.0)

    def sampled(self, at: Shape) -> Scalar:
        """One element of the result."""
        given = self.given((at[0], *at[2:]))
        if self.mode == BICUBIC:
            return self._cubic(at, given)
        places = [side.inside(side.place(g)) for side, g in zip(self.sides, given, strict=True)]
        if self.mode == NEAREST:
            picks = [_pick(self.call, s, one("round", p), None) for s, p in zip(self.sides, places, strict=True)]
            return self.term(at, tuple(picks))
        if not self.is_plane_of_cpu:
            places = [safe(p) for p in places]
        corners = [self.two(s, p) for s, p in zip(self.sides, places, strict=True)]
        return functools.reduce(operator.add, [self.term(at, picks) for picks in itertools.product(*corners)])

    def two(self, side: Side, place: Scalar) -> list[Pick]:
        """The elements on either side of a place."""
        low = one("floor", place)
        part = place - low
        return [_pick(self.call, side, low, 1.0 - part), _pick(self.call, side, low + 1.0, part)]

    def _cubic(self, at: Shape, given: list[Scalar]) -> Scalar:
        picks = []
        for side, coordinate in zip(self.sides, given, strict=True):
            place = side.place(coordinate)
            low = one("floor", place)
            weights = cubic_weights(place - low)
            around = [one("trunc", side.inside(low + float(n - 1))) for n in range(4)]
            picks.append([_pick(self.call, side, p, w) for p, w in zip(around, weights, strict=True)])
        rows = []
        for row in picks[0]:  # weights that are no numbers show even where the element is not there
            bare = [(Pick(row.at, row.there, None), Pick(c.at, c.there, None)) for c in picks[1]]
            terms = [self.term(at, p) * c.weight for p, c in zip(bare, picks[1], strict=True) if c.weight is not None]
            rows.append(functools.reduce(operator.add, terms))
        return functools.reduce(
            operator.add, [r * p.weight for r, p in zip(rows, picks[0], strict=True) if p.weight is not None]
        )


@grids(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(call: Call) -> Tensor:
    """The image at the grid's places."""
    x, grid, mode, padding, aligned = call.args
    _leave_planes_to_cpus(call, x, mode)
    x = at_computed_places(call, call.builder.spread(x), range(2, len(x.size)))
    sampler = _Sampler(call, x, call.builder.spread(grid), mode, padding, aligned)
    return call.result(lambda at: sampler.sampled(at).to(call.dtype).value)


def _leave_planes_to_cpus(call: Call, x: Tensor, mode: int) -> None:
    """Eager's own kernels for planes on CPUs go along places, ours one by one."""
    slow = mode == BILINEAR and len(x.size) == 4
    call.refuse_unless(call.builder.policy.lone_samples or not slow, "a plane sampled by few threads")


@grids(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(call: Call) -> list[Tensor]:
    """The gradients of image and grid, each if it is asked for."""
    grad, x, grid, mode, padding, aligned, (of_image, _) = call.args
    call.refuse_unless(mode != BICUBIC, "gradients of cubics")
    _leave_planes_to_cpus(call, x, mode)
    grad, x, grid = (call.builder.spread(t) for t in (grad, x, grid))
    x = at_computed_places(call, x, range(2, len(x.size)))
    sampler = _Sampler(call, x, grid, mode, padding, aligned)
    nothing = Tensor((), x.dtype, x.device, lambda at: constant(0.0, x.dtype), wanted=())
    image = _image_gradient(call, sampler, grad) if of_image else nothing
    return [image, _grid_gradient(call, sampler, grad)]


def _image_gradient(call: Call, sampler: _Sampler, grad: Tensor) -> Tensor:
    x, compute, count = sampler.x, sampler.compute, len(sampler.sides)
    sizes, val = call.builder.sizes.shape, call.val[0]
    zero = constant(0, x.dtype)
    empty = Tensor(x.size, x.dtype, x.device, lambda at: zero, wanted=sizes(val.stride()))
    allow(call, empty, "sum")
    corners = 1 if sampler.mode == NEAREST else 2**count

    def picks(at: Shape) -> list[Pick]:
        """At (corner, batch, channel, place in the grid)."""
        found = []
        for d, (side, given) in enumerate(zip(sampler.sides, sampler.given((at[1], *at[3:])), strict=True)):
            place = safe(side.inside_with_slope(given)[0])
            if sampler.mode == NEAREST:
                found.append(_pick(call, side, one("round", place), None))
                continue
            far = Scalar(position(at[0] // 2**d % 2)).to(compute)
            low = one("floor", place)
            part = place - low
            found.append(_pick(call, side, low + far, where(eq(far, 0.0), 1.0 - part, part)))
        return found

    def value(at: Shape) -> Value:
        made = Scalar(grad.load(at[1:])).to(compute)
        weights = [p.weight for p in reversed(picks(at)) if p.weight is not None]
        if weights:
            made = functools.reduce(operator.mul, weights) * made
        return made.to(x.dtype).value

    def there(at: Shape) -> Value:
        return functools.reduce(operator.and_, [p.there for p in picks(at)]).value

    def place(at: Shape) -> Shape:
        return (at[1], at[2], *(p.at for p in picks(at)))

    return scattered(call.builder, empty, (index(corners), *grad.size), place, value, "sum", there)


def _grid_gradient(call: Call, sampler: _Sampler, grad: Tensor) -> Tensor:
    grid, val, compute, count = sampler.grid, call.val[1], sampler.compute, len(sampler.sides)
    sizes = call.builder.sizes.shape

    def slope(d: int, at: Shape) -> Value:
        """Of the result at (batch, channel, place in the grid) along a side, times its gradient."""
        moves = [s.inside_with_slope(g) for s, g in zip(sampler.sides, sampler.given((at[0], *at[2:])), strict=True)]
        corners = [sampler.two(s, safe(p)) for s, (p, _) in zip(sampler.sides, moves, strict=True)]
        total: Scalar | None = None
        for number, picks in enumerate(itertools.product(*corners)):
            far = number >> (count - 1 - d) & 1
            there = functools.reduce(operator.and_, [p.there for p in picks])
            value = sampler.read(at, picks, there) * Scalar(grad.load(at)).to(compute)
            for n, pick in enumerate(picks):
                if n != d and pick.weight is not None:
                    value = value * pick.weight
            value = where(there, value if far else -value, 0.0)
            total = value if total is None else total + value
        assert total is not None
        return (total * moves[d][1]).value

    sums: list[Tensor] = []
    if sampler.mode == BILINEAR:
        for d in reversed(range(count)):
            each = Tensor(grad.size, compute, grid.device, functools.partial(slope, d))
            sums.append(call.builder.reduce("sum", each, [1]))

    def element(at: Shape) -> Value:
        made = Scalar(constant(0.0, compute))
        for d, total in enumerate(sums):
            made = where(eq(Scalar(position(at[-1])), d), Scalar(total.load(at[:-1])), made)
        return made.to(grid.dtype).value

    return Tensor(grid.size, grid.dtype, grid.device, element, wanted=sizes(val.stride()))
