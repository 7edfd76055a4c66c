"""Observing what is compiled, through events only: explain, logs, times."""

from .explain import ExplainOutput, explain, observe
from .logs import set_logs
from .times import compile_times, reset_compile_times

__all__ = ["ExplainOutput", "compile_times", "explain", "observe", "reset_compile_times", "set_logs"]
