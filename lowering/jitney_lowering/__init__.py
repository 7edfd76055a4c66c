"""The optional toolkit for backends that make kernels: index arithmetic, loops, fusion, memory plan."""

from jitney_lowering.aten.lower import lower
from jitney_lowering.decompositions import decompositions
from jitney_lowering.describe import describe
from jitney_lowering.index import Index, Size, Var
from jitney_lowering.ir.kernel import Kernel
from jitney_lowering.ir.loops import Program
from jitney_lowering.policy import CPU, GPU, Policy
from jitney_lowering.schedule import Schedule, schedule
from jitney_lowering.signals import NotLowered
from jitney_lowering.wrapper import Launch, Wrapper, sizes_in

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
