"""Is a number wrong, or only rounded otherwise? The same computation in float64 tells.

Where a result is further from the float64 one than eager's own error explains, it is wrong. Random numbers are drawn
once, by eager, and used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney.torch_compat import torch_private

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be from the float64 one, beside what eager's own error explains.

    Args:
        each: of one element, relative to it and to the root mean square of all.
        all: of the root mean square of the errors, relative to that of the values.
    """

    each: float
    all: float


TOLERANCES = {
    torch.float64: Tolerance(1e-7, 1e-8),
    torch.float32: Tolerance(2e-5, 1e-5),
    torch.float16: Tolerance(4e-3, 1e-3),
    torch.bfloat16: Tolerance(3e-2, 4e-3),
}
TIMES = 4.0  # the largest error of eager's that explains one of the same size
TIMES_ALL = 3.0  # the same for the root mean square


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` applied to what plain containers hold."""
    if type(value) in (list, tuple):
        return type(value)(mapped(item, change) for item in value)
    if type(value) is dict:
        return {key: mapped(item, change) for key, item in value.items()}
    return change(value)


def doubled(value: Any) -> Any:
    """A tensor of a narrower dtype in float64 or complex128; such a dtype as the wider one; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype in WIDE:
        return value.to(WIDE[value.dtype])
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


class RandomDraws(torch_private.TorchDispatchMode):
    """Keeps what random operators return, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if _is_random(func):
            self.draws.append(mapped(result, lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v))
        return result


class Doubles(torch_private.TorchDispatchMode):
    """Runs operators in float64, whatever dtype they ask for; random ones return what was recorded."""

    def __init__(self, draws: list[Any]) -> None:
        super().__init__()
        self.draws = iter(draws)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _is_random(func):
            drawn = mapped(next(self.draws), doubled)
            if func._schema.is_mutable:
                args[0].copy_(drawn)
                return args[0]
            return drawn
        if not func._schema.is_mutable:
            args = mapped(args, doubled)
        return func(*args, **mapped(kwargs, doubled))


class InDoubles:
    """A block in which everything is computed in float64."""

    def __init__(self, draws: list[Any]) -> None:
        self.mode = Doubles(draws)

    def know(self, wide: Sequence[tuple[torch.Tensor, torch.dtype]]) -> None:
        """Tensors in float64 that are given to what runs, and the dtype that each has in eager."""

    def __enter__(self) -> None:
        self.dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        self.mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.mode.__exit__(*error)
        torch.set_default_dtype(self.dtype)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Are two tensors of the same facts so close that nobody needs to ask further?"""
    if torch.equal(found, expected):
        return True
    if not (found.is_floating_point() or found.is_complex()):
        return False
    return torch.allclose(found, expected, rtol=torch.finfo(found.dtype).eps * 8, atol=0, equal_nan=True)


def too_far(found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None) -> str:
    """Why a result is wrong; empty if rounding explains what differs.

    Args:
        found: the result.
        expected: eager's, of the same dtype and shape.
        exact: that of float64; None if there is none: then eager's is the measure.
    """
    if not (found.is_floating_point() or found.is_complex()):
        wrong = found != expected
        if exact is not None and exact.shape == expected.shape:
            wrong &= exact == expected  # where float64 says otherwise than eager, rounding decides
        return _share(wrong)
    tolerance = TOLERANCES.get(_real(found).dtype, TOLERANCES[torch.float32])
    result, eager = _real(found).double(), _real(expected).double()
    if exact is None or exact.shape != expected.shape or not (exact.is_floating_point() or exact.is_complex()):
        best = eager
    else:
        best = _real(exact).double()
    usable = torch.isfinite(best) & torch.isfinite(eager)
    odd = usable & ~torch.isfinite(result)
    odd |= (best.isnan() & eager.isnan() & ~result.isnan()) | (best.isinf() & (best == eager) & (result != best))
    if bool(odd.any()):
        return f"{_share(odd)} are infinite or NaN where eager's are not, or the other way round"
    result, eager, best = result[usable], eager[usable], best[usable]
    if not result.numel():
        return ""
    error, own = (result - best).abs(), (eager - best).abs()
    size = best.square().mean().sqrt()
    floor = torch.finfo(_real(found).dtype).eps / 100
    limit = TIMES * own.max() + tolerance.each * (best.abs() + size) + floor
    far = error > limit
    both = error.square().mean().sqrt(), own.square().mean().sqrt()
    off = bool(both[0] > TIMES_ALL * both[1] + tolerance.all * size + floor) or _is_biased(found, result, eager, best)
    if not bool(far.any()) and not off:
        return ""
    at = error.argmax()
    text = f"{_share(far)} are wrong; " if bool(far.any()) else "the whole is off; "
    whole = "eager" if exact is None else "float64"
    pair = f"{result[at].item():.6g}, {best[at].item():.6g} in {whole}"
    return f"{text}the largest error is {error[at].item():.3g} ({pair}), that of eager {own.max().item():.3g}"


def _is_biased(found: torch.Tensor, result: torch.Tensor, eager: torch.Tensor, best: torch.Tensor) -> bool:
    """Is the whole larger or smaller by a factor? Rounding errors cancel out, such a factor does not."""
    weight = best.square().sum()
    if not bool(weight > 0):
        return False
    bias, own = (float(((side - best) * best).sum() / weight) for side in (result, eager))
    eps = torch.finfo(_real(found).dtype).eps
    return abs(bias) > TIMES_ALL * abs(own) + max(
        eps * (0.25 + 1.5 / best.numel() ** 0.5), TOLERANCES[torch.float32].all
    )


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _share(wrong: torch.Tensor) -> str:
    count = int(wrong.sum())
    return f"{count} of {wrong.numel()} elements" if count else ""
