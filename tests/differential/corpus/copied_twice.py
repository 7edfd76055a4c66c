"""aot_eager, 2026-11: two copies of one tensor became one, which results shared that are views of it."""

from jitney_testing import example

SIZES = (3, 4)


def program(x):
    first, second = x.flatten(), x.flatten()
    third, fourth = x.t().reshape(-1), x.t().reshape(-1)
    return first.detach(), second, third.view(2, -1), fourth


def inputs(n):
    return [example((2, n), "float16", seed=1, layout="expanded")]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["aot_eager"])
