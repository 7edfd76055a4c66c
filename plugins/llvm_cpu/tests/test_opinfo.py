"""A fixed fraction of torch's OpInfo database through llvm_cpu; `make opinfo BACKEND=llvm_cpu` runs all of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitney_testing.opinfo.known_failures import EVERYWHERE, read_known, unexpected
from jitney_testing.opinfo.samples import DTYPES, Choice, operators
from jitney_testing.opinfo.workers import Plan

TESTS = Path(__file__).parents[3] / "tests"
KNOWN = read_known(EVERYWHERE) + read_known(TESTS / "opinfo_known_llvm_cpu.toml")
SHARDS = 6
PLAN = Plan("llvm_cpu", Choice(fraction=0.04))


@pytest.fixture
def no_logging() -> Iterator[None]:
    """pytest's handlers make torch write what it traces, which takes longer than the test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_logging")
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.filterwarnings("default")
def test_samples_do_what_they_do_in_eager(shard: int) -> None:
    outcomes = []
    for i, name in enumerate(operators()[shard::SHARDS]):
        outcomes += PLAN.run((name, list(DTYPES)[i % len(DTYPES)]))
    assert len(outcomes) > 20
    assert sum("forward" in o.coverage.halves or "inference" in o.coverage.halves for o in outcomes) > 10
    assert [f"{o.case}: {o.failure}" for o in unexpected(outcomes, KNOWN)] == []
