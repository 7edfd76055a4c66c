"""What everything that is kept depends on: versions, sources, the machine, settings."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np
import torch

from jitney._util.distributions import SIBLINGS, file_of
from jitney.cache.digest import digest
from jitney.config import config, variable
from jitney.torch_compat import torch_private

FORMAT = 4  # of what is stored: another number finds nothing of what there is (3: guards lacked the bounds of strides)
# Of torch's backends.
FLAGS = ("enabled", "deterministic", "benchmark", "strategy")
# Of the environment: what torch and what it is made of read by themselves, and backends of ours.
VARIABLES = ("TORCH_", "PYTORCH_", "ATEN_", "MKL_", "ONEDNN_", "DNNL_", "CUBLAS_", "CUDA_", "TRITON_", "JITNEY_")
_OURS = {variable(field.name) for field in dataclasses.fields(config)}  # ``settings`` has their values
_BEGUN_NS = time.time_ns()
# Settings that change neither what is captured nor what is compiled.
ELSEWHERE = {"cache", "cache_dir", "base_dir", "logs", "verbose", "verify", "plugins_disabled", "progress", "watch"}
ELSEWHERE |= {"compile_debug", "error_on_recompile", "profiler_markers", "debug_function"}
ELSEWHERE |= {
    "repro_after",
    "repro_level",
    "minifier_seconds",
    "minifier_try_seconds",
    "replay_record_enabled",
    "replay_record_data",
}
ELSEWHERE |= {f.name for f in dataclasses.fields(config) if f.name.startswith("trace_") and f.name != "trace_numpy"}


@functools.cache
def environment() -> str:
    """Of Python, torch, NumPy, what is installed, and the machine."""
    return digest(
        FORMAT,
        (sys.version, sys.implementation.cache_tag, sys.flags, sys.platform, platform.machine()),
        (torch.__version__, torch.version.git_version, torch.__file__, np.__version__),
        (torch.backends.cpu.get_cpu_capability(), torch.cuda.is_available(), _devices()),
        [_changed(path) for path in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})],
        [sources(package) for package in ("jitney", *SIBLINGS)],
        variables(),
    )


def variables() -> list[tuple[str, str]]:
    """Variables of the environment that torch, what it is made of, and backends read by themselves."""
    return sorted((name, text) for name, text in os.environ.items() if name.startswith(VARIABLES) and name not in _OURS)


def _devices() -> list[str]:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [torch.cuda.get_device_name(i) for i in range(count)]


def _changed(folder: str) -> tuple[str, int]:
    """A folder changes when a package in it is installed, upgraded or removed."""
    try:
        return folder, os.stat(folder).st_mtime_ns
    except OSError:
        return folder, 0


@functools.cache
def sources(package: str) -> str:
    """Of the files of an imported package, by time and size: also of one that is being worked on."""
    found = _files(package)
    return digest(found) if found else ""


@functools.cache
def contents(package: str) -> str:
    """Of what is written in the files of an imported package: the same wherever it was installed."""
    found = _files(package)
    folder = os.path.commonpath([os.path.dirname(path) for path, _, _ in found]) if found else ""
    return digest([(os.path.relpath(path, folder), Path(path).read_bytes()) for path, _, _ in found])


def edited(package: str) -> bool:
    """Are the files of an imported package others than those that this process runs? Then nobody knows what it runs."""
    found = _files(package)
    return digest(found) != sources(package) or any(changed > _BEGUN_NS for _, changed, _ in found) if found else False


def _files(package: str) -> list[tuple[str, int, int]]:
    file = getattr(sys.modules.get(package), "__file__", None) or file_of(package)  # perhaps not imported yet
    if not file:
        return []
    folder, name = os.path.split(file)
    if os.path.basename(folder) != package and name != "__init__.py":
        return [_file(file)]
    whole = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name[-3:] == ".py"]
    return [_file(path) for path in sorted(whole)]


def _file(path: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return path, status.st_mtime_ns, status.st_size


def settings() -> list[tuple[str, object]]:
    """The settings that count."""
    names = [field.name for field in dataclasses.fields(config) if field.name not in ELSEWHERE]
    return [(name, getattr(config, name)) for name in names]


def flags() -> list[tuple[str, object]]:
    """What torch's backends are set to, which captured code reads as it is, and operators that are others' now."""
    found: list[tuple[str, object]] = []
    for backend in (torch.backends.mkldnn, torch.backends.cudnn, torch.backends.mha, torch.backends.opt_einsum):
        for name in FLAGS:
            found.append((f"{backend.__name__}.{name}", getattr(backend, name, None)))
    filled = getattr(torch.utils.deterministic, "fill_uninitialized_memory", None)
    return [*found, ("kernels", torch_private.program_kernels()), ("fill_uninitialized_memory", filled)]
