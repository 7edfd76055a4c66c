"""Every scalar operation in every dtype, beside what ``OPERATIONS`` says it means, in vectors and alone."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from kernel_reference import applied
from scalar_cases import DTYPES, compare, defined, operand_dtypes, operands, result_dtypes, samples

from jitney_lowering.index import Var, index
from jitney_lowering.ir import FLOATS, OPERATIONS, Kernel, Nest, Store, apply, constant, load


@dataclass(frozen=True)
class Case:
    """One operation on operands of some dtypes, computed in vectors and alone."""

    op: str
    dtypes: tuple[torch.dtype, ...]
    result: torch.dtype
    columns: list[torch.Tensor]
    found: tuple[torch.Tensor, torch.Tensor]

    def kernels(self, name: str) -> tuple[list[Kernel], dict[str, torch.Tensor]]:
        """What computes it, and the buffers."""
        i = Var("i", len(self.columns[0]))
        buffers = {f"{name}x{k}": c for k, c in enumerate(self.columns)}
        buffers |= {f"{name}v": self.found[0], f"{name}a": self.found[1]}
        loads = [load(f"{name}x{k}", index(i), d) for k, d in enumerate(self.dtypes)]
        value = apply(self.op, *loads, dtype=self.result)
        dtypes = {key: t.dtype for key, t in buffers.items()}
        vectors = Nest((i,), (Store(f"{name}v", index(i), value),))
        alone = Nest((), (Store(f"{name}a", index(i), value),))
        return [Kernel(f"{name}v", (), (vectors,), dtypes), Kernel(f"{name}a", (i,), (alone,), dtypes)], buffers

    def check(self) -> None:
        """The same wherever it is computed, and what it means."""
        keep = defined(self.op, self.columns[0], self.result)
        a, b = (f.view(torch.uint8).reshape(len(f), -1)[keep] for f in self.found)
        assert torch.equal(a, b), f"an element depends on where in a vector it is: {self.dtypes} {self.result}"
        compare(self.op, self.columns, self.found[0])


def cases(op: str) -> list[Case]:
    """For every dtype of operands and result."""
    made = []
    for dtypes in operand_dtypes(op):
        columns = operands(op, dtypes)
        for result in result_dtypes(op, dtypes):
            found = (torch.empty(len(columns[0]), dtype=result), torch.empty(len(columns[0]), dtype=result))
            made.append(Case(op, dtypes, result, columns, found))
    return made


@pytest.mark.parametrize("vector_bytes", [0, 16])
@pytest.mark.parametrize("op", OPERATIONS)
def test_an_operation_is_what_it_means(compiled, op, vector_bytes):
    kernels: list[Kernel] = []
    buffers: dict[str, torch.Tensor] = {}
    all_cases = cases(op)
    for number, case in enumerate(all_cases):
        more, names = case.kernels(f"c{number}_")
        kernels += more
        buffers |= names
    compiled(*kernels, vector_bytes=vector_bytes)(buffers)
    for case in all_cases:
        case.check()


@pytest.mark.parametrize("op", ["floordiv", "truncdiv", "remainder", "fmod"])
def test_division_by_a_constant(compiled, op):
    kernels, buffers, expected = [], {}, {}
    integers = [d for d in DTYPES if d not in FLOATS and d is not torch.bool]
    for dtype, divisor in itertools.product(integers, [1, 2, 3, 8, 10, 127, -1, -2, -3, -8]):
        if divisor < 0 and dtype is torch.uint8:
            continue
        x, name = samples(dtype), f"{dtype}{divisor}".replace(".", "_").replace("-", "m")
        if divisor == -1:
            x = x[x != torch.iinfo(dtype).min]
        i = Var("i", len(x))
        value = apply(op, load(f"{name}x", index(i), dtype), constant(divisor, dtype))
        nest = Nest((i,), (Store(name, index(i), value),))
        kernels.append(Kernel(name, (), (nest,), {f"{name}x": dtype, name: dtype}))
        buffers |= {f"{name}x": x, name: torch.empty_like(x)}
        expected[name] = applied(op, [x, torch.full_like(x, divisor)], dtype)
    compiled(*kernels)(buffers)
    assert {name: buffers[name].tolist() for name in expected} == {name: x.tolist() for name, x in expected.items()}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("op", ["floordiv", "truncdiv", "remainder", "fmod"])
def test_the_least_integer_divided_by_minus_one_does_not_trap(compiled, op, dtype):
    least = torch.iinfo(dtype).min
    x, y = torch.full((9,), least, dtype=dtype), torch.full((9,), -1, dtype=dtype)
    i = Var("i", 9)
    value = apply(op, load("x", index(i), dtype), load("y", index(i), dtype))
    buffers = {"x": dtype, "y": dtype, "out": dtype}
    out = torch.empty_like(x)
    compiled(Kernel("k", (), (Nest((i,), (Store("out", index(i), value),)),), buffers))({"x": x, "y": y, "out": out})
    assert out.tolist() == [least if op.endswith("div") else 0] * 9


def test_casting_what_an_integer_cannot_hold_never_traps(compiled):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 3e9, 300.0, -200.0])
    i = Var("i", len(x))
    targets = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
    stores = [
        Store(f"o{k}", index(i), apply("cast", load("x", index(i), torch.float32), dtype=d))
        for k, d in enumerate(targets)
    ]
    outs = {f"o{k}": torch.empty(len(x), dtype=d) for k, d in enumerate(targets)}
    kernel = Kernel("k", (), (Nest((i,), tuple(stores)),), {"x": torch.float32} | {k: o.dtype for k, o in outs.items()})
    compiled(kernel)({"x": x, **outs})
    assert outs["o3"].tolist() == x.to(torch.int32).tolist()
    assert outs["o4"].tolist() == x.to(torch.int64).tolist()
    assert outs["o1"].tolist()[6:] == [44, 56]


def test_every_byte_but_zero_is_true(compiled):
    raw = torch.tensor([0, 1, 2, 128, 255, 3, 0, 64, 1], dtype=torch.uint8)
    i = Var("i", len(raw))
    value = apply("cast", load("x", index(i), torch.bool), dtype=torch.int32)
    out = torch.empty(len(raw), dtype=torch.int32)
    kernel = Kernel("k", (), (Nest((i,), (Store("out", index(i), value),)),), {"x": torch.bool, "out": torch.int32})
    compiled(kernel)({"x": raw, "out": out})
    assert out.tolist() == [0, 1, 1, 1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize("without", [(), ("f16c",)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounding_to_sixteen_bits_is_torch_s(compiled, dtype, without):
    bits = torch.tensor([*range(0, 2**16, 7)], dtype=torch.int64)
    pattern = torch.cat([(bits << 16) | low for low in (0x0, 0x1000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    x = pattern.to(torch.int32).view(torch.float32)
    i = Var("i", len(x))
    out = torch.empty(len(x), dtype=dtype)
    store = Store("out", index(i), apply("cast", load("x", index(i), torch.float32), dtype=dtype))
    kernel = Kernel("k", (), (Nest((i,), (store,)),), {"x": torch.float32, "out": dtype})
    compiled(kernel, without=without)({"x": x, "out": out})
    expected = x.to(dtype)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out[~out.isnan()].view(torch.int16), expected[~out.isnan()].view(torch.int16))


@pytest.mark.parametrize("without", [(), ("f16c",)])
def test_all_numbers_of_float16_are_read_as_torch_reads_them(compiled, without):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    i = Var("i", len(x))
    out = torch.empty(len(x))
    store = Store("out", index(i), apply("cast", load("x", index(i), torch.float16), dtype=torch.float32))
    kernel = Kernel("k", (), (Nest((i,), (store,)),), {"x": torch.float16, "out": torch.float32})
    compiled(kernel, without=without)({"x": x, "out": out})
    torch.testing.assert_close(out, x.float(), rtol=0, atol=0, equal_nan=True)
