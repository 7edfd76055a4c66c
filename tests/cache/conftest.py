"""A cache of its own for each test."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache.again import NAME

import jitney
from jitney.cache import frames, store
from jitney.capture import marks
from jitney.runtime import frame_cache

_stay: set[str] = set()  # marks that are no garbage


@pytest.fixture(autouse=True)
def marks_of_others() -> None:
    """Marks are part of a frame's key: those of an earlier test's functions must not go while a test runs."""
    if not _stay.issuperset(marks.everything_said()):
        gc.collect()
        _stay.update(marks.everything_said())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Somebody may be editing jitney while its tests run; a process that goes on as it began is no worse for it.
    monkeypatch.setattr(frame_cache, "edited", lambda package: False)
    frames._cache.cache_clear()
    store._warned.clear()
    with jitney.config.patch(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"
    store._warned.clear()
    sys.modules.pop(NAME, None)
