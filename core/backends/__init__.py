"""What turns a graph into code, and how it is found: backends, hooks, the registry, choosing."""

from jitney._util.callers import warn
from jitney._util.generated_code import build as build_function
from jitney.backends.backend import Argument, Backend, CompileRequest, ExtensionOptions, Kept, Kind, lazy_function
from jitney.backends.backend_fields import core_decompositions
from jitney.backends.hookspecs import (
    HOOK_API_VERSION,
    BisectReport,
    FailedFrame,
    GraphCheck,
    TrainingRun,
    hookimpl,
)
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
    "Kept",
    "Kind",
    "Listing",
    "Registry",
    "TrainingRun",
    "build_function",
    "core_decompositions",
    "hookimpl",
    "lazy_function",
    "list_backends",
    "register_backend",
    "registry",
    "resolve",
    "warn",
]
