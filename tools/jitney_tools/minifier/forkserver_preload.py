"""Importing this compiles a graph of one operation: what compiling imports is then there in each process forked."""

from __future__ import annotations

import torch

from jitney_tools.compare.verdict import Terms
from jitney_tools.minifier.case import bound, captured, plain_case


def warm_up() -> None:
    """Compile, run and judge the smallest graph there is. No threads are started: a process may fork afterwards."""
    torch.set_num_threads(1)
    values = [torch.ones(2, requires_grad=True)]
    module, _ = captured(lambda x0: x0 + 1, values)
    for name in ("eager", "aot_eager"):
        plain_case(module, values, bound(name, None, None)).fault(Terms())


warm_up()
