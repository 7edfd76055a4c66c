"""llvm_cpu, 2026-11: memory that the parts of a split look into was used again before they were read."""

from torch import nn

from jitney_testing import example

cell = nn.GRUCell(4, 5)


def program(x):
    state = x.new_zeros(x.shape[0], 5)
    for step in x.unbind(1):
        state = cell(step, state)
    return state


SIZES = (3, 2)


def inputs(n):
    return [example((n, 3, 4), seed=n)]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
