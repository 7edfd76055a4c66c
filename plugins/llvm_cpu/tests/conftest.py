"""What programs shared by backends (``tests/backend_*.py``) take: this backend, and tensors of the CPU."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session")
def backend() -> str:
    return "llvm_cpu"


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cpu")
