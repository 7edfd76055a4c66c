"""``associative_scan``: pointwise functions are written into the graph, others run in Python."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import Compiled, check, t

associative_scan: Any = torch._higher_order_ops.associative_scan


def linear(left: Any, right: Any) -> Any:
    """The recurrence of state-space models."""
    a, b = left
    c, d = right
    return a * c, c * b + d


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("reverse", [False, True])
def test_pair(size: int, reverse: bool) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return associative_scan(linear, (x.exp(), y), dim=1, reverse=reverse, combine_mode="generic")

    check(fn, t(2, size, 3), t(2, size, 3) * 2, graphs=1, breaks=0)


def test_dictionary_integers_and_vectors() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        def combine(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
            return {"max": torch.maximum(left["max"], right["max"]), "sum": left["sum"] + right["sum"] * 2}

        return associative_scan(combine, {"max": x, "sum": n}, dim=0, combine_mode="generic")

    check(fn, t(5, 2), torch.arange(10).view(5, 2), graphs=1, breaks=0, raises=BaseException)
    check(fn, t(5), torch.arange(5), raises=BaseException)


def test_gradients() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return associative_scan(linear, (x, y), dim=0, combine_mode="generic")[1] * 2

    compiled = Compiled(fn)
    for size in (3, 4, 6, 9):
        compiled(t(size, 2, requires_grad=True), t(size, 2))


def test_shape_of_one_item() -> None:
    def fn(x: torch.Tensor) -> Any:
        return associative_scan(lambda a, b: a + b * a.dim(), x, dim=0, combine_mode="generic")

    check(fn, t(4, 2), graphs=1, breaks=0)


def test_not_pointwise() -> None:
    def product(x: torch.Tensor) -> Any:
        return associative_scan(lambda a, b: a @ b, x, dim=0, combine_mode="generic")

    def broadcast(x: torch.Tensor) -> Any:
        return associative_scan(lambda a, b: a + b + a.sum(), x, dim=0, combine_mode="generic")

    def indexed(x: torch.Tensor) -> Any:
        return associative_scan(lambda a, b: (a + b)[::1], x, dim=0, combine_mode="generic")

    check(product, t(4, 2, 2))
    check(broadcast, t(4, 2), raises=BaseException, skips=None)
    check(indexed, t(4, 2))


def test_closures_and_effects() -> None:
    def closure(x: torch.Tensor, y: torch.Tensor) -> Any:
        return associative_scan(lambda a, b: a + b * y, x, dim=0, combine_mode="generic")

    def number(x: torch.Tensor, n: int) -> Any:
        return associative_scan(lambda a, b: a + b * n, x, dim=0, combine_mode="generic")

    def counted(x: torch.Tensor, seen: list[int]) -> Any:
        def combine(a: Any, b: Any) -> Any:
            seen.append(len(seen))
            return a + b

        return associative_scan(combine, x, dim=0, combine_mode="generic")

    def printed(x: torch.Tensor) -> Any:
        def combine(a: Any, b: Any) -> Any:
            print("combine")
            return a + b

        return associative_scan(combine, x, dim=0, combine_mode="generic")

    check(closure, t(4, 2), t(2))
    check(number, t(4, 2), 3)
    check(counted, t(5, 2), [], graphs=1, breaks=0)
    check(printed, t(4, 2))


def test_tensor_that_leaks() -> None:
    def used(x: torch.Tensor) -> Any:
        kept: list[Any] = []

        def combine(a: Any, b: Any) -> Any:
            kept.append(a)
            return a + b

        y = associative_scan(combine, x, dim=0, combine_mode="generic")
        return y, len(kept)

    def returned(x: torch.Tensor) -> Any:
        kept: list[Any] = []

        def combine(a: Any, b: Any) -> Any:
            kept.append(a)
            return a + b

        y = associative_scan(combine, x, dim=0, combine_mode="generic")
        return y, kept[0].shape, [kept]

    check(used, t(4, 2), graphs=1)
    compiled = Compiled(returned).compiled
    assert torch.equal(compiled(t(4, 2))[0], t(4, 2).cumsum(0))


def test_wrong_calls() -> None:
    def fn(x: torch.Tensor, how: str) -> Any:
        try:
            if how == "mode":
                return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="unknown")
            if how == "dim":
                return associative_scan(lambda a, b: a + b, x, dim=5, combine_mode="generic")
            return associative_scan(lambda a, b: (a, b), x, dim=0, combine_mode="generic")
        except Exception as error:
            return type(error).__name__

    for how in ("mode", "dim", "result"):
        check(fn, t(4, 2), how, skips=None)


def test_vmap_itself_is_a_break() -> None:
    def fn(x: torch.Tensor) -> Any:
        return torch.vmap(lambda v: v * 2)(x) + 1

    check(fn, t(4, 2))
