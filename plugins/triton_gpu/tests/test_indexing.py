"""Reading and writing at computed indices, beside eager."""

from __future__ import annotations

import pytest
from backend_indexing import *  # noqa: F403


@pytest.fixture
def backend() -> str:
    return "triton_gpu"
