"""Checks of what every backend owes: what they say, and what they do not depend on."""

from __future__ import annotations

import subprocess

import pytest

from jitney_testing.suite.check import Subject
from jitney_testing.suite.handover import imported_lazily


def test_early_imports_are_looked_for_without_any_other_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNEY_PLUGINS_DISABLED", "eager")  # in the process that lists backends
    assert imported_lazily(Subject("aot_eager")) is None


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("True\n", "jitney_aot_eager is imported when backends are listed"),
        ("", "a process that lists backends fails: no"),
    ],
)
def test_what_is_wrong_with_imports_is_told(printed: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 0, printed, "no\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: done)
    found = imported_lazily(Subject("aot_eager"))
    assert found is not None and (found.kind, found.detail) == ("import", said)
