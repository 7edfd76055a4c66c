"""Observing what is compiled, through events only: explain, logs, times."""

from jitney._util.callers import is_users
from jitney.debug.explain import ExplainOutput, explain, observe
from jitney.debug.logs import set_logs
from jitney.debug.profiler import CompileProfiler
from jitney.debug.progress import Progress
from jitney.debug.times import compile_times, reset_compile_times, write_trace

__all__ = [
    "CompileProfiler",
    "ExplainOutput",
    "Progress",
    "compile_times",
    "explain",
    "is_users",
    "observe",
    "reset_compile_times",
    "set_logs",
    "write_trace",
]
