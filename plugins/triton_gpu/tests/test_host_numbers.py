"""Python floats that a graph is given and computes with: Python does it, kernels get all of them at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import jitney
from jitney import events

PROGRAMS: dict[str, Any] = {
    "a power": lambda x, a, b: x * (a**b),
    "one number for several kernels": lambda x, a, b: (x * (a / b)).cumsum(0) + (a / b - 1),
    "functions": lambda x, a, b: (x + math.sqrt(b) - math.log(b)) * math.exp(-a),
    "the larger": lambda x, a, b: x * max(a, b) - min(a, 0.5 * b),
    "as it is": lambda x, a, b: x - a * 2,
    "whole operators": lambda x, a, b: torch.baddbmm(x, x, x, beta=a + 1, alpha=b),
    "beside one that the graph makes": lambda x, a, b: x * (x.sum().item() * a + b),
    "beside a size": lambda x, a, b: x * (a * x.size(0)),
    "results": lambda x, a, b: (x * a, a * b, a, b + 1),
    "only results": lambda x, a, b: (x + 1, a * b),
}
NUMBERS = [(2.0, 3.0), (0.5, 1.25), (1e-3, 7.0), (-0.75, 2.0), (math.inf, 1.0)]


def equal(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        for one, other in zip(found, wanted, strict=True):
            equal(one, other)
    elif isinstance(wanted, float):
        assert type(found) is float and found.hex() == wanted.hex()
    else:
        torch.testing.assert_close(found, wanted, rtol=0 if wanted.dtype is torch.float64 else 2e-6, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_eagers(name: str, device: torch.device) -> None:
    fn = PROGRAMS[name]
    compiled = jitney.compile(fn, backend="triton_gpu", fullgraph=True)
    torch.manual_seed(0)
    x = torch.rand(3, 4, 4, device=device)
    for a, b in NUMBERS:
        if name == "the larger" or math.isfinite(a) or "result" in name:
            equal(compiled(x, a, b), fn(x, a, b))


def test_no_kernel_is_for_them_and_no_copy(device: torch.device) -> None:
    told: list[str] = []

    def fn(x: torch.Tensor, a: float, b: float) -> torch.Tensor:
        return x * (a**b) + (a - b) / (a + b)

    compiled = jitney.compile(fn, backend="triton_gpu", fullgraph=True)
    x = torch.rand(8, device=device)
    compiled(x, 1.5, 2.5)
    with events.listen(lambda e: told.append(e.text) if isinstance(e, events.Artefact) else None), events.details():
        compiled(x, 1.75, 2.25)
    (text,) = [t for t in told if "def boxed" in t]
    assert text.count("e_k0") == 1 and "e_k1" not in text and "_tensor(" not in text.partition("def boxed")[2]


@pytest.mark.parametrize("a, b", [(1.0, 0.0), (-8.0, 0.5), (1e300, 2.0)], ids=["zero", "complex", "large"])
def test_what_python_refuses_is_eagers(a: float, b: float, device: torch.device) -> None:
    def fn(x: torch.Tensor, a: float, b: float) -> torch.Tensor:
        return x * (a**b / b)

    compiled = jitney.compile(fn, backend="triton_gpu")
    x = torch.rand(8, device=device)
    for given in ((2.0, 3.0), (2.5, 3.5)):
        compiled(x, *given)
    try:
        wanted: Any = fn(x, a, b)
    except ArithmeticError as error:
        with pytest.raises(type(error)):
            compiled(x, a, b)
    else:
        torch.testing.assert_close(compiled(x, a, b), wanted)
    equal(compiled(x, 1.5, 4.5), fn(x, 1.5, 4.5))
