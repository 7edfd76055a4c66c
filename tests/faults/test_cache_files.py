"""Some faults of the cache on disk; ``make faults`` has many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fork_server import run_python


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.slow
@pytest.mark.parametrize(
    "counts", [("--kills", "10"), ("--every", "9"), ("--processes", "8")], ids=["killed", "full", "at once"]
)
def test_faults_of_the_cache_on_disk_do_no_harm(counts: tuple[str, str]) -> None:
    none = [part for name in ("--kills", "--every", "--processes") if name != counts[0] for part in (name, "0")]
    ran = run_python(Path(__file__).with_name("cache_files.py"), *counts, *none, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ": 0 faults" in ran.stdout
