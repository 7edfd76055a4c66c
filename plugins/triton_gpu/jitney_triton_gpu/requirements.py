"""What must be there for the backend to work: Triton, a GPU that it makes code for, CUDA's driver.

Nothing of this is imported or asked before somebody wants to know: the package is imported on every machine.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
from collections.abc import Callable
from importlib import metadata

import torch

from jitney_triton_gpu.device import INTERPRETED

TRITONS = ((3, 6), (3, 7))  # from, to
DISTRIBUTIONS = ("triton", "pytorch-triton")  # the second comes with torch's nightly builds
OLDEST = (8, 0)  # compute capability: bfloat16, and atomics and barriers as generated code uses them
DRIVER = "libcuda.so.1"


@functools.cache
def lacks() -> tuple[str, ...]:
    """What is missing on this machine, a sentence each; empty if all is there. Asked once in a process."""
    checks = CHECKS[:1] if INTERPRETED else CHECKS
    return tuple([problem for check in checks if (problem := check())])


def refuse(problems: tuple[str, ...]) -> None:
    """Raise ``RuntimeError`` with the problems, if there are any."""
    if problems:
        raise RuntimeError(f"triton_gpu cannot work here: {'; '.join(problems)}")


def _triton() -> str:
    if importlib.util.find_spec("triton") is None:
        return f"Triton is not installed: pip install 'triton>={_dotted(TRITONS[0])}'"
    version = _version()
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and not TRITONS[0] <= (int(found[1]), int(found[2])) <= TRITONS[1]:
        return f"Triton {version} is installed, {_dotted(TRITONS[0])} to {_dotted(TRITONS[1])} are supported"
    return ""


def _version() -> str:
    """Of the installed Triton, without importing it; empty if no package says."""
    for name in DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def _gpu() -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    newest = max(torch.cuda.get_device_capability(n) for n in range(torch.cuda.device_count()))
    if newest < OLDEST:
        name = torch.cuda.get_device_name()
        return f"{name} has compute capability {_dotted(newest)}, {_dotted(OLDEST)} or later is needed"
    return ""


def _driver() -> str:
    if torch.version.cuda is None:
        return ""  # then there may be a GPU, and nothing follows from it
    try:
        ctypes.CDLL(DRIVER)
    except OSError as error:
        return f"CUDA's driver library cannot be loaded: {error}"
    return ""


CHECKS: tuple[Callable[[], str], ...] = (_triton, _gpu, _driver)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
