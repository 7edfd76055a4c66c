"""Machine code of single functions on disk: a program that has changed a little has most of its kernels already."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import triton
from triton._C import libtriton
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import make_backend

from jitney.cache.store import DiskCache, cache_folder
from jitney.config import config
from jitney_triton_gpu import helpers, ptx
from jitney_triton_gpu.images import Image
from jitney_triton_gpu.stages import is_watched

_LENGTH = struct.Struct("<I")


def load(key: str) -> Image | None:
    """What is kept under the key of a function; None if that is nothing, or nothing that can be read."""
    cache = _cache()
    data = None if cache is None else cache.load(key)
    if data is None:
        return None
    try:
        (length,) = _LENGTH.unpack_from(data)
        name, shared, threads, parameters = json.loads(data[_LENGTH.size : _LENGTH.size + length])
    except (struct.error, ValueError, TypeError):
        return None
    return Image(data[_LENGTH.size + length :], name, shared, threads, parameters)


def store(key: str, image: Image) -> None:
    """Keep what a function became."""
    cache = _cache()
    if cache is not None:
        facts = json.dumps(image.facts).encode()
        cache.store(key, _LENGTH.pack(len(facts)) + facts + image.code)


def key_of(text: str, details: Mapping[str, Any]) -> str:
    """All that the code of a function depends on.

    Args:
        text: the function's, as Triton compiles it.
        details: what Triton is told besides; its ``target`` is a GPU.
    """
    environment = sorted(get_cache_invalidating_env_vars().items())
    backend: Any = make_backend(details["target"])
    options = backend.parse_options(dict(details["options"])).hash()  # with the libraries that are linked
    about = f"{_compiler(details['target'].arch)} {environment} {options} {details}\n{text}"
    return hashlib.sha256(about.encode()).hexdigest()


def _cache() -> DiskCache | None:
    """None where nothing is to be kept."""
    folder = cache_folder("triton_gpu") if config.cache and not is_watched() else None
    return None if folder is None else _at(folder)


_at = functools.cache(DiskCache)


@functools.cache
def _compiler(capability: int) -> str:
    """Which Triton, which assembler for GPUs of this capability, and which functions of ours generated code calls."""
    library, assembler = os.stat(libtriton.__file__), get_ptxas(capability)
    ours = "".join(inspect.getsource(module) for module in (helpers, ptx))
    facts = (triton.__version__, library.st_size, library.st_mtime_ns, assembler.path, assembler.version)
    return hashlib.sha256(f"{facts}\n{ours}".encode()).hexdigest()
