"""Tests run on a CUDA device if there is one, else in Triton's interpreter (the repository's conftest.py)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # machine_code

if importlib.util.find_spec("triton") is None:  # there is none but for Linux
    collect_ignore_glob = ["*"]

from jitney_triton_gpu import device as plugin_device
from jitney_triton_gpu import launcher, tiles
from jitney_triton_gpu.code import Function

assert torch.cuda.is_available() or plugin_device.INTERPRETED, "jitney_triton_gpu was imported too early"


@pytest.fixture(autouse=True)
def few_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter programs run one after the other, so there are fewer of them."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(tiles, "PROCESSORS", 3)


@pytest.fixture
def compiled_functions(monkeypatch: pytest.MonkeyPatch) -> list[Function]:
    """What is compiled meanwhile."""
    found: list[Function] = []
    load = launcher.load

    def noting(source: str, name: str, functions: dict[str, Function], *rest: Any) -> Any:
        found.extend(functions.values())
        return load(source, name, functions, *rest)

    monkeypatch.setattr(launcher, "load", noting)
    return found


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where tensors are to be."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@pytest.fixture(scope="session")
def backend() -> str:
    """For programs shared by backends (``tests/backend_*.py``)."""
    return "triton_gpu"
