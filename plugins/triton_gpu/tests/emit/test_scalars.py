"""Every scalar operation in every dtype, beside what ``OPERATIONS`` says it means."""

from __future__ import annotations

import pytest
import torch
from scalar_cases import FUNCTIONS, compare, operand_dtypes, operands, result_dtypes, samples

from jitney_lowering.index import Var, index
from jitney_lowering.ir import OPERATIONS, Kernel, Nest, Store, apply, load

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("op", OPERATIONS)
def test_an_operation_is_what_it_means(compiled, op):
    kernels, buffers, cases = [], {}, []
    for dtypes in operand_dtypes(op):
        columns = operands(op, dtypes)
        for result in result_dtypes(op, dtypes):
            name = f"c{len(cases)}_"
            i = Var("i", len(columns[0]))
            found = torch.empty(len(columns[0]), dtype=result)
            mine = {f"{name}x{k}": column for k, column in enumerate(columns)} | {f"{name}o": found}
            loads = [load(f"{name}x{k}", index(i), d) for k, d in enumerate(dtypes)]
            store = Store(f"{name}o", index(i), apply(op, *loads, dtype=result))
            kernels.append(Kernel(name, (), (Nest((i,), (store,)),), {key: t.dtype for key, t in mine.items()}))
            buffers |= mine
            cases.append((columns, found))
    compiled(*kernels)(buffers)
    where = DEVICE if op in FUNCTIONS else "cpu"  # of these, CUDA's own are as much eager's as the CPU's
    for columns, found in cases:
        compare(op, [column.to(where) for column in columns], found.to(where), as_x86=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounding_to_sixteen_bits_is_torch_s(compiled, dtype):
    bits = torch.tensor([*range(0, 2**16, 7)], dtype=torch.int64)
    pattern = torch.cat([(bits << 16) | low for low in (0x0, 0x1000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    x = pattern.to(torch.int32).view(torch.float32)
    i = Var("i", len(x))
    out = torch.empty(len(x), dtype=dtype)
    store = Store("out", index(i), apply("cast", load("x", index(i), torch.float32), dtype=dtype))
    compiled(Kernel("k", (), (Nest((i,), (store,)),), {"x": torch.float32, "out": dtype}))({"x": x, "out": out})
    expected = x.to(dtype)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out[~out.isnan()].view(torch.int16), expected[~out.isnan()].view(torch.int16))


def test_all_numbers_of_float16_are_read_as_torch_reads_them(compiled):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    i = Var("i", len(x))
    out = torch.empty(len(x))
    store = Store("out", index(i), apply("cast", load("x", index(i), torch.float16), dtype=torch.float32))
    compiled(Kernel("k", (), (Nest((i,), (store,)),), {"x": torch.float16, "out": torch.float32}))({"x": x, "out": out})
    torch.testing.assert_close(out, x.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_step_of_halves_is_rounded(compiled, dtype):
    """(a + b) + c with each sum rounded, as eager's operators round."""
    some = samples(dtype)[-12:]
    a, b, c = (x.flatten() for x in torch.meshgrid(some, some, some, indexing="ij"))
    i = Var("i", len(a))
    x = apply("add", load("a", index(i), dtype), load("b", index(i), dtype))
    store = Store("out", index(i), apply("add", x, load("c", index(i), dtype)))
    out = torch.empty(len(a), dtype=dtype)
    kernel = Kernel("k", (), (Nest((i,), (store,)),), dict.fromkeys(("a", "b", "c", "out"), dtype))
    compiled(kernel)({"a": a, "b": b, "c": c, "out": out})
    assert torch.equal(out, (a + b) + c)
    assert not torch.equal(out, (a.float() + b.float() + c.float()).to(dtype)), "rounding makes no difference here"


def test_every_byte_but_zero_is_true(compiled):
    raw = torch.tensor([0, 1, 2, 128, 255, 3, 0, 64, 1], dtype=torch.uint8)
    i = Var("i", len(raw))
    value = apply("cast", load("x", index(i), torch.bool), dtype=torch.int32)
    out = torch.empty(len(raw), dtype=torch.int32)
    kernel = Kernel("k", (), (Nest((i,), (Store("out", index(i), value),)),), {"x": torch.bool, "out": torch.int32})
    compiled(kernel)({"x": raw.view(torch.bool), "out": out})
    assert out.tolist() == [0, 1, 1, 1, 1, 1, 0, 1, 1]
