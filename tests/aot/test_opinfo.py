"""A fixed fraction of torch's OpInfo database through aot_eager; `make opinfo` runs all of it."""

import logging
from pathlib import Path

import pytest

from jitney_testing.opinfo.known_failures import EVERYWHERE, read_known, unexpected
from jitney_testing.opinfo.samples import Choice, calls, operators
from jitney_testing.opinfo.workers import Plan

TESTS = Path(__file__).parent.parent
KNOWN = read_known(EVERYWHERE)
SHARDS = 8
PLAN = Plan("aot_eager", Choice(fraction=0.02))


@pytest.fixture
def no_logging():
    """pytest's handlers make torch write what it traces, which takes longer than the test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_logging")
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.filterwarnings("default")
def test_samples_do_what_they_do_in_eager(shard):
    outcomes = []
    for i, name in enumerate(operators()[shard::SHARDS]):
        dtype = ("float32", "float64")[i % 2]
        outcomes += PLAN.run((name, dtype))
    assert len(outcomes) > 20
    assert sum("forward" in o.coverage.halves or "inference" in o.coverage.halves for o in outcomes) > 10
    assert [f"{o.case}: {o.failure}" for o in unexpected(outcomes, KNOWN)] == []


def test_every_known_failure_names_an_operator():
    names = operators()
    for entry in KNOWN + read_known(TESTS / "opinfo_known_llvm_cpu.toml"):
        assert any(entry._about(name, "float32", "call") or entry._about(name, "float64", "out") or
                   entry._about(name, "bfloat16", "call") or
                   entry._about(name, "float32", "inplace") for name in names), entry  # fmt: skip


def test_a_fraction_is_the_same_choice_each_time():
    first, second = ([c.case for c in calls("add", "float32", Choice(0.3))] for _ in range(2))
    assert first == second
    assert 0 < len(first) < len(list(calls("add", "float32")))
