"""llvm_cpu, 2026-11: a float that the backward needs was given away as a tensor: ``.item().detach()``."""

import torch

from jitney_testing import example

SIZES = (3, 2, 7)
OPTIONS = {"dynamic": True}


def program(x0):
    v0 = torch.empty_like(x0).uniform_(-1, 1)
    v1 = x0.std(0, unbiased=False, keepdim=False)
    v2 = v1 + v0
    v3 = v0.reshape(-1)
    v4 = v1.squeeze(-1)
    v6 = torch.arange(v3.shape[0], device=v0.device) * v4  # noqa: F841
    v8 = torch.hypot(v4, v0)
    v9 = torch.zeros_like(x0)
    v10 = torch.copysign(x0, v0.nan_to_num())
    v11 = v2.unsqueeze(-2)
    return v11, v8, v9, v10


def inputs(n):
    return [
        example((17,), "float32", seed=0, layout="offset", grad=True),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
