"""Windows and samples of images, beside eager."""

from __future__ import annotations

import pytest
from backend_images import *  # noqa: F403


@pytest.fixture
def backend() -> str:
    return "triton_gpu"
