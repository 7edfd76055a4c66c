"""Every property on every two of the installed backends: they do the same, and what the program itself does.

``JITNEY_TEST_EXAMPLES``, ``JITNEY_TEST_PROFILE`` and ``JITNEY_TEST_SEED`` as in ``tests/programs``; ``make fuzz`` goes
on for longer.
"""

from __future__ import annotations

import os

import pytest
from differential.backends import installed, pairs
from hypothesis import given, settings
from hypothesis import seed as seeded

from jitney_testing import NotSame, Program, graphs, python_programs
from jitney_testing.same import compare

SEED = int(os.environ.get("JITNEY_TEST_SEED", "0"))
FEW = settings(max_examples=max(1, settings.default.max_examples // 8))
PROPERTIES = {
    "graphs": graphs(most=6, train=False),
    "training": graphs(most=6, train=True),
    "programs": python_programs(),
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("pair", pairs(), ids="-".join)
@pytest.mark.parametrize("name", PROPERTIES)
def test_two_backends_do_the_same(name: str, pair: tuple[str, str]) -> None:
    trusted, other = pair

    @seeded(SEED)
    @FEW
    @given(program=PROPERTIES[name])
    def check(program: Program) -> None:
        found = compare(program, other, beside=trusted)
        if found is not None:
            raise NotSame(found, f"{other} beside {trusted}", program)

    check()


def test_all_cpu_backends_are_here() -> None:
    assert {"eager", "aot_eager"} <= set(installed())
    assert len(pairs()) == len(installed()) * (len(installed()) - 1) // 2
