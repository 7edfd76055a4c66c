"""What turns a graph into code, and how it is found: backends, hooks, the registry, choosing."""

import warnings
from typing import Any

from jitney._util.callers import warn
from jitney._util.forks import reentrant_lock
from jitney._util.generated_code import build as build_function
from jitney.backends.backend import (
    Argument,
    Backend,
    CompileRequest,
    ExtensionOptions,
    Kind,
    SerializedGraph,
    lazy_function,
)
from jitney.backends.backend_fields import core_decompositions
from jitney.backends.hookspecs import HOOK_API_VERSION, BisectReport, FailedFrame, GraphCheck, TrainingRun, hookimpl
from jitney.backends.registry import Listing, Registry, list_backends, register_backend, registry
from jitney.backends.resolve import BoundBackend, resolve

__all__ = [
    "HOOK_API_VERSION",
    "Argument",
    "Backend",
    "BisectReport",
    "BoundBackend",
    "CompileRequest",
    "ExtensionOptions",
    "FailedFrame",
    "GraphCheck",
    "Kind",
    "Listing",
    "Registry",
    "SerializedGraph",
    "TrainingRun",
    "build_function",
    "core_decompositions",
    "hookimpl",
    "lazy_function",
    "list_backends",
    "reentrant_lock",
    "register_backend",
    "registry",
    "resolve",
    "warn",
]

# Names of release 0.1: what to use instead.
DEPRECATED: dict[str, Any] = {"Kept": SerializedGraph, "late": lazy_function}


def __getattr__(name: str) -> Any:
    if name not in DEPRECATED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = f"{__name__}.{name} is deprecated: use {DEPRECATED[name].__name__}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return DEPRECATED[name]
