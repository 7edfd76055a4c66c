"""llvm_cpu, 2026-11: gathering from what is computed and has no elements did not compile."""

import torch

from jitney_testing import example


def program(x, y):
    nothing = torch.zeros_like(x, dtype=torch.int64)
    return (x * 2).gather(0, nothing), (y * 2).gather(1, torch.zeros_like(y, dtype=torch.int64))


def inputs():
    return [example((0,)), example((3, 0))]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
