"""What plugins share with the core, in names that stay: functions made of text, and warnings on the user's line."""

from __future__ import annotations

from jitney._util.callers import warn
from jitney._util.generated_code import build

__all__ = ["build", "warn"]
