"""Tensors put together of parts, beside eager."""

from __future__ import annotations

import pytest
from backend_joins import *  # noqa: F403


@pytest.fixture
def backend() -> str:
    return "triton_gpu"
