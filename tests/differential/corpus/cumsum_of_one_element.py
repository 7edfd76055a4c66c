"""llvm_cpu, 2026-11: the argument itself came back for a running sum along a dimension of one element."""

import torch

from jitney_testing import example


def program(x):
    return x.cumsum(1), torch.cumsum(x * 2, 1)


def inputs():
    return [example((17, 1))]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
