"""Tensors put together of parts: each part is computed where it belongs."""

from __future__ import annotations

import torch
from backend_joins import *  # noqa: F403
from backend_joins import PROGRAMS

import jitney


def test_nothing_is_copied() -> None:
    report = str(jitney.explain(PROGRAMS["computed parts"], backend="llvm_cpu")(*[torch.ones(4, 8) for _ in range(3)]))
    assert "as a whole: nothing" in report
