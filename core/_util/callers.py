"""The line that called jitney: where a warning points. Our files, the code that we emit and torch's are passed over."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

import torch

from jitney._util.distributions import own_folders

_OURS = tuple(folder + os.sep for folder in own_folders())
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


def is_ours(filename: str) -> bool:
    """Is it a file of jitney's (a plugin is none), or code that jitney emitted?"""
    return filename.startswith((*_OURS, "<jitney "))


def is_users(filename: str) -> bool:
    """Is it neither ours nor torch's, nor Python's import machinery?"""
    return not is_ours(filename) and not filename.startswith((_TORCH, "<frozen importlib"))


def _caller() -> FrameType:
    """The innermost frame of the user's, not of a plugin of ours; the outermost of all if there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (not is_users(frame.f_code.co_filename) or _is_plugin(frame)):
        frame = frame.f_back
    return frame


def _is_plugin(frame: FrameType) -> bool:
    """Is it code of a package that is named as plugins are, ``jitney_NAME``?"""
    return str(frame.f_globals.get("__name__")).startswith("jitney_")


def warn(message: str) -> None:
    """Issue a ``UserWarning`` on the user's line; Python's filters show it once for each line and text."""
    frame = _caller()
    space = frame.f_globals
    registry = space.setdefault("__warningregistry__", {})
    name = space.get("__name__") or "<unknown>"
    warnings.warn_explicit(message, UserWarning, frame.f_code.co_filename, frame.f_lineno, name, registry)
