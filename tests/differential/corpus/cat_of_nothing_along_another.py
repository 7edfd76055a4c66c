"""llvm_cpu, triton_gpu, 2026-11: nothing but empty parts joined along a dimension that they do not have."""

import torch

from jitney_testing import example

SIZES = (2, 5)


def program(x0, x1):
    v0 = torch.cat([x0, x1], 1)
    return v0, v0 + 1


def inputs(n):
    return [
        example((0,), "float32", seed=0),
        example((0,), "int64", seed=1),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu", "triton_gpu"])
