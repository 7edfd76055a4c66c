"""Where a process writes what it finds wrong: several that run at once do not write over each other's files."""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from pathlib import Path

from jitney.config import config

# What graphs that fail are written to, in ``config.base_dir``: to be minified, and as they are.
LAUNCHER = "minifier_launcher.py"
REPRO = "repro.py"

_BEGAN = time.time()
_chosen: dict[tuple[int, Path], Path] = {}  # by process (one may fork) and plain path: what was said must stay true

_missing: set[Path] = set()


def own_file(name: str) -> Path:
    """The path of this process's file of a name, below ``config.base_dir``; equal each time.

    Of one of several ranks (``RANK``, ``WORLD_SIZE``) the name has the rank, in a process of ``multiprocessing``, or
    where another process that runs now has written such a file, the process's number.
    """
    plain = Path(config.base_dir) / name
    key = os.getpid(), plain.absolute()
    if key not in _chosen:
        _chosen[key] = plain.with_stem(plain.stem + _suffix(plain))
    return _chosen[key]


def have_not_written(path: Path) -> None:
    """What was to be in this file could not be written: nobody is sent there."""
    _missing.add(path.absolute())


def is_missing(path: Path) -> bool:
    """Could the file not be written when it was last tried?"""
    return path.absolute() in _missing


def have_written(path: Path) -> None:
    """This process has written a file, whatever made up its name: it may do so again."""
    _missing.discard(path.absolute())
    _chosen.setdefault((os.getpid(), path.absolute()), path)


def _suffix(plain: Path) -> str:
    rank = re.sub(r"\W", "", os.environ.get("RANK", ""))
    if rank and os.environ.get("WORLD_SIZE", "1") != "1":
        return f"_rank{rank}"
    if multiprocessing.parent_process() is not None or _is_new(plain):
        return f"_{os.getpid()}"
    return ""


def _is_new(path: Path) -> bool:
    """Was a file written since this process began? By another one, if this one has not chosen the name."""
    try:
        return path.stat().st_mtime > _BEGAN
    except OSError:
        return False
