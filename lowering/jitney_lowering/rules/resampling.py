"""Images made larger or smaller, and the gradients of that.

A result is a sum over few elements at computed places. An element's gradient is a sum over the results that it may be
in, of which those count that it is in: nothing is added up by several threads.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor
from jitney_lowering.index import Index, index, max_, min_
from jitney_lowering.ir.scalar import Scalar, eq, maximum, minimum, where
from jitney_lowering.ir.values import Value, masked, position
from jitney_lowering.rules.axes import Axis, Mode, Tap, axes
from jitney_lowering.rules.gathers import at_computed_places
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
RESAMPLING: dict[Any, Rule] = {}
MOST = 36  # results that an element is in, for all dimensions at once; else dimensions follow one another
UNROLLED = 16  # results along a dimension that are written out
_EXACT = (1, 2, 4, 8, 16)  # whose reciprocals floats hold
_MOST = 1 << 20  # a dimension for which all elements are tried


resampling = registering(RESAMPLING)


@resampling(aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)
def nearest(call: Call) -> Tensor:
    """The element below: a division of its number, where eager's float arithmetic gives just that."""
    x, _, *scales = call.args
    kept = len(x.size) - len(scales)
    try:
        times = [_times(o, n, scale) for o, n, scale in zip(x.size[kept:], call.size[kept:], scales, strict=True)]
    except NoRule:
        return _resampled(call, x, axes(call, x.size[kept:], call.size[kept:], "nearest", False, scales))
    x = call.builder.spread(x)

    def element(at: Shape) -> Value:
        return x.load((*at[:kept], *(i // n for i, n in zip(at[kept:], times, strict=True))))

    return call.result(element)


def _times(old: Index, new: Index, scale: Any) -> int:
    """How often each element appears."""
    if scale is not None and not isinstance(scale, (int, float)):
        raise NoRule("a symbolic scale")
    for n in _EXACT:
        if new is old * n and (scale is None or scale == n):
            return n
    if old.value is None or new.value is None or not old.value or new.value % old.value or new.value > _MOST:
        raise NoRule("a scale that is no whole number")
    n = new.value // old.value
    step = torch.tensor(1.0 / scale if scale is not None and scale > 0 else old.value / new.value, dtype=torch.float32)
    places = torch.arange(new.value)
    found = (places.to(torch.float32) * step).floor().to(torch.int64).clamp(max=old.value - 1)
    if not torch.equal(found, places // n):
        raise NoRule("a scale that eager rounds otherwise")
    return n


def _larger(call: Call, mode: Mode) -> Tensor:
    x, _, *rest = call.args
    aligned, *scales = [False, *rest] if mode == "nearest-exact" else rest
    kept = len(x.size) - len(scales)
    call.refuse_unless(mode == "nearest-exact" or x.dtype.is_floating_point, "an image of whole numbers")
    return _resampled(call, x, axes(call, x.size[kept:], call.size[kept:], mode, aligned, scales))


def _resampled(call: Call, x: Tensor, image: Sequence[Axis]) -> Tensor:
    """Sums over elements, the last axis first."""
    builder, kept = call.builder, len(x.size) - len(image)
    call.refuse_unless(builder.policy.samples, "sampled at computed places")
    call.refuse_unless(all(s != 0 for s in x.size), "an empty image")
    call.refuse_unless(builder.policy.lone_images or not _is_lone(call, image), "sampled for an operator as a whole")
    x = at_computed_places(call, builder.spread(x), range(kept, len(x.size)))
    compute = x.dtype if image[0].mode.startswith("nearest") else opmath(x.dtype)

    def total(first: Shape, rest: Shape, left: Sequence[list[Tap]]) -> Scalar:
        if not left:
            return Scalar(x.load((*first, *rest))).to(compute)
        size = image[len(image) - len(left)].old
        parts = []
        for place, weight in left[0]:
            value = total(first, (*rest, builder.within(place.value, size)), left[1:])
            parts.append(value if weight is None else weight * value)
        return functools.reduce(operator.add, parts)

    def element(at: Shape) -> Value:
        taps = [axis.taps(i) for axis, i in zip(image, at[kept:], strict=True)]
        return total(at[:kept], (), taps).to(call.dtype).value

    return call.result(element)


def _is_lone(call: Call, image: Sequence[Axis]) -> bool:
    """Is it a larger image of which no kernel makes something else? For cubics, kernels are as good all the same."""
    hint = call.builder.sizes.hint
    larger = any(hint(axis.new) > hint(axis.old) for axis in image)
    return larger and image[0].mode != "cubic" and not any(_is_pointwise(user.target) for user in call.node.users)


def _is_pointwise(target: Any) -> bool:
    return torch.Tag.pointwise in getattr(target, "tags", ())


def _gradient(call: Call, mode: Mode) -> Tensor:
    grad, _, _, *rest = call.args
    aligned, *scales = [False, *rest] if mode.startswith("nearest") else rest
    kept = len(grad.size) - len(scales)
    call.refuse_unless(call.builder.policy.samples, "sampled at computed places")
    call.refuse_unless(all(s != 0 for s in (*grad.size, *call.size)), "an empty image")
    image = axes(call, call.size[kept:], grad.size[kept:], mode, aligned, scales)
    whole = not mode.startswith("nearest") or all(axis.is_whole for axis in image)
    call.refuse_unless(call.builder.policy.lone_samples or whole, "rather scattered")
    users = [axis.users() for axis in image]
    compute = opmath(grad.dtype)
    if functools.reduce(operator.mul, [count for _, count in users]) <= MOST:
        grad = call.builder.spread(grad)
        value = _all_at_once(call, grad, image)
        return call.result(lambda at: value(at).to(call.dtype).value)
    for number in reversed(range(len(image))):
        grad = _along(call, grad, kept + number, image[number], compute)
    made = grad
    return call.result(lambda at: Scalar(made.load(at)).to(call.dtype).value)


Candidate = tuple[Index, Scalar, Scalar | None]  # a result, if it is made of the element, with which weight


def _candidate(axis: Axis, i: Index, at: Index) -> Candidate:
    """Result ``at`` and what element ``i`` is to it."""
    there = (Scalar(position(at)) >= 0) & (Scalar(position(at)) < Scalar(position(axis.new)))
    found: Scalar | None = None
    share: Scalar | None = None
    for place, weight in axis.taps(at):
        last = Scalar(position(axis.old - 1, place.dtype))
        hit = eq(minimum(maximum(place, 0), last), Scalar(position(i, place.dtype)))
        found = hit if found is None else found | hit
        if weight is not None:
            part = where(hit, weight, 0.0)
            share = part if share is None else share + part
    assert found is not None
    return at, there & found, share


def _term(call: Call, grad: Tensor, at: Shape, candidates: Mapping[int, Candidate]) -> Scalar:
    """The gradient of one result, by its weights; 0 if it is none. ``candidates``: by dimension."""
    truth = functools.reduce(operator.and_, [found for _, found, _ in candidates.values()])
    place = [candidates[d][0] if d in candidates else i for d, i in enumerate(at)]
    if call.builder.policy.chooses:
        value = masked(grad.load(tuple(place)), truth.value)
    else:
        inside = [min_(max_(i, ZERO), grad.size[d] - 1) if d in candidates else i for d, i in enumerate(place)]
        value = grad.load(tuple(inside))
    term = Scalar(value).to(opmath(grad.dtype))
    for _, _, share in reversed(list(candidates.values())):
        term = term if share is None else share * term
    return where(truth, term, 0.0)


def _all_at_once(call: Call, grad: Tensor, image: Sequence[Axis]) -> Callable[[Shape], Scalar]:
    kept = len(grad.size) - len(image)

    def element(at: Shape) -> Scalar:
        each = []
        for axis, i in zip(image, at[kept:], strict=True):
            start, count = axis.users()
            each.append([_candidate(axis, i, start(i) + n) for n in range(count)])
        terms = [_term(call, grad, at, dict(enumerate(several, kept))) for several in itertools.product(*each)]
        return functools.reduce(operator.add, terms)

    return element


def _along(call: Call, grad: Tensor, dim: int, axis: Axis, compute: torch.dtype) -> Tensor:
    """The gradient with this axis as it was before, in memory."""
    builder = call.builder
    start, count = axis.users()
    grad = builder.spread(grad)
    size = (*grad.size[:dim], axis.old, *grad.size[dim + 1 :])

    def term(at: Shape, n: Index) -> Scalar:
        return _term(call, grad, at, {dim: _candidate(axis, at[dim], start(at[dim]) + n)})

    if count > UNROLLED:
        terms = Tensor((*size, index(count)), compute, grad.device, lambda at: term(at[:-1], at[-1]).value)
        return builder.reduce("sum", terms, [len(size)])

    def element(at: Shape) -> Value:
        return functools.reduce(operator.add, [term(at, index(n)) for n in range(count)]).value

    made = Tensor(size, compute, grad.device, element)
    builder.realise(made)
    return made


_MODES: dict[Mode, str] = {
    "nearest": "upsample_nearest1d upsample_nearest2d upsample_nearest3d",
    "nearest-exact": "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d",
    "linear": "upsample_linear1d upsample_bilinear2d upsample_trilinear3d",
    "cubic": "upsample_bicubic2d",
}

for _mode, _names in _MODES.items():
    for _name in _names.split():
        if _mode != "nearest":
            RESAMPLING[getattr(aten, _name).default] = functools.partial(_larger, mode=_mode)
        RESAMPLING[getattr(aten, f"{_name}_backward").default] = functools.partial(_gradient, mode=_mode)
