"""Strides of dimensions of size one, which no element depends on and ``Tensor.stride`` tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jitney
from jitney.torch_compat.stand_ins.strides import StandInMode

aten = torch.ops.aten
SHAPES = [(1, 7), (7, 1), (1, 1), (1, 3, 4), (3, 1, 4), (3, 4, 1), (2, 3, 4), (2, 1, 3, 1), (1, 3, 2, 2), (2, 3, 1, 1)]
EMPTY = [(0, 1, 3), (2, 0, 1, 1)]

OPERATORS: dict[str, Callable[..., Any]] = {
    "sin": lambda x, y: x.sin(),
    "relu": lambda x, y: x.relu(),
    "number": lambda x, y: x * 2,
    "compared with a number": lambda x, y: x < 0,
    "power": lambda x, y: x**2,
    "sum": lambda x, y: x + y,
    "comparison": lambda x, y: x > y,
    "division": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "copysign": torch.copysign,
    "xlogy": torch.xlogy,
    "where": lambda x, y: torch.where(y > 0, x, y),
    "where a number": lambda x, y: torch.where(x > 0, x, 0.0),
    "addcmul": lambda x, y: torch.addcmul(y, x, y),
    "sigmoid backward": lambda x, y: aten.sigmoid_backward(x, y),
    "threshold backward": lambda x, y: aten.threshold_backward(x, y, 0),
    "leaky relu backward": lambda x, y: aten.leaky_relu_backward(x, y, 0.1, False),
    "loss": lambda x, y: aten.smooth_l1_loss(x, y, 0),
    "gradient of a loss": lambda x, y: aten.mse_loss_backward(x, x, x, 0),
    "widened": lambda x, y: x.to(torch.float64),
    "zeros": lambda x, y: torch.zeros_like(x),
    "filled": lambda x, y: torch.full_like(x, 2),
    "flip": lambda x, y: x.flip(0),
    "sort": lambda x, y: x.sort(0)[0],
    "masked": lambda x, y: x.masked_fill(y > 0, 1.0),
    "tril": lambda x, y: x.tril(),
    "hardtanh": lambda x, y: aten.hardtanh(x),
    "layer norm": lambda x, y: torch.nn.functional.layer_norm(x, x.shape[-1:]),
}


@st.composite
def tensors(draw: st.DrawFn, shape: tuple[int, ...]) -> torch.Tensor:
    """In any order in memory; dimensions of size one have any stride, and with luck some are expanded."""
    order = draw(st.permutations(range(len(shape))))
    x = torch.rand([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    odd = st.sampled_from([0, 1, 2, 100])
    some = [draw(odd) if n == 1 and draw(st.booleans()) else s for n, s in zip(shape, x.stride(), strict=True)]
    expanded = draw(st.sampled_from([None] * 4 + list(range(len(shape)))))
    return x.as_strided(shape, [0 if d == expanded else s for d, s in enumerate(some)])


@st.composite
def pairs(draw: st.DrawFn, shapes: list[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    shape = draw(st.sampled_from(shapes))
    other = tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in shape)
    return draw(tensors(shape)), draw(tensors(other[draw(st.sampled_from([0, 0, 1])) :]))


@pytest.mark.parametrize("name", OPERATORS)
def test_stand_ins_have_eagers_strides_of_size_one(name: str) -> None:
    run = OPERATORS[name]

    @given(pair=pairs(SHAPES + EMPTY))
    def check(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        x, y = pair
        if "norm" in name and 0 in x.shape:
            return
        with StandInMode() as mode:
            made = run(mode.from_tensor(x), mode.from_tensor(y))
        assert made.stride() == run(x, y).stride()

    check()


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float16], ids=str)
def test_an_operand_that_the_kernel_converts_leaves_no_gaps(dtype: torch.dtype) -> None:
    def results(x: torch.Tensor, y: torch.Tensor) -> list[tuple[int, ...]]:
        return [r.stride() for r in (x + y, x > y, x.double() * y, torch.where(x > 1, x, y))]

    for x in (torch.ones(28).as_strided((1, 7), (2, 2)), torch.ones(28).as_strided((3, 1, 4), (0, 1, 2))):
        x, y = torch.ones(28).to(dtype).as_strided(x.shape, x.stride()), torch.ones(x.shape[-1:])
        with StandInMode() as mode:
            made = results(mode.from_tensor(x), mode.from_tensor(y))
        assert made == results(x, y)


def test_a_part_of_a_tensor_whose_sizes_are_symbols_has_a_stand_in() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((-x[..., 4:], x[..., :4].float().to(x.dtype)), -1)

    x = torch.rand(2, 3, 16, 8).to(torch.bfloat16)
    compiled = jitney.compile(program, backend="aot_eager", dynamic=True, fullgraph=True)
    assert torch.equal(compiled(x), program(x))


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed, contiguous": lambda x: (x * 2).transpose(0, -1).contiguous(),
    "contiguous, added": lambda x: x.transpose(0, -1).contiguous() + 1,
    "cloned": lambda x: x.transpose(0, 1).clone(memory_format=torch.contiguous_format).sin(),
    "joined": lambda x: torch.cat([x, x + 1], 0) * 2,
    "padded": lambda x: torch.nn.functional.pad(x.relu(), (1, 1)),
    "reduced": lambda x: (x * 2).sum(0, keepdim=True) + x.amax(-1, keepdim=True),
    "sliced, expanded": lambda x: x[:1].expand(2, *x.shape[1:]) * x[-1:],
    "permuted": lambda x: torch.where(x > 0, x.permute(*range(1, x.dim()), 0).contiguous().movedim(-1, 0), x),
    "loss": lambda x: torch.nn.functional.smooth_l1_loss(x.half(), x[:, :1].half().expand_as(x), reduction="none"),
    "gradient of a loss": lambda x: torch.nn.functional.smooth_l1_loss(x.sin(), x.detach(), reduction="none"),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "softmax": lambda x: torch.softmax(x, -1),
}

# Autograd adds up the gradients of several uses, in another order and partly in place: their unit strides may differ.
SEVERAL_USES = ("reduced", "permuted")


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_have_eagers_strides(name: str, backend: str) -> None:
    run = PROGRAMS[name]
    for shape in ((1, 7), (3, 1, 4), (2, 1, 3, 1)):
        for order in ([0, 1, 2, 3][: len(shape)], [3, 2, 1, 0][-len(shape) :]):
            x = torch.rand([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
            found = []
            for call in (run, jitney.compile(run, backend=backend)):
                leaf = x.detach().requires_grad_()
                result = call(leaf)
                (gradient,) = torch.autograd.grad(result, leaf, torch.ones_like(result))
                strides = (call(x).stride(), result.stride(), gradient.stride())
                found.append(strides[:2] if name in SEVERAL_USES else strides)
            assert found[1] == found[0], (shape, order)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_group_norm_lies_in_the_format_of_its_input(batch: int, channels_last: bool) -> None:
    x = torch.randn(batch, 8, 8, 9)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    for backend in ("aot_eager", "llvm_cpu"):
        with torch.no_grad():
            made = jitney.compile(lambda x: torch.nn.functional.group_norm(x, 2), backend=backend)(x)
        assert made.stride() == torch.nn.functional.group_norm(x, 2).stride()


def test_several_results_of_symbolic_sizes_are_as_torch_says() -> None:
    compiled = jitney.compile(lambda x: x.sort().values, backend="eager", fullgraph=True, dynamic=True)
    for rows in (4, 5):
        x = torch.randn(rows, 3)
        assert torch.equal(compiled(x), x.sort().values)
