"""``-1 ** n`` is ``-(1 ** n)``: the code of a graph raises negative numbers to powers all the same."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import observe

import jitney
from jitney._util.negative_powers import as_a_call

PROGRAMS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "a number that changes": lambda x, n: x * (-1) ** n,
    "a size": lambda x, n: x.new_full((2,), (-1) ** x.shape[0] * 3),
    "a tensor": lambda x, n: ((-2.0) ** x, (-2) ** x),
    "a float": lambda x, n: x * (-0.5) ** n,
    "a tensor's value": lambda x, n: x * (-1) ** int(x.argmax()),
    "in place": lambda x, n: operator.ipow(-3, x),
}


def known_to_be_negative(x: torch.Tensor, n: int) -> torch.Tensor:
    rate = -n * 0.5
    return x * rate**2 if rate == -1.5 else x


PROGRAMS["a float known by then"] = known_to_be_negative


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_negative_number_is_raised_to_a_power(program: Callable[..., Any], backend: str) -> None:
    compiled = jitney.compile(lambda x, n: program(x, n), backend=backend)
    for n in (2, 4, 3, 5, 2):
        x = torch.arange(1.0, n + 2)
        torch.testing.assert_close(compiled(x, n), program(x, n))


COMPARED: dict[str, Callable[[int], Any]] = {
    "a sign": lambda n: 5 if (-1) ** n > 0 else 6,
    "a term": lambda n: sorted([3 * (-2) ** (n + 1), 1]),
    "by the builtin": lambda n: pow(-1, n) == 1,
    "a power of what changes": lambda n: (n - 3) ** n > 2,
    "a power of zero": lambda n: 0**n == 0,
    "as text": lambda n: f"{(-1) ** n}",
}


@pytest.mark.parametrize("power", COMPARED.values(), ids=COMPARED)
def test_powers_are_compared(power: Callable[[int], Any], caplog: pytest.LogCaptureFixture) -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        return x * n, power(n)

    with observe() as seen:
        compiled = jitney.compile(program, backend="eager")
        for n in (2, 3, 4, 5, 2):
            assert compiled(torch.ones(2), n)[1] == program(torch.ones(2), n)[1]
    assert not seen.breaks + seen.skips
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]  # torch warns where it cannot tell


def test_only_negative_numbers_are_calls() -> None:
    assert as_a_call(operator.pow, (-1, 2)) is pow
    assert as_a_call(operator.pow, (-0.0, 2)) is pow
    assert as_a_call(operator.pow, (2, -1)) is operator.pow
    assert as_a_call(operator.mul, (-1, 2)) is operator.mul
