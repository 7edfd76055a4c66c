"""llvm_cpu and triton_gpu, 2026-11: gather from what depends on positions (triu, cat, pad) failed to compile."""

import torch
from torch.nn import functional as F

from jitney_testing import example


def program(x, i):
    return torch.triu(x, 1).gather(-1, i), F.pad(x, (1, 1)).gather(1, i).sum(), torch.cat([x, x * 2]).gather(0, i)


def inputs():
    return [example((4, 4), grad=True), example((4, 4), "int64") % 4]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
