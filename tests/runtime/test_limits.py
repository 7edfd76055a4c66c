"""Frames with as many forms as ``config.cache_size_limit`` allows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import jitney
from jitney.runtime import dispatch


def test_why_no_form_holds_is_looked_for_once_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    reason_of = dispatch.recompile_reason

    def counted(*args: Any) -> Any:
        asked.append("reason")
        return reason_of(*args)

    monkeypatch.setattr(dispatch, "recompile_reason", counted)
    compiled = jitney.compile(lambda x, how: x + len(how), backend="eager")
    with jitney.config.patch(cache_size_limit=2):
        compiled(torch.ones(2), "a")
        compiled(torch.ones(2), "bc")
        with pytest.warns(UserWarning, match="compiled 2 times .*other calls run eagerly"):
            compiled(torch.ones(2), "def")
        told = len(asked)
        for how in ("ghij", "klmno", "def"):
            assert torch.equal(compiled(torch.ones(2), how), torch.ones(2) + len(how))
        assert len(asked) == told
        with (
            jitney.config.patch(error_on_recompile=True),
            pytest.raises(jitney.errors.RecompileError, match="would be compiled again: how == "),
        ):
            compiled(torch.ones(2), "pqrstu")
