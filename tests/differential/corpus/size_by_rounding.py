"""llvm_cpu, 2026-11: how many numbers are equal, rounding decides, which was called a fault."""

import torch

from jitney_testing import example

SIZES = (3, 5)


def program(x0, x1, x2):
    v0 = torch.cat([x2, x2], 0)
    v1 = torch.erf(v0)
    v2 = v1.unique()
    v3 = x0.to(torch.float32)
    v5 = torch.bernoulli(torch.sigmoid(v2))
    return v5, v1, v2, v3


def inputs(n):
    return [
        example((n, 17), "float32", seed=0, layout="offset", grad=True),
        example((n, 17), "int32", seed=1),
        example((17, n), "float32", seed=2, layout="offset"),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
