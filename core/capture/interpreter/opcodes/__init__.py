"""One short function per opcode of CPython 3.11, 3.12 and 3.13, by topic."""

from jitney.capture.interpreter.opcodes import calling, containers, control, exceptions, matching, variables
from jitney.capture.interpreter.opcodes.table import HANDLERS

__all__ = ["HANDLERS", "calling", "containers", "control", "exceptions", "matching", "variables"]
