"""triton_gpu, 2026-11: a masked load of a column was put before the loop over the rows that it depends on."""

import torch
from torch.nn import functional as F

from jitney_testing import example

SIZES = (4, 0)


def program(x0):
    v0 = torch.stack([x0, x0], 1)
    v1 = torch.hypot(v0, v0)
    v2 = x0.nan_to_num().clamp(-100, 100).to(torch.int8)
    v4 = F.log_softmax(v0, 0)
    return v4, v0, v1, v2


def inputs(n):
    return [
        example((n,), "float16", seed=0, layout="gaps", grad=True),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["triton_gpu"])
