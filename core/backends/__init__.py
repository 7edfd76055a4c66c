"""What turns a graph into code, and how it is found: backends, hooks, the registry, choosing."""

from jitney.backends.backend import Argument, Backend, CompileRequest, ExtensionOptions, Kept, Kind
from jitney.backends.decompositions import core_decompositions
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
from jitney.backends.support import late

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
    "core_decompositions",
    "hookimpl",
    "late",
    "list_backends",
    "register_backend",
    "registry",
    "resolve",
]
