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


@pytest.mark.parametrize("layout", ["channels last", "transposed", "every second"])
@pytest.mark.parametrize("module", [False, True])
def test_a_leaky_relu_of_random_slopes_has_eagers_strides(layout: str, module: bool) -> None:
    x = {
        "channels last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "transposed": torch.randn(6, 4).t(),
        "every second": torch.randn(4, 6)[:, ::2],
    }[layout]
    operation = torch.nn.RReLU(0.1, 0.3) if module else lambda x: F.rrelu(x, 0.1, 0.3, True)

    def fn(x: torch.Tensor) -> Any:
        made = operation(x)
        return made, made.stride(), F.rrelu(x, 0.1, 0.3, False), F.rrelu(x * 1, 0.1, 0.3, True, True)

    sides = []
    for run in (fn, jitney.compile(fn, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(0)
        given = x.clone().requires_grad_()
        first, strides, *others = run(given)
        (gradient,) = torch.autograd.grad((first * first).sum(), given)
        sides.append(([first, *others, gradient], strides))
    torch.testing.assert_close(sides[0][0], sides[1][0])
    assert sides[0][1] == sides[1][1]
    assert [t.stride() for t in sides[0][0]] == [t.stride() for t in sides[1][0]]


@pytest.mark.parametrize("form", ["tensor", "keyword", "as_tensor", "method"])
def test_a_tensor_of_a_number_has_all_its_bits(form: str) -> None:
    forms: dict[str, Any] = {
        "tensor": lambda x, k: torch.tensor(k * k),
        "keyword": lambda x, k: torch.tensor(data=k * k) + x,
        "as_tensor": lambda x, k: torch.as_tensor(k * k, dtype=torch.int64),
        "method": lambda x, k: x.new_tensor(k * k),
    }
    compiled = jitney.compile(forms[form], backend="aot_eager")
    x = torch.ones(2, dtype=torch.int64)
    for k in (3, 4, 46341, 2**31 + 5):
        torch.testing.assert_close(compiled(x, k), forms[form](x, k), rtol=0, atol=0)
