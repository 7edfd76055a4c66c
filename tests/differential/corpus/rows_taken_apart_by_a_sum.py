"""llvm_cpu, 2026-11: rows that a sum takes apart, of symbolic length: a reduction within them was not waited for."""

import torch

from jitney_testing import example

SIZES = (3, 4)


def program(x0):
    v0 = torch.logsumexp(x0.repeat(2, 1), -1)
    v1 = torch.softmax(x0.repeat(3, 1), -1).view(3, x0.shape[0], 2)
    return torch.sigmoid(v0), v1.sum(0)


def inputs(n):
    return [
        example((n, 2), "float32", seed=0, layout="gaps", grad=True),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
