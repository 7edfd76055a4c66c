"""Windows and samples of images, beside eager."""

from __future__ import annotations

from backend_images import *  # noqa: F403
