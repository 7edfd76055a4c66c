"""The old import path of ``jitney_testing``, a distribution of its own: ``pip install jitney-testing``."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        module = importlib.import_module("jitney_testing")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("jitney.testing is a package now: pip install jitney-testing") from error
    return getattr(module, name)
