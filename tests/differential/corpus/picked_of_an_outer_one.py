"""llvm_cpu, 2026-11: what was picked beside a dimension of one element had strides in another order than eager's."""

from jitney_testing import example


def program(x):
    y = x.permute(1, 0).unfold(0, 2, 1)
    return y[:, [0, -1]], x[:, [[1, 0], [0, 1]]].view(-1)


def inputs():
    return [example((5, 2))]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
