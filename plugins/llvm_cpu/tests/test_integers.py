"""Integers that kernels compute with, beside eager: those of all backends that make kernels."""

from __future__ import annotations

import pytest
from backend_integers import *  # noqa: F403


@pytest.fixture
def device() -> torch.device:  # noqa: F405
    return torch.device("cpu")  # noqa: F405
