"""triton_gpu, 2026-11: minus 0.0 was 0.0, and what is divided by it infinite with the other sign."""

from jitney_testing import example


def program(x):
    return 1 / -x, -(x * 2), (-x).signbit()


def inputs():
    return [example((8,), seed=5) * 0]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["triton_gpu"])
