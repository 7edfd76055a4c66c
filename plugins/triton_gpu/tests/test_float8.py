"""Floats of 8 bits, beside eager."""

from __future__ import annotations

import pytest
from backend_float8 import *  # noqa: F403


@pytest.fixture
def backend() -> str:
    return "triton_gpu"
