"""llvm_cpu, 2026-11: the one element of each row after its whole vectors: the store wrote two bytes too many."""

import torch

from jitney_testing import example

SIZES = (1, 4)


def program(x, room):
    room[:, :33] = torch.sqrt(x.abs() + 1)
    return (x * 2).abs()


def inputs(n):
    return [example((n, 33), "bfloat16", layout="expanded"), torch.ones(n, 40, dtype=torch.bfloat16)]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
