"""A cache of its own for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache.again import NAME

import jitney
from jitney import keeping
from jitney.cache import frames, store


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Somebody may be editing jitney while its tests run; a process that goes on as it began is no worse for it.
    monkeypatch.setattr(keeping, "edited", lambda package: False)
    frames._cache.cache_clear()
    store._warned.clear()
    with jitney.config.patch(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"
    store._warned.clear()
    sys.modules.pop(NAME, None)
