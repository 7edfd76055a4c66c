"""All backends that are wrong on purpose: ``WRONG`` with what each file registers."""

from __future__ import annotations

import testing.wrong_habits
import testing.wrong_numbers  # noqa: F401
from testing.wrong_backends import WRONG

__all__ = ["WRONG"]
