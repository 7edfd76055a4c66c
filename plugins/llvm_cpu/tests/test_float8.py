"""Floats of 8 bits, beside eager."""

from __future__ import annotations

from backend_float8 import *  # noqa: F403
