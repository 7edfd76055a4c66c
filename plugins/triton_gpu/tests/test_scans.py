"""Scans in whole programs, beside eager."""

from __future__ import annotations

import pytest
from backend_scans import *  # noqa: F403


@pytest.fixture
def backend() -> str:
    return "triton_gpu"
