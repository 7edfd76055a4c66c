"""Events as capture would emit them, for tests of what listens."""

from traceback import FrameSummary

import torch

from jitney import events

STACK = (
    FrameSummary("main.py", 2, "main", line="step(x)"),
    FrameSummary("model.py", 5, "step", line='print("woo")'),
)
BREAK = events.GraphBreak("print() writes to a file", "remove the call", STACK)


def captured(graph_break=BREAK, *, resumed=False, name="step"):
    graph = torch.fx.symbolic_trace(lambda x: torch.sin(x) + x.abs())
    guards = ("L['x'] is a float32 tensor of shape (2,)",)
    source = "def step(x):\n    return graph_0(x)"
    return events.FrameCaptured(name, "model.py", 4, graph, 3, guards, graph_break, 0.25, source, resumed)


SKIPPED = events.FrameSkipped("helper", "util.py", 9, "it is an async generator")
RECOMPILED = events.Recompiled("step", "model.py", 4, "L['n'] == 3, found 4", "x * n", 1, "L['n'] == 3", "4")
LIMIT = events.LimitReached("step", "model.py", 4, "L['n'] == 3, found 4", 8)
LAUNCHES = (
    events.Launch("0 mul+sum", "kernel", ("mul", "sum"), ("model.py:5",), 4096, 16, 4112, "kernel k0", ""),
    events.Launch("1 sort", "extern", ("sort",), (), 16, 32, 64, "b1 = aten.sort", "no rule"),
)
SCHEDULED = events.Scheduled("step", "inference", "llvm_cpu", LAUNCHES, 128, "before", "after")
