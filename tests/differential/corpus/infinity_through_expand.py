"""aot_eager, 2026-11: what is written through an expanded view was base + (new - base): NaN for infinities."""

from jitney_testing import example

SIZES = (4, 0)


def program(x0):
    v0 = x0.expand_as(x0)
    v0.relu_()


def inputs(n):
    return [
        example((3,), "float32", seed=0, special=True),
    ]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["aot_eager"])
