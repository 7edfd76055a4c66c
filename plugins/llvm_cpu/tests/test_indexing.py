"""Reading at computed indices, beside eager."""

from __future__ import annotations

import pytest
import torch
from backend_programs import Check, On, check, on  # noqa: F401
from index_programs import READS, WRONG, drawn, normal

import jitney


@pytest.fixture
def backend() -> str:
    return "llvm_cpu"


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", READS)
def test_reads_are_eagers(check: Check, name: str, dynamic: bool) -> None:  # noqa: F811
    fn, make = READS[name]
    check(fn, *make(), dynamic=dynamic, fullgraph=True)


@pytest.mark.parametrize("place", [6, -7, 2**40])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_an_error(name: str, place: int) -> None:
    fn, exception = WRONG[name]
    x, right = normal(6, 5, 6), drawn(6, 4)
    wrong = right.clone()
    wrong[2] = place
    compiled = jitney.compile(fn, backend="llvm_cpu", fullgraph=True)
    compiled(x, right)
    with pytest.raises(exception):
        compiled(x, wrong)
