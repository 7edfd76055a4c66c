"""llvm_cpu and triton_gpu, 2026-11: an index or a source without dimensions, which count as one, failed to compile."""

from jitney_testing import example


def program(x, index, one):
    return x.scatter(0, index, x), x.scatter_add(0, index.view(1), one), x.scatter(0, index, 2.0), x.gather(0, index)


def inputs():
    return [example((4,)), example((), "int64").abs(), example((), seed=2)]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
