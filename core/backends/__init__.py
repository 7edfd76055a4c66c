"""What turns a graph into code, and how it is found: backends, hooks, the registry, choosing."""

from jitney._util.callers import warn as warn_user
from jitney._util.generated_code import build as build_function
from jitney.backends.backend import Argument, Backend, CompileRequest, ExtensionOptions, Kept, Kind
from jitney.backends.decompositions import core_decompositions
from jitney.backends.hookspecs import HOOK_API_VERSION, TrainingRun, hookimpl
from jitney.backends.lazy_functions import late
from jitney.backends.registry import Listing, Registry, list_backends, register_backend, registry
from jitney.backends.resolve import BoundBackend, resolve

__all__ = [
    "HOOK_API_VERSION",
    "Argument",
    "Backend",
    "BoundBackend",
    "CompileRequest",
    "ExtensionOptions",
    "Kept",
    "Kind",
    "Listing",
    "Registry",
    "TrainingRun",
    "build_function",
    "core_decompositions",
    "hookimpl",
    "late",
    "list_backends",
    "register_backend",
    "registry",
    "resolve",
    "warn_user",
]
