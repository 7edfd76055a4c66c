"""The old import path of ``jitney_lowering``, a distribution of its own: ``pip install jitney-lowering``."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        module = importlib.import_module("jitney_lowering")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("jitney.lowering is a package now: pip install jitney-lowering") from error
    return getattr(module, name)
