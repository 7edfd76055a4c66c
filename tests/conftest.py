"""What every test starts from: the helpers on the path, one thread, seeded generators, an empty compile cache."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

pytest.register_assert_rewrite("backend_programs")

from helpers import reset, seed_everything  # noqa: E402

from jitney import events  # noqa: E402
from jitney.backends import registry  # noqa: E402
from jitney.backends.registry import _Observer  # noqa: E402

settings.register_profile(
    "quick",
    max_examples=int(os.environ.get("JITNEY_TEST_EXAMPLES", "40")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("long", settings.get_profile("quick"), max_examples=2000)
settings.load_profile(os.environ.get("JITNEY_TEST_PROFILE", "quick"))

torch.set_num_threads(1)
# One seed for everybody, so that a red run is the change's doing; JITNEY_TEST_SEED=random draws another one. The
# workers of xdist inherit it.
if os.environ.setdefault("JITNEY_TEST_SEED", "20261121") == "random":
    os.environ["JITNEY_TEST_SEED"] = str(random.SystemRandom().randrange(10**6))


def pytest_report_header() -> str:
    """The seed of the generated programs, to repeat a run."""
    return f"JITNEY_TEST_SEED={os.environ['JITNEY_TEST_SEED']}"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Equal random numbers for each test, nothing compiled before it; the import path and observers as they were."""
    seed_everything()
    reset()
    path = list(sys.path)
    registry.hooks()  # whose observers stay; those of registries that a test makes go
    before = list(events._bus.listeners)
    yield
    events._bus.listeners[:] = [x for x in events._bus.listeners if not isinstance(x, _Observer) or x in before]
    sys.path[:] = path
