"""A module of Triton code, loaded: for the GPU or for the interpreter."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Mapping
from typing import Any

import torch

from jitney_triton_gpu.code import Function
from jitney_triton_gpu.device import INTERPRETED

if INTERPRETED:
    from jitney_triton_gpu import interpreter
else:
    from jitney_triton_gpu import launch

_counter = itertools.count()


def load(
    source: str, name: str, functions: Mapping[str, Function], device: torch.device, relaxed: bool
) -> dict[str, Callable[..., None]]:
    """Launchers by name.

    Args:
        source: the module's text.
        name: the user's function.
        functions: name -> the function of the module that it launches.
        device: where they run.
        relaxed: may a product and a sum be rounded once?
    """
    if not functions:
        return {}
    namespace = executed(source, name)
    if INTERPRETED:
        return interpreter.launchers(functions, namespace)
    return {entry: one.function() for entry, one in launch.launchers(functions, namespace, device, relaxed).items()}


def executed(source: str, name: str) -> dict[str, Any]:
    """The namespace of a module of Triton code; ``name``: the user's function."""
    filename = f"<jitney triton kernels of {name} {next(_counter)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": "jitney_triton_gpu.generated"}
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    return namespace
