"""aot_eager, 2026-11: a formula of torch's for the backward divides by a size, 0 here: an error, not eager's result."""

from torch.nn import functional as F

from jitney_testing import example

SIZES = (4, 0)


def program(x):
    return F.group_norm(x.unsqueeze(0), 1)


def inputs(n):
    return [example((n, 1), grad=True)]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["aot_eager"])
