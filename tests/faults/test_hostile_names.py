"""Some names that would be code; ``make hostile`` has them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork_server import run_python


@pytest.mark.slow
def test_names_of_the_program_are_not_code() -> None:
    program = Path(__file__).with_name("hostile_names.py")
    ran = run_python(program, "--times", "30", "--every", "40", "--long", "10000", timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ": 0 faults" in ran.stdout
