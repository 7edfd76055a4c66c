"""llvm_cpu and triton_gpu, 2026-11: the gradient of a result with symbolic strides and gaps was read past its end."""

import torch

from jitney_testing import example

SIZES = (9, 40)


def program(x0, x1, x2):
    x2.sub_(x0)
    return torch.hypot(x2, x1), x2[..., 1:], x2.t().expand(3, -1, -1)


def inputs(n):
    return [
        example((4,), grad=True),
        example((1,), seed=1),
        example((n, 4), "float64", seed=2, layout="gaps"),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
