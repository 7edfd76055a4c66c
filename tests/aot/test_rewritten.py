"""Operations that are traced in other words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney import events


def kept(fn: Any, *args: Any) -> tuple[Any, int]:
    """The compiled result, and how many graphs run as captured."""
    seen: list[Any] = []

    def note(event: Any) -> None:
        if isinstance(event, events.GraphKept):
            seen.append(event)

    with events.listen(note):
        return jitney.compile(fn, backend="aot_eager", fullgraph=True)(*args), len(seen)


@pytest.mark.parametrize("size", [(), (4,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("form", ["function", "operator"])
def test_one_hot_is_part_of_the_graph(size: tuple[int, ...], form: str) -> None:
    operation = F.one_hot if form == "function" else torch.ops.aten.one_hot.default

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return operation(x, 5) * y

    x, y = torch.randint(0, 5, size), torch.randn(5)
    found, graphs = kept(fn, x, y)
    assert graphs == 0 and torch.equal(found, fn(x, y)) and found.stride() == fn(x, y).stride()


@pytest.mark.parametrize("wrong", [5, -1])
def test_a_class_out_of_bounds_raises_what_eager_raises(wrong: int) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.one_hot(x, 5) + 1

    compiled = jitney.compile(fn, backend="aot_eager")
    good, bad = torch.tensor([0, 4]), torch.tensor([1, wrong])
    assert torch.equal(compiled(good), fn(good))
    with pytest.raises(RuntimeError) as expected:
        fn(bad)
    with pytest.raises(RuntimeError) as found:
        compiled(bad)
    assert str(found.value) == str(expected.value)
    assert torch.equal(compiled(good), fn(good))
