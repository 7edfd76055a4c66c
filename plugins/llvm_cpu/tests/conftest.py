"""What programs shared by backends (``tests/backend_*.py``) take: this backend, and tensors of the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # layer_stacks


@pytest.fixture(scope="session")
def backend() -> str:
    return "llvm_cpu"


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cpu")
