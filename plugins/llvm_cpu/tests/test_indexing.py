"""Reading and writing at computed indices, beside eager."""

from __future__ import annotations

from backend_indexing import *  # noqa: F403
