"""``jitney.save_cache_artifacts`` and ``load_cache_artifacts``: what one process has compiled, for another's disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cache.again import Story, begin

import jitney
from jitney import events
from jitney.cache import frames, store
from jitney.errors import SavedError

TEXT = """
    def fn(x): return torch.nn.functional.gelu(x) * 2
    def broken(x):
        y = x.sin()
        print(end=str(y)[:0])
        return y.cos() + 1
"""


def run(story: Story | None = None) -> None:
    module = begin(TEXT)
    with torch.no_grad(), events.listen(story or Story()):
        for name, original in (("fn", module.fn), ("broken", module.broken)):
            compiled = jitney.compile(original, backend="llvm_cpu")
            for rows in (2, 3):
                given = torch.linspace(-1, 1, rows * 4).reshape(rows, 4)
                torch.testing.assert_close(compiled(given), original(given), msg=name)


def elsewhere(path: Path) -> None:
    """From here on another machine: nothing on disk."""
    jitney.config.cache_dir = str(path)
    frames._cache.cache_clear()
    store.used.clear()


def test_another_machine_begins_with_what_this_one_has_compiled(tmp_path: Path) -> None:
    store.used.clear()
    assert jitney.save_cache_artifacts() is None
    run()
    saved = jitney.save_cache_artifacts()
    assert saved is not None
    data, info = saved
    assert info.entries["frames"] > 4
    elsewhere(tmp_path / "other")
    assert jitney.load_cache_artifacts(data) == info
    story = Story()
    run(story)
    assert story.loaded
    again = jitney.save_cache_artifacts()  # what was found compiled is passed on
    assert again is not None and again[1].entries["frames"] == info.entries["frames"]
    jitney.load_cache_artifacts(data)  # and what is there stays
    story = Story()
    run(story)
    assert story.loaded


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    run()
    saved = jitney.save_cache_artifacts()
    assert saved is not None
    elsewhere(tmp_path / "other")
    module = begin(TEXT)
    with torch.no_grad():
        jitney.compile(module.fn, backend="llvm_cpu")(torch.ones(2, dtype=torch.float64))
    jitney.load_cache_artifacts(saved[0])
    story = Story()
    module = begin(TEXT)
    with torch.no_grad(), events.listen(story):
        fn = jitney.compile(module.fn, backend="llvm_cpu")
        fn(torch.ones(2, dtype=torch.float64))
        fn(torch.ones(2, 4))
    assert story.steps.count("loaded") == 2 and story.loaded


def test_damaged_or_foreign_bytes_are_refused() -> None:
    store.used.clear()
    run()
    saved = jitney.save_cache_artifacts()
    assert saved is not None
    data = saved[0]
    away = store.sealed(frames.pack([["frames", "../../away"]], [b"x"]))
    up = store.sealed(frames.pack([["..", "abc"]], [b"x"]))
    shape = store.sealed(frames.pack({"frames": 1}, [b"x"]))
    for wrong in (b"", data[:-1], data[:60] + b"?" + data[61:], away, up, shape, store.sealed(b"short")):
        with pytest.raises(SavedError):
            jitney.load_cache_artifacts(wrong)
    for other in (None, saved, "text"):
        with pytest.raises(SavedError, match=f"are needed, not '{type(other).__name__}'(.|\n)*None where nothing"):
            jitney.load_cache_artifacts(other)  # type: ignore[arg-type]
    with jitney.config.patch(cache=False), pytest.raises(SavedError, match="no cache on disk"):
        jitney.load_cache_artifacts(data)
