"""A few seconds of mixed traffic; ``make soak`` has minutes, and looks at memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from fork_server import run_python


@pytest.mark.slow
def test_threads_that_compile_call_raise_and_reset_get_on_and_equal_eager() -> None:
    program = Path(__file__).with_name("soak.py")
    ran = run_python(program, "--minutes", "0.02", "--threads", "2", timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ": 0 faults" in ran.stdout
