"""What turns a graph into code, and how it is found: backends, hooks, the registry, choosing."""

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
from jitney.backends.hookspecs import HOOK_API_VERSION, TrainingRun, hookimpl
from jitney.backends.registry import Listing, Registry, list_backends, register_backend, registry
from jitney.backends.resolve import BoundBackend, resolve

__all__ = [
    "HOOK_API_VERSION",
    "Argument",
    "Backend",
    "BoundBackend",
    "CompileRequest",
    "ExtensionOptions",
    "Kind",
    "Listing",
    "Registry",
    "SerializedGraph",
    "TrainingRun",
    "core_decompositions",
    "hookimpl",
    "lazy_function",
    "list_backends",
    "register_backend",
    "registry",
    "resolve",
]
