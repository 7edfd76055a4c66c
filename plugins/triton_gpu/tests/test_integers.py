"""Integers that kernels compute with, beside eager: those of all backends that make kernels."""

from __future__ import annotations

from backend_integers import *  # noqa: F403
