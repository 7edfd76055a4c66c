"""Backends of the tests of gradients."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=["eager", "aot_eager"])
def backend(request: pytest.FixtureRequest) -> Any:
    """A backend that runs the captured graph, and one that traces through it."""
    return request.param
