"""All checks, by group, in the order in which they run: what is simple first."""

from __future__ import annotations

import re

from jitney_testing.suite import (
    contract,
    dynamic,
    generated,
    handover,
    memory,
    models,
    numbers,
    operators,
    randomness,
    shapes,
    training,
    views,
)
from jitney_testing.suite.check import Check, Level

CHECKS: tuple[Check, ...] = (
    *handover.CHECKS,
    *contract.CHECKS,
    *numbers.CHECKS,
    *shapes.CHECKS,
    *views.CHECKS,
    *randomness.CHECKS,
    *training.CHECKS,
    *dynamic.CHECKS,
    *memory.CHECKS,
    *models.CHECKS,
    *operators.CHECKS,
    *generated.CHECKS,
)


def checks(level: Level = "quick", only: str = "") -> list[Check]:
    """The checks of a level.

    Args:
        level: ``full`` has those of ``quick``, too.
        only: a regular expression that is found at the start of their names; all without one.
    """
    return [c for c in CHECKS if (level == "full" or c.level == "quick") and re.match(only, c.name)]
