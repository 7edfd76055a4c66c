"""Some files that are made to do harm; ``make hostile`` has thousands."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork_server import run_python


@pytest.mark.slow
def test_files_that_are_made_to_do_harm_are_refused() -> None:
    program = Path(__file__).with_name("hostile_files.py")
    ran = run_python(program, "--times", "300", "--artifacts", "60", "--entries", "4", "--seed", "3", timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ": 0 faults" in ran.stdout
