"""What is said to be wrong with a compiled graph, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from jitney.errors import BackendFailed
from jitney_tools.compare.verdict import Fault, Terms, essence, judge, leaking, raised


def plain(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (torch.tanh(x) * w, (x * w).sum())


def inputs() -> list[torch.Tensor]:
    return [torch.linspace(-1, 1, 6).reshape(2, 3), torch.linspace(1, 2, 6).reshape(2, 3).requires_grad_()]


def judged(compiled: Callable[..., Any], **terms: Any) -> Fault | None:
    given = inputs()
    fault = judge(plain, compiled, given, Terms(**terms))
    assert torch.equal(given[0], inputs()[0]) and given[1].grad is None  # it works on copies
    return fault


def test_the_same_graph_is_not_wrong() -> None:
    assert judged(plain, leaks=True) is None
    assert judged(lambda x, w: (torch.tanh(x).mul(w), w.mul(x).sum())) is None


def off(x: torch.Tensor, w: torch.Tensor) -> Any:
    a, b = plain(x, w)
    return a, b * 1.01


class Skewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * 1.01


def raising(x: torch.Tensor, w: torch.Tensor) -> Any:
    try:
        raise ZeroDivisionError("in kernel 17\nand more")
    except ZeroDivisionError as error:
        raise BackendFailed("it failed") from error


def in_place(x: torch.Tensor, w: torch.Tensor) -> Any:
    result = plain(x, w)
    x.mul_(2)
    return result


kept: list[torch.Tensor] = []


def leaky(x: torch.Tensor, w: torch.Tensor) -> Any:
    kept.append(torch.zeros(100))
    return plain(x, w)


WRONG: dict[str, tuple[Callable[..., Any], str, str, str]] = {
    "numbers": (off, "numbers", "results", "result 1: 1 of 1 elements are wrong"),
    "gradients": (lambda x, w: plain(x, Skewed.apply(w)), "numbers", "gradients", "gradient 0: 6 of 6"),
    "raises": (raising, "raises", "results", "ZeroDivisionError: in kernel 17"),
    "a shape": (lambda x, w: (plain(x, w)[0], plain(x, w)[1][None]), "facts", "results", "result 1 is float32[1] on"),
    "a dtype": (lambda x, w: (plain(x, w)[0].double(), plain(x, w)[1]), "facts", "results", "float64[2, 3]"),
    "too few": (lambda x, w: plain(x, w)[:1], "facts", "results", "1 tensors, 2 were expected"),
    "no gradient": (
        lambda x, w: plain(x, w.detach()),
        "facts",
        "results",
        "float32[2, 3] on cpu, float32[2, 3] on cpu, which",
    ),
    "writes": (in_place, "writes", "inputs", "input 0: 6 of 6 elements are wrong"),
    "leaks": (leaky, "leaks", "results", "each call leaves 400 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    compiled, kind, place, reason = WRONG[name]
    kept.clear()
    fault = judged(compiled, leaks=name == "leaks")
    assert fault is not None and (fault.kind, fault.place) == (kind, place) and reason in fault.reason, fault


def test_a_view_of_an_input_is_wrong_unless_eager_returns_it_too() -> None:
    def copies(x: torch.Tensor) -> Any:
        return (x.clone(), x[0])

    fault = judge(copies, lambda x: (x, x[0]), [torch.ones(2, 2)])
    assert fault is not None and (fault.kind, fault.reason) == ("shares", "result 0 shares the memory of input 0")
    assert judge(copies, copies, [torch.ones(2, 2)]) is None


def test_what_hangs() -> None:
    def forever(x: torch.Tensor) -> Any:
        while True:
            x = x + 0

    fault = judge(lambda x: (x + 1,), forever, [torch.ones(2)], Terms(seconds=0.1))
    assert fault is not None and fault.kind == "hangs"


def test_a_program_that_raises_itself_is_not_judged() -> None:
    def refuses(x: torch.Tensor) -> Any:
        raise ValueError

    assert judge(refuses, lambda x: (x * 2,), [torch.ones(2)]) is None


def test_random_numbers_are_the_same_on_both_sides_and_the_generator_is_put_back() -> None:
    def noisy(x: torch.Tensor) -> Any:
        return (x + torch.rand(3) + torch.nn.functional.dropout(x),)

    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert judge(noisy, noisy, [torch.ones(3, requires_grad=True)]) is None
    assert torch.equal(before, torch.get_rng_state())
    assert judge(noisy, lambda x: (x + torch.rand(3) + x,), [torch.ones(3, requires_grad=True)]) is not None


def test_the_same_fault_in_another_graph() -> None:
    one = raised(KeyError("relu_12 at 0x7f12 of shape [2, 3]"), "results")
    assert one.like(raised(KeyError("relu_7 at 0x8a of shape [4]"), "results"))
    assert not one.like(raised(KeyError("tanh_7 at 0x8a of shape [4]"), "results"))
    assert not one.like(raised(ValueError("relu_12 at 0x7f12 of shape [2, 3]"), "results"))
    assert not one.like(raised(KeyError("relu_12 at 0x7f12 of shape [2, 3]"), "gradients")) and not one.like(None)
    assert Fault("numbers", "results", "3 of 4").like(Fault("numbers", "results", "1 of 2"))
    assert essence("add_3 (2, 3) 1.5") == essence("add (4,) 17")


def test_leaks_are_counted_per_call() -> None:
    kept.clear()
    assert leaking(lambda: torch.zeros(10).sum()) == 0
    assert leaking(lambda: kept.append(torch.zeros(10))) == 40
    once: dict[int, Any] = {}
    assert leaking(lambda: once.setdefault(1, torch.zeros(10))) == 0


def normed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.nn.functional.conv2d(x, weight, bias)
    return (torch.nn.functional.batch_norm(y, None, None, training=True).relu(),)


def conv_inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 3, 8, 8), (6, 3, 3, 3), (6,))
    return [torch.randn(s, generator=generator).requires_grad_() for s in shapes]


class Offset(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad + 1e-4


def summed_otherwise(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    """The bias added by itself, and everything in another order: its gradient is another noise."""
    y = torch.nn.functional.conv2d(x.flip(0), w) + b[:, None, None]
    y = y - y.mean((0, 2, 3), keepdim=True)
    return ((y * (y.square().mean((0, 2, 3), keepdim=True) + 1e-5).rsqrt()).relu().flip(0),)


def test_a_gradient_that_is_noise_may_be_another_noise() -> None:
    assert judge(normed, summed_otherwise, conv_inputs()) is None


def test_a_gradient_that_is_not_noise_is_wrong_beside_noise() -> None:
    fault = judge(normed, lambda x, w, b: normed(x, w, Offset.apply(b)), conv_inputs())
    assert fault is not None and (fault.kind, fault.place) == ("numbers", "gradients"), fault
    fault = judge(normed, lambda x, w, b: normed(x, Skewed.apply(w), b), conv_inputs())
    assert fault is not None and "gradient 1" in fault.reason
