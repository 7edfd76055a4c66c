"""Kernels in C beside the reference: at random, and every scalar operation in every dtype."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given
from kernel_reference import run_kernel
from random_kernels import SETTINGS, kernels
from scalar_cases import compare, operand_dtypes, operands, result_dtypes

from jitney_c_loops import library
from jitney_c_loops.emit import emit
from jitney_lowering.index import Size, Var, index
from jitney_lowering.ir import OPERATIONS, Kernel, Nest, Store, apply, load


def run(kernels: list[Kernel], buffers: Mapping[str, torch.Tensor], sizes: Mapping[Size, int] | None = None) -> None:
    """Compile kernels as one program and run each."""
    kernel_sizes = sizes or {}
    text = "\n".join(emit(kernel, f"kernel{n}", list(kernel_sizes)) for n, kernel in enumerate(kernels))
    compiled = library.load(text, 1)
    for n, kernel in enumerate(kernels):
        pointers = [buffers[name].data_ptr() for name in kernel.buffers]
        packed = (
            struct.pack(f"{len(pointers)}q", *pointers),
            struct.pack(f"{len(kernel_sizes)}q", *kernel_sizes.values()),
        )
        library.function(compiled, f"kernel{n}")(*packed)


@SETTINGS
@given(kernels(scans=True))
def test_random_kernels_do_what_the_reference_does(case):
    kernel, buffers, sizes = case
    expected = {name: t.clone() for name, t in buffers.items()}
    run_kernel(kernel, expected, sizes)
    found = {name: t.clone() for name, t in buffers.items()}
    run([kernel], found, sizes)
    for name in buffers:
        torch.testing.assert_close(
            found[name], expected[name], rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{kernel}\n{m}"
        )


@pytest.mark.parametrize("op", OPERATIONS)
def test_an_operation_is_what_it_means(op):
    kernels, buffers, checks = [], {}, []
    for dtypes in operand_dtypes(op):
        for result in result_dtypes(op, dtypes):
            columns = operands(op, dtypes)
            i = Var("i", len(columns[0]))
            name = f"k{len(kernels)}"
            own = {f"{name}x{k}": column for k, column in enumerate(columns)}
            own[f"{name}o"] = torch.empty(len(columns[0]), dtype=result)
            value = apply(op, *(load(f"{name}x{k}", index(i), d) for k, d in enumerate(dtypes)), dtype=result)
            nest = Nest((i,), (Store(f"{name}o", index(i), value),))
            kernels.append(Kernel(name, (), (nest,), {key: t.dtype for key, t in own.items()}))
            checks.append((columns, own[f"{name}o"]))
            buffers |= own
    run(kernels, buffers)
    for columns, found in checks:
        compare(op, columns, found)
