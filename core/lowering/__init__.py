"""The optional toolkit for backends that make kernels: index arithmetic, loops, fusion, memory plan."""

from jitney.lowering.decompositions import decompositions
from jitney.lowering.describe import describe
from jitney.lowering.index import Index, Size, Var
from jitney.lowering.kernel import Kernel
from jitney.lowering.loops import Program
from jitney.lowering.lower import lower
from jitney.lowering.policy import CPU, GPU, Policy
from jitney.lowering.schedule import Schedule, schedule
from jitney.lowering.signals import NotLowered
from jitney.lowering.wrapper import Launch, Wrapper, sizes_in

__all__ = [
    "CPU",
    "GPU",
    "Index",
    "Kernel",
    "Launch",
    "NotLowered",
    "Policy",
    "Program",
    "Schedule",
    "Size",
    "Var",
    "Wrapper",
    "decompositions",
    "describe",
    "lower",
    "schedule",
    "sizes_in",
]
