"""llvm_cpu, 2026-11: the mean of var_mean of what is infinite, which is a running mean in eager: NaN."""

import torch

from jitney_testing import example

SIZES = (1, 4)


def program(x0, x1, x2):
    v0, v1 = torch.var_mean(x2, -2)
    return v1, v0


def inputs(n):
    return [
        example((33,), "float32", seed=0, layout="offset"),
        example((), "bfloat16", seed=1, layout="offset"),
        example((33, n), "float32", seed=2, layout="gaps", special=True),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
