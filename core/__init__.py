"""A compile stack for PyTorch: capture, guards, and backends as plugins."""

from jitney import errors, events
from jitney.api import allow_in_graph, compile, disable, disallow_in_graph, reset, run
from jitney.cache.artifacts import load_cache_artifacts, save_cache_artifacts
from jitney.capture.directives import (
    assume_constant_result,
    error_on_graph_break,
    graph_break,
    is_compiling,
    is_dynamo_compiling,
    mark_dynamic,
    mark_static,
    maybe_mark_dynamic,
)
from jitney.capture.numpy.wrap_numpy import wrap_numpy
from jitney.config import config
from jitney.debug import CompileProfiler, compile_times, explain, set_logs
from jitney.runtime.ahead import aot_compile
from jitney.runtime.package import load, save
from jitney.runtime.stance import set_stance

__version__ = "0.1.0"

__all__ = [
    "CompileProfiler",
    "allow_in_graph",
    "aot_compile",
    "assume_constant_result",
    "compile",
    "compile_times",
    "config",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "errors",
    "events",
    "explain",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "load",
    "load_cache_artifacts",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "reset",
    "run",
    "save",
    "save_cache_artifacts",
    "set_logs",
    "set_stance",
    "wrap_numpy",
]
