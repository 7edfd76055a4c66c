"""What turns a graph into code, and how it is found: backends, hooks, the registry, choosing."""

from jitney.backends.backend import Backend, CompileRequest, Kept, Kind
from jitney.backends.decompositions import core_decompositions
from jitney.backends.hookspecs import HOOK_API_VERSION, hookimpl
from jitney.backends.late import late
from jitney.backends.registry import Listing, Registry, list_backends, register_backend, registry
from jitney.backends.resolve import BoundBackend, resolve

__all__ = [
    "HOOK_API_VERSION",
    "Backend",
    "BoundBackend",
    "CompileRequest",
    "Kept",
    "Kind",
    "Listing",
    "Registry",
    "core_decompositions",
    "hookimpl",
    "late",
    "list_backends",
    "register_backend",
    "registry",
    "resolve",
]
