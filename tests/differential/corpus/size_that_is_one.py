"""llvm_cpu and triton_gpu, 2026-11: a symbolic size that guards say is 1 (s // 17) was not broadcast."""

from jitney_testing import example

OPTIONS = {"dynamic": True}


def program(x):
    return x.view(17, -1) ^ x, x.view(17, -1).expand(17, 3)


def inputs():
    return [example((17,), "uint8")]


if __name__ == "__main__":
    from jitney_testing import Program, assert_same

    assert_same(Program.read(__file__), backends=["llvm_cpu"])
