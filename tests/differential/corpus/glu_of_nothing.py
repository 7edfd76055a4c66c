"""llvm_cpu, 2026-11: glu along a dimension of size 0: split gave one part where two were expected."""

from torch.nn import functional as F

from jitney_testing import example

SIZES = (4, 0)


def program(x, y):
    return F.glu(x, 0), F.glu(y, 1)


def inputs(n):
    return [example((n, 2), "bfloat16", grad=True), example((3, n), grad=True)]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
