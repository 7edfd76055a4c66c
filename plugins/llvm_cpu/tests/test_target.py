from __future__ import annotations

import platform

import pytest

from jitney.errors import InvalidOption
from jitney_llvm_cpu.target import Target

AVX2 = "+avx,+avx2,+f16c,+fma"
AVX512 = AVX2 + ",+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"


def machine(cpu, features, triple="x86_64-unknown-linux-gnu"):
    return Target(triple, cpu, features, 16)


def test_the_host_is_described():
    host = Target.host()
    assert platform.machine().replace("arm64", "aarch64") in host.triple.replace("arm64", "aarch64")
    assert host.cpu and host.vector_bytes in (16, 32, 64)
    assert host.lanes(4) * 4 == host.vector_bytes


@pytest.mark.parametrize(
    ("cpu", "features", "best"),
    [
        ("znver3", AVX2, 32),
        ("sapphirerapids", AVX512, 64),
        ("skylake-avx512", AVX512, 32),
        ("sandybridge", "+avx,-avx2", 16),
        ("knl", AVX2 + ",+avx512f,-avx512bw", 32),
        ("generic", "", 16),
    ],
)
def test_the_best_width_of_x86(cpu, features, best):
    assert machine(cpu, features).with_vector_bytes(0).vector_bytes == best


def test_a_cpu_that_prefers_narrow_vectors_may_be_told_otherwise():
    assert machine("skylake-avx512", AVX512).with_vector_bytes(64).vector_bytes == 64


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-darwin", "riscv64-unknown-linux-gnu"])
def test_other_architectures_have_sixteen_bytes(triple):
    target = machine("generic", "", triple).with_vector_bytes(0)
    assert (target.vector_bytes, target.lanes(4), target.lanes(8), target.lanes(32)) == (16, 4, 2, 1)
    with pytest.raises(InvalidOption, match="more than this CPU"):
        target.with_vector_bytes(32)


def test_more_than_the_cpu_has_is_refused_with_what_it_has():
    with pytest.raises(InvalidOption, match=r"vector_bytes=64 .*znver3.* 32 bytes, AVX2") as caught:
        machine("znver3", AVX2).with_vector_bytes(64)
    assert "vector_bytes=32" in caught.value.hint


@pytest.mark.parametrize("width", [1, 8, 24, 128, -16])
def test_widths_that_do_not_exist_are_refused(width):
    with pytest.raises(InvalidOption, match="16, 32 or 64"):
        Target.host(width)


def test_a_narrower_width_may_be_asked_for():
    assert Target.host(16).vector_bytes == 16


def test_fused_multiply_add_is_known():
    assert machine("znver3", AVX2).has_fma
    assert not machine("generic", "").has_fma
    assert machine("generic", "", "aarch64-unknown-linux-gnu").has_fma
