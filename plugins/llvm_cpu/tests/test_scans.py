"""Scans in whole programs, beside eager."""

from __future__ import annotations

from backend_scans import *  # noqa: F403
