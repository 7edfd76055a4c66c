"""Each program compiled beside itself: equal numbers, as many breaks and recompiles as it says, no other warning."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from harness import Compiler, difference, observe, programs

PROGRAMS = programs()
# Libraries warn of themselves and of each other; what jitney says is looked at below.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_versions() -> None:
    lines = Path(__file__).with_name("requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert {name: importlib.metadata.version(name).partition("+")[0] for name in pins} == pins


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    program = PROGRAMS[name]
    expected = observe(program, Compiler("eager"))
    found = observe(program, Compiler("jitney"))
    assert difference(expected.outcome.results, found.outcome.results, program.tolerance) == ""
    profile, told = found.profile, found.ours()
    assert profile.graphs or program.uncompiled
    assert profile.graph_breaks <= program.breaks, profile.report()
    assert profile.recompiles <= program.recompiles, profile.report()
    assert [text for text in told if not program.warns or program.warns not in text] == []
    assert bool(program.warns) == any(program.warns in text for text in told if program.warns)
    if found.outcome.step is not None:  # in steady state nothing is compiled
        found.outcome.step()
        again = observe_step(found.outcome.step)
        assert again == 0, f"{again} captures in steady state"


def observe_step(step: object) -> int:
    """How many frames a call in steady state captures."""
    import jitney

    assert callable(step)
    with jitney.CompileProfiler() as profile:
        step()
        step()
    return profile.captures
