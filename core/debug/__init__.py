"""Observing what is compiled, through events only: explain, logs, times, debug folders."""

from jitney.debug.explain import ExplainOutput, explain, observe
from jitney.debug.logs import set_logs
from jitney.debug.profiler import CompileProfiler
from jitney.debug.times import compile_times, reset_compile_times, write_trace
from jitney_tools.debug_folder import switch as switch  # which listens from now on

__all__ = [
    "CompileProfiler",
    "ExplainOutput",
    "compile_times",
    "explain",
    "observe",
    "reset_compile_times",
    "set_logs",
    "write_trace",
]
