"""Complex tensors in kernels, beside eager."""

from __future__ import annotations

from backend_complex import *  # noqa: F403
