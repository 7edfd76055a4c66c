"""What importing jitney costs, and what its testing kit offers."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork_server import run_python

import jitney_testing


def test_jitney_imports_no_hypothesis_and_no_pytest() -> None:
    code = (
        "import sys, jitney, jitney.cli, jitney_testing; "
        "print([m for m in ('hypothesis', 'pytest', 'jitney_testing.same') if m in sys.modules])"
    )
    done = run_python("-c", code, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(getattr(jitney_testing, name).__name__ == name for name in jitney_testing.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        jitney_testing.no_such_name


def test_no_module_has_the_name_of_something_public() -> None:
    """Its import would take the name's place."""
    folder = Path(jitney_testing.__file__).parent
    assert {path.stem for path in folder.iterdir()}.isdisjoint(jitney_testing.__all__)
