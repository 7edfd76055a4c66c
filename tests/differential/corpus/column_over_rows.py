"""aot_eager, 2026-11: rows that indices choose got a column as it was before, where eager reads what it has written."""

from jitney_testing import example

SIZES = ((4, 0), (5, 1))


def program(x):
    x[[0, -1]] = x[:, 1]
    y = x[:, 1:] * 1
    y[[0, -1]] = y[-2]
    return y


def inputs(call):
    n, s = call
    return [example((n, n), seed=s)]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["aot_eager"])
