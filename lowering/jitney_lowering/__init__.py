"""The toolkit of backends that make kernels: index arithmetic, loops, fusion, memory plan.

What a backend needs is in ``__all__`` here, in ``jitney_lowering.index`` and in ``jitney_lowering.ir``; other modules
may change without notice. Names are imported when they are asked for: a process that finds its code on disk imports a
module or two, not all that made it. So no module here has the name of a function.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitney_lowering import philox
    from jitney_lowering.aten.lower import lower
    from jitney_lowering.decomposition import decompositions
    from jitney_lowering.description import describe
    from jitney_lowering.host_arithmetic import HostNumbers, host_numbers
    from jitney_lowering.host_calls import PREPARE, with_numbers
    from jitney_lowering.index import Index, Size, Var
    from jitney_lowering.ir import Kernel, Program
    from jitney_lowering.joint.biases import unfuse_biases
    from jitney_lowering.joint.memory_format import CHANNEL_REDUCTIONS, Convolution, channels_last, hints
    from jitney_lowering.joint.norm_results import recompute_norm_results
    from jitney_lowering.joint.writer import Writer
    from jitney_lowering.linalg_checks import joined_checks
    from jitney_lowering.policy import CPU, GPU, Policy
    from jitney_lowering.rules import VIEWS
    from jitney_lowering.scheduler import Schedule, needed_bytes, schedule
    from jitney_lowering.scheduler.products import Offer, Takes
    from jitney_lowering.signals import NotLowered, NotRepeated
    from jitney_lowering.wrapper import Launch, Wrapper, sizes_in

# Rises when a backend that was written for the one before must be changed.
API_VERSION = 1

__all__ = [
    "API_VERSION",
    "CHANNEL_REDUCTIONS",
    "CPU",
    "GPU",
    "PREPARE",
    "VIEWS",
    "Convolution",
    "HostNumbers",
    "Index",
    "Kernel",
    "Launch",
    "NotLowered",
    "NotRepeated",
    "Offer",
    "Policy",
    "Program",
    "Schedule",
    "Size",
    "Takes",
    "Var",
    "Wrapper",
    "Writer",
    "channels_last",
    "decompositions",
    "describe",
    "hints",
    "host_numbers",
    "join_products",
    "joined_checks",
    "lower",
    "needed_bytes",
    "philox",
    "recompute_norm_results",
    "schedule",
    "sizes_in",
    "unfuse_biases",
    "with_numbers",
]

_HOMES = {
    "aten.lower": ("lower",),
    "decomposition": ("decompositions",),
    "description": ("describe",),
    "host_arithmetic": ("HostNumbers", "host_numbers"),
    "host_calls": ("PREPARE", "with_numbers"),
    "index": ("Index", "Size", "Var"),
    "ir": ("Kernel", "Program"),
    "joint.biases": ("unfuse_biases",),
    "joint.memory_format": ("CHANNEL_REDUCTIONS", "Convolution", "channels_last", "hints"),
    "joint.norm_results": ("recompute_norm_results",),
    "joint.products": ("join_products",),
    "joint.writer": ("Writer",),
    "linalg_checks": ("joined_checks",),
    "philox": ("philox",),
    "policy": ("CPU", "GPU", "Policy"),
    "rules": ("VIEWS",),
    "scheduler": ("Schedule", "needed_bytes", "schedule"),
    "scheduler.products": ("Offer", "Takes"),
    "signals": ("NotLowered", "NotRepeated"),
    "wrapper": ("Launch", "Wrapper", "sizes_in"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME_OF[name]}")
    value = module if name == _HOME_OF[name] else getattr(module, name)
    globals()[name] = value
    return value
