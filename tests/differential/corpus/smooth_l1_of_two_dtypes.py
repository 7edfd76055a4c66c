"""llvm_cpu, 2026-11: smooth_l1_loss of two dtypes: its result had the first one's, where eager promotes."""

from torch.nn import functional as F

from jitney_testing import example


def program(x, y):
    return F.smooth_l1_loss(x, y, reduction="none"), F.smooth_l1_loss(y, x)


def inputs():
    return [example((2,), "float16", grad=True), example((1,), seed=2, grad=True)]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
