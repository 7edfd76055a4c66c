"""Some interrupted first calls; ``make faults`` has many."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork_server import run_python


@pytest.mark.slow
def test_first_calls_may_be_interrupted() -> None:
    ran = run_python(Path(__file__).with_name("interrupts.py"), "--times", "60", "--seed", "3", timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "seed 3: 0 faults" in ran.stdout
