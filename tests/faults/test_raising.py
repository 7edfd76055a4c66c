"""Exceptions out of every hook, and some places without memory; ``make faults`` has them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork_server import run_python


@pytest.mark.slow
def test_what_raises_where_nobody_expects_it_does_no_harm() -> None:
    program = Path(__file__).with_name("raising.py")
    ran = run_python(program, "--every", "30", "--ends", "0", timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "\n0 faults" in ran.stdout
