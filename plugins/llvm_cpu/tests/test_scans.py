"""Scans in whole programs, beside eager."""

from __future__ import annotations

import pytest
import torch
from backend_scans import *  # noqa: F403


@pytest.fixture
def backend() -> str:
    return "llvm_cpu"


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")
