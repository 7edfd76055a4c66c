"""What differs between two results: one word for the kind, one line for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney_testing.pictures import strides_that_matter
from jitney_tools.compare.copies import tensors


@dataclass(frozen=True)
class Difference:
    """Something that differs from eager.

    Args:
        kind: ``values``, ``dtype``, ``shape``, ``strides``, ``structure``, ``requires_grad``, ``aliasing``, ``layout``.
        detail: where, and what both sides have.
    """

    kind: str
    detail: str


def difference(
    expected: Any, found: Any, where: str, *, values: bool = True, strides: bool = True
) -> Difference | None:
    """The first difference between two results of plain containers, tensors and numbers; None if there is none.

    Args:
        expected: eager's.
        found: the compiled function's.
        where: what they are, for the detail.
        values: False if the values are undefined, as those of ``torch.empty``.
        strides: compare strides of dimensions that have more than one element.
    """
    if isinstance(expected, torch.Tensor):
        if not isinstance(found, torch.Tensor):
            return Difference("structure", f"{where} is a {type(found).__name__}, a tensor was expected")
        return _of_tensors(expected, found, where, values, strides)
    if isinstance(expected, (list, tuple)):
        if type(found) is not type(expected) or len(found) != len(expected):
            return Difference("structure", f"{where} is {_shape(found)}, {_shape(expected)} was expected")
        pairs = ((f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(expected, found, strict=True)))
    elif isinstance(expected, dict):
        if type(found) is not type(expected) or list(found) != list(expected):
            return Difference("structure", f"{where} is {_shape(found)}, {_shape(expected)} was expected")
        pairs = ((f"{where}[{key!r}]", expected[key], found[key]) for key in expected)
    else:
        return _of_others(expected, found, where)
    differences = (difference(a, b, name, values=values, strides=strides) for name, a, b in pairs)
    return next((d for d in differences if d is not None), None)


def _shape(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, (list, tuple, dict)) else ""
    return f"a {type(value).__name__}{size}"


def _of_others(expected: Any, found: Any, where: str) -> Difference | None:
    if type(expected) is not type(found):
        return Difference("structure", f"{where} is {_shape(found)}, {_shape(expected)} was expected")
    if isinstance(expected, (bool, int, float, complex, str, type(None), torch.dtype, torch.Size)):
        same = expected == found or (expected != expected and found != found)
        return None if same else Difference("values", f"{where} is {found!r}, {expected!r} was expected")
    return None


def _of_tensors(expected: Any, found: Any, where: str, values: bool, strides: bool) -> Difference | None:
    facts = [("structure", type(expected), type(found)), ("layout", expected.layout, found.layout)]
    facts += [("dtype", expected.dtype, found.dtype), ("shape", tuple(expected.shape), tuple(found.shape))]
    facts += [("device", expected.device, found.device)]
    facts += [("requires_grad", expected.requires_grad, found.requires_grad)]
    if expected.layout is torch.strided and not expected.is_nested:
        facts.append(("lazy bits", (expected.is_conj(), expected.is_neg()), (found.is_conj(), found.is_neg())))
        if strides:
            facts.append(("strides", strides_that_matter(expected), strides_that_matter(found)))
    for kind, want, got in facts:
        if want != got:
            return Difference(kind, f"{where}: {got}, {want} was expected")
    if not values or same_bits(expected, found):
        return None
    try:
        torch.testing.assert_close(found, expected, equal_nan=True, check_stride=False)
    except AssertionError as error:
        text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
        return Difference("values", f"{where}: {text}")
    return None


def same_bits(expected: Any, found: Any) -> bool:
    """Do two results hold the same numbers, NaN equal to NaN, without any tolerance?"""
    pairs = list(zip(list(tensors(expected)), list(tensors(found)), strict=False))
    return all(_equal(a.detach(), b.detach()) for a, b in pairs)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout is not torch.strided or a.is_nested or a.is_quantized or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype is torch.complex32:  # which torch cannot compare
        a, b = a.to(torch.complex64), b.to(torch.complex64)
    if torch.equal(a, b):
        return True
    return bool(torch.equal(torch.isnan(a), torch.isnan(b)) and torch.equal(_numbers(a), _numbers(b)))


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(tensor), torch.zeros_like(tensor), tensor)


def sharing(results: Any, arguments: Any) -> list[tuple[int, ...]]:
    """Which results share memory with which: per result, the positions of earlier ones and (negative) of arguments."""
    made, given = list(tensors(results)), list(tensors(arguments))
    found = []
    for i, tensor in enumerate(made):
        others = [*((-j - 1, other) for j, other in enumerate(given)), *enumerate(made[:i])]
        found.append(tuple(at for at, other in others if _shares(tensor, other)))
    return found


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout is not torch.strided or b.layout is not torch.strided or not a.numel() or not b.numel():
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0


def fresh_tangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients to begin a backward with: the same numbers for the same shapes and dtypes."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(out.shape, dtype=out.dtype, generator=generator).to(out.device) for out in outputs]
