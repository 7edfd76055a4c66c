"""Whole programs beside eager: those of all backends that make kernels."""

from __future__ import annotations

from backend_programs import *  # noqa: F403
