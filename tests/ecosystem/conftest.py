"""These programs are collected where their libraries are: in the virtual environment of ``make test-ecosystem``."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

HERE = Path(__file__).parent


def _missing() -> list[str]:
    """The libraries of requirements.txt that are not there."""
    lines = (HERE / "requirements.txt").read_text().splitlines()
    found = {d.metadata["Name"].lower().replace("-", "_") for d in importlib.metadata.distributions()}
    names = [line.partition("==")[0] for line in lines if line and not line.startswith("#")]
    return [name for name in names if name.lower().replace("-", "_") not in found]


if _missing():
    collect_ignore_glob = ["test_*.py"]
else:
    sys.path.insert(0, str(HERE))
