"""One short function per opcode of CPython 3.11, 3.12 and 3.13, by topic."""

from jitney.capture.interpreter.opcodes import calling, containers, control, exceptions, matching, variables

HANDLERS = {
    **calling.op.handlers,
    **containers.op.handlers,
    **control.op.handlers,
    **exceptions.op.handlers,
    **matching.op.handlers,
    **variables.op.handlers,
}
