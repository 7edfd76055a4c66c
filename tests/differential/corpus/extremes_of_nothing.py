"""llvm_cpu, 2026-11: eager does not ask along which dimension the extremes of nothing are; ours was missed."""

from jitney_testing import example


def program(x):
    return x.cummax(1)[0], x.cummin(1)[1]


def inputs():
    return [example((0,))]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
