"""Products that wait for who reads them: when they do, and that memory and numbers are as they should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lowering.graphs import lowered
from torch.testing import assert_close

import jitney
from jitney_lowering.ir import Kernel
from jitney_lowering.scheduler import schedule

THIN, LONG = torch.randn(40, 2), torch.randn(2, 50)
TALL, WIDE = torch.randn(3, 200), torch.randn(200, 3)


def made_first(x: torch.Tensor, w: torch.Tensor) -> Any:
    """The large product is read by nobody until the end."""
    large = (x + 1) @ (w * 2)
    other = x.sin().softmax(0).sum(1).cumsum(0)
    return other, large * other[:, None]


def of_much(x: torch.Tensor, w: torch.Tensor) -> Any:
    """The small product comes of what is large: that would have to wait with it."""
    small = (x + 1) @ (w * 2)
    other = x.sin().softmax(0).sum(1).cumsum(0)
    return other, small * other[:, None]


def read_at_once(x: torch.Tensor, w: torch.Tensor) -> Any:
    large = (x + 1) @ (w * 2)
    return large.cumsum(0), x.cumsum(0)


def only_returned(x: torch.Tensor, w: torch.Tensor) -> Any:
    large = (x + 1) @ (w * 2)
    return large, x.sin().cumsum(0)


def written_between(x: torch.Tensor, w: torch.Tensor) -> Any:
    """What it reads is written to after it."""
    large = x @ w
    x.add_(1)
    other = x.cumsum(0).sum(1)
    return other, large * other[:, None]


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, torch.Tensor], bool]] = {
    "large": (made_first, (THIN, LONG), True),
    "of much": (of_much, (TALL, WIDE), False),
    "read at once": (read_at_once, (THIN, LONG), False),
    "returned": (only_returned, (THIN, LONG), True),
    "written between": (written_between, (THIN, LONG), True),
}


@pytest.mark.parametrize("case", [case for case in CASES if case != "written between"])
def test_which_products_wait(case: str) -> None:
    fn, args, waits = CASES[case]
    made = schedule(lowered(fn, *args, whole=None).program)
    made.verify()
    product = next(n for n, item in enumerate(made.items) if "mm" in str(getattr(item, "target", "")))
    scan = next(n for n, item in enumerate(made.items) if "cumsum" in str(item))
    assert (product > scan) is waits, str(made)
    later = made.items[product + 1 :]
    if waits and later:
        reader = later[0]
        assert isinstance(reader, Kernel) and made.items[product].writes & reader.reads


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
def test_numbers_are_eagers(case: str, backend: str) -> None:
    fn, args, _ = CASES[case]
    device = "cuda" if backend == "triton_gpu" and torch.cuda.is_available() else "cpu"
    ours, theirs = ([a.to(device).clone() for a in args] for _ in range(2))
    assert_close(jitney.compile(fn, backend=backend)(*ours), fn(*theirs), rtol=1e-4, atol=1e-4)
    assert_close(ours, theirs)


def test_a_layers_gradient_waits_for_the_optimizers_dtype() -> None:
    """The gradients of a wide layer with a small batch, and of what comes before it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 300))
    x = torch.randn(2, 8)
    compiled = jitney.compile(model, backend="llvm_cpu")
    sides = []
    for side in (model, compiled):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            side(x).float().square().sum().backward()
        sides.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert_close(sides[1], sides[0], rtol=2e-2, atol=2e-2)
