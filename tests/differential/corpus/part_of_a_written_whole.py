"""All, 2026-11: a part of a chunk whose whole was written to does not say if it is a leaf; the judge failed."""

import torch

from jitney_testing import example

SIZES = (9, 40)


def program(x0):
    v1 = x0 * 2
    v3 = v1[..., ::2]
    v5, v6 = v3.chunk(2, 0)
    v7 = v5 // 0.75
    v8, v9 = torch.topk(v7, 1, 1)
    v1.clamp_(-1, 1)
    v10 = v3.isnan()
    return v10, v6, v8


def inputs(n):
    return [
        example((n, 2), "float32", seed=0, grad=True),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["eager"])
