"""The toolkit of backends that make kernels: index arithmetic, loops, fusion, memory plan.

What a backend needs is in ``__all__`` here, in ``jitney_lowering.index`` and in ``jitney_lowering.ir``; other modules
may change without notice.
"""

from jitney_lowering import philox
from jitney_lowering.aten.lower import lower
from jitney_lowering.decompositions import decompositions
from jitney_lowering.describe import describe
from jitney_lowering.index import Index, Size, Var
from jitney_lowering.ir import Kernel, Program
from jitney_lowering.policy import CPU, GPU, Policy
from jitney_lowering.rules import VIEWS
from jitney_lowering.schedule import Schedule, schedule
from jitney_lowering.schedule.products import Offer, Takes
from jitney_lowering.signals import NotLowered
from jitney_lowering.wrapper import Launch, Wrapper, sizes_in

# Rises when a backend that was written for the one before must be changed.
API_VERSION = 1

__all__ = [
    "API_VERSION",
    "CPU",
    "GPU",
    "VIEWS",
    "Index",
    "Kernel",
    "Launch",
    "NotLowered",
    "Offer",
    "Policy",
    "Program",
    "Schedule",
    "Size",
    "Takes",
    "Var",
    "Wrapper",
    "decompositions",
    "describe",
    "lower",
    "philox",
    "schedule",
    "sizes_in",
]
