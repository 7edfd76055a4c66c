"""A fixed fraction of torch's OpInfo database through triton_gpu; `make test-gpu` runs all of it on a GPU."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jitney import events
from jitney_testing.opinfo.known_failures import EVERYWHERE, read_known, unexpected
from jitney_testing.opinfo.samples import DTYPES, Choice, operators
from jitney_testing.opinfo.workers import Plan

TESTS = Path(__file__).parents[3] / "tests"
KNOWN = read_known(EVERYWHERE) + read_known(TESTS / "opinfo_known_triton_gpu.toml")
SHARDS = 6


@pytest.fixture
def no_logging() -> Iterator[None]:
    """pytest's handlers make torch write what it traces, which takes longer than the test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_logging")
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.filterwarnings("default")
def test_samples_do_what_they_do_in_eager(shard: int, device: torch.device) -> None:
    plan = Plan("triton_gpu", Choice(fraction=0.03, device=device.type))
    outcomes = []
    kernels = []
    for i, name in enumerate(operators()[shard::SHARDS]):
        with events.listen(lambda e: kernels.append(e.kernels) if isinstance(e, events.Lowered) else None):
            outcomes += plan.run((name, list(DTYPES)[i % len(DTYPES)]))
    assert len(outcomes) > 20 and sum(count > 0 for count in kernels) > 10
    assert [f"{o.case}: {o.failure}" for o in unexpected(outcomes, KNOWN)] == []
