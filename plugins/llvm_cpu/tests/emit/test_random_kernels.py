"""Kernels made at random, beside the reference, on all kinds of machines."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_reference import run_kernel
from random_kernels import SETTINGS, kernels

# With these gone, an x86 has neither masks nor halves.
AVX = tuple("avx avx2 fma f16c vaes vpclmulqdq avxvnni gfni avx512f avx512bw avx512cd avx512dq avx512vl".split())
MACHINES = [{}, {"vector_bytes": 16}, {"vector_bytes": 16, "without": AVX}]


@SETTINGS
@given(kernels(scans=True), st.sampled_from([1, 2, 3]), st.sampled_from(MACHINES))
def test_random_kernels_do_what_the_reference_does(compiled, case, threads, machine):
    kernel, buffers, sizes = case
    expected = {name: t.clone() for name, t in buffers.items()}
    run_kernel(kernel, expected, sizes)
    found = {name: t.clone() for name, t in buffers.items()}
    compiled(kernel, sizes=list(sizes), **machine)(found, list(sizes.values()), threads)
    for name in buffers:
        torch.testing.assert_close(
            found[name], expected[name], rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{kernel}\n{m}"
        )
