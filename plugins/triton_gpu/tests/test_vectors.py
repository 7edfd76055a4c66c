"""Products of a vector and a matrix that is computed."""

from __future__ import annotations

from backend_vectors import *  # noqa: F403
