"""Some forks in the midst of first calls; ``make faults`` has one at every step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fork_server import run_python


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.slow
@pytest.mark.parametrize(("backend", "every"), [("aot_eager", 4), ("llvm_cpu", 6)])
def test_a_child_that_is_forked_while_something_compiles_can_compile(backend: str, every: int) -> None:
    program = Path(__file__).with_name("forks.py")
    ran = run_python(program, "--backend", backend, "--every", str(every), timeout=400)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ": 0 faults" in ran.stdout
