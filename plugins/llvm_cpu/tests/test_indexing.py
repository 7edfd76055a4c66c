"""Reading and writing at computed indices, beside eager."""

from __future__ import annotations

import pytest
import torch
from backend_indexing import *  # noqa: F403


@pytest.fixture
def backend() -> str:
    return "llvm_cpu"


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")
