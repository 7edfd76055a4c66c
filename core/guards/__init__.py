"""When may a captured graph be run again? Sources name values, guards check them, the program is the check as code."""

from jitney.guards.pool import Pool
from jitney.guards.program import Program, first_failure
from jitney.guards.source import Guard, Source

__all__ = ["Guard", "Pool", "Program", "Source", "first_failure"]
