"""Matrix products as kernels of ours, with what is done to their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_tuning import Clock

import jitney
from jitney_lowering.decomposition import products
from jitney_lowering.ir import Extern, index_width, matrix_product_of
from jitney_triton_gpu import compiler
from jitney_triton_gpu.code import Code
from jitney_triton_gpu.launcher import Launcher
from jitney_triton_gpu.tuning import Room, Tuner

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALVES = [torch.float16, torch.bfloat16]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernels that are launched."""
    found: list[Any] = []
    unit = Launcher._unit

    def noting(self: Launcher, kernel: Any) -> Any:
        found.append(kernel)
        return unit(self, kernel)

    monkeypatch.setattr(Launcher, "_unit", noting)
    return found


def numbers(*size: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(size))
    return (torch.randn(*size, generator=generator) / 4).to(dtype).to(DEVICE)


def check(fn: Callable[..., Any], *args: torch.Tensor, **options: Any) -> None:
    """As float64 says, as exactly as eager."""
    found = jitney.compile(fn, backend="triton_gpu", options={"gemm": "triton", **options})(*args)
    truth = fn(*(a.double() if a.is_floating_point() else a for a in args))
    theirs = fn(*args)
    for a, b, c in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, theirs, truth)), strict=True):
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
        torch.testing.assert_close(a, b)
        assert (a - c).norm() <= 2 * (b - c).norm() + 1e-3 * c.norm()


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "alone": (lambda a, b: a @ b, ((40, 24), (24, 56))),
    "the last product of a layer": (lambda a, b, c: torch.addmm(c, a, b), ((40, 24), (24, 56), (56,))),
    "an activation": (lambda a, b: F.gelu(a @ b), ((33, 17), (17, 70))),
    "bias, activation, residual": (
        lambda x, w, b, r: F.silu(F.linear(x, w, b)) * 2 + r,
        ((2, 20, 16), (48, 16), (48,), (2, 20, 48)),
    ),
    "turned matrices": (lambda a, b: (a.t() @ b.t()).relu(), ((24, 40), (56, 24))),
    "a batch": (lambda a, b, c: torch.bmm(a, b).tanh() + c, ((3, 20, 24), (3, 24, 18), (18,))),
    "two results": (lambda a, b: ((a @ b).exp(), (a @ b).exp().sin()), ((20, 24), (24, 20))),
    "cut in heads": (lambda a, b: (a @ b).view(4, 5, 2, 9).transpose(1, 2) * 2, ((20, 24), (24, 18))),
    "many tiles": (lambda a, b: (a @ b).relu(), ((300, 20), (20, 150))),
    "a vector": (lambda a, b: (a @ b).relu(), ((1, 24), (24, 40))),
    "a column": (lambda a, b: (a @ b).relu(), ((33, 24), (24, 1))),
    "an outer product": (lambda a, b: (a @ b).relu(), ((33, 1), (1, 40))),
    "a number": (lambda a, b: (a @ b).relu(), ((1, 1), (1, 15))),
    "rows that are one": (lambda a, b: (a.expand(33, 24) @ b).relu(), ((1, 24), (24, 40))),
    "columns that are one": (lambda a, b: (a @ b.expand(24, 40)).relu(), ((33, 24), (24, 1))),
    "a batch of one matrix": (lambda a, b: (a.expand(3, 20, 24) @ b).relu(), ((20, 24), (3, 24, 1))),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_are_as_exact_as_eagers(name: str, dtype: torch.dtype, kernels: list[Any]) -> None:
    fn, sizes = PROGRAMS[name]
    check(fn, *(numbers(*size, dtype=dtype) for size in sizes))
    is_sum = DEVICE == products.DEVICE and sizes[0][-1] <= products.FEW
    assert is_sum or any(matrix_product_of(kernel) for kernel in kernels)


def test_a_layer_and_what_follows_are_one_kernel(kernels: list[Any]) -> None:
    fn, sizes = PROGRAMS["bias, activation, residual"]
    check(fn, *(numbers(*size) for size in sizes))
    (kernel,) = kernels
    assert matrix_product_of(kernel) is not None


def test_training(kernels: list[Any]) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.Linear(40, 16)).bfloat16().to(DEVICE)
    x = numbers(32, 24).requires_grad_()

    def gradients(fn: Any) -> list[torch.Tensor]:
        loss = fn(x).float().square().sum()
        return [loss, *torch.autograd.grad(loss, [x, *model.parameters()])]

    wanted = gradients(model)
    found = gradients(jitney.compile(model, backend="triton_gpu", options={"gemm": "triton"}))
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
    assert sum(matrix_product_of(kernel) is not None for kernel in kernels) >= 4


UNJOINED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "two readers": (lambda a, b: ((a @ b).relu(), (a @ b).sum(0)), ((20, 24), (24, 20))),
    "a reader that is an output too": (lambda a, b: (lambda p: (p, p.relu()))(a @ b), ((20, 24), (24, 20))),
    "a row of it": (lambda a, b: (a @ b).softmax(-1), ((20, 24), (24, 40))),
    "read in another order": (lambda a, b: ((a @ b).t() * 2).contiguous() + (a @ b), ((24, 24), (24, 24))),
    "read in part": (lambda a, b: (a @ b)[:5] * 2, ((20, 24), (24, 20))),
}


@pytest.mark.parametrize("name", UNJOINED)
def test_what_reads_it_otherwise_stays_beside_it(name: str) -> None:
    fn, sizes = UNJOINED[name]
    check(fn, *(numbers(*size) for size in sizes))


def test_an_operand_that_is_written_before_its_reader_runs() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = a @ b
        a.mul_(3)
        return product.relu() + a

    sides = []
    for run in (fn, jitney.compile(fn, backend="triton_gpu", options={"gemm": "triton"})):
        a, b = numbers(24, 24), numbers(24, 25)[:, 1:]
        sides.append((run(a, b), a))
    torch.testing.assert_close(sides[1], sides[0])


def test_other_dtypes_and_symbolic_sizes_are_torchs(kernels: list[Any]) -> None:
    x, w = torch.randn(8, 16, device=DEVICE), torch.randn(16, 12, device=DEVICE)
    compiled = jitney.compile(lambda x, w: (x @ w).relu(), backend="triton_gpu", options={"gemm": "triton"})
    torch.testing.assert_close(compiled(x, w), (x @ w).relu())
    halves = jitney.compile(lambda x, w: (x @ w).relu(), backend="triton_gpu", dynamic=True, options={"gemm": "triton"})
    for n in (5, 9):
        x = numbers(n, 16)
        torch.testing.assert_close(halves(x, w.bfloat16()), (x @ w.bfloat16()).relu())
    assert not any(matrix_product_of(kernel) for kernel in kernels)


def by_hand(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Rows of one by rows of the other, as sums in float32."""
    return (x.float() * y.float()).sum(-1)


def below(n: int) -> torch.Tensor:
    return torch.arange(n, device=DEVICE)


BY_HAND: dict[str, tuple[Callable[..., Any], bool]] = {
    "plain": (lambda a, b: by_hand(a[:, None], b[None]), True),
    "with edges": (lambda a, b: by_hand(F.pad(a, (2, 2))[:, None], F.pad(b, (1, 3))[None]), True),
    "a triangle": (
        lambda a, b: by_hand(torch.where(below(32)[:, None] <= below(32), a[:, None], 0), b[None]),
        False,
    ),
    "scaled by its row": (lambda a, b: by_hand(a[:, None], b[None] * below(32)[:, None, None].to(b.dtype)), False),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_sums_are_products_unless_a_factor_depends_on_both_places(name: str, kernels: list[Any]) -> None:
    """Positions count: with blocks of one size such a kernel would compile, and be wrong."""
    fn, is_product = BY_HAND[name]
    a, b = numbers(32, 32), numbers(32, 32) / 2
    torch.testing.assert_close(jitney.compile(fn, backend="triton_gpu")(a, b), fn(a, b), rtol=1e-4, atol=1e-4)
    assert any(matrix_product_of(kernel) for kernel in kernels) is is_product


class Wide(Clock):
    """Notes whether what it measures counts in 64 bits."""

    def __init__(self) -> None:
        super().__init__(2, theirs=0.1)
        self.found: set[bool] = set()

    def codes(self, codes: Sequence[Code], rooms: Mapping[str, Room]) -> list[float | None]:
        self.found |= {f.wide for code in codes for f in code.functions}
        return super().codes(codes, rooms)

    def operator(self, call: Extern, codes: Sequence[Code], rooms: Mapping[str, Room]) -> float | None:
        self.found |= {f.wide for code in codes for f in code.functions}
        return super().operator(call, codes, rooms)


@pytest.mark.parametrize(("most", "wide"), [(32 * 40 - 1, True), (32 * 40, False)])
def test_what_is_measured_counts_as_what_runs(most: int, wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 32 bits a kernel over more than these count would write where it must not."""
    clock = Wide()
    monkeypatch.setattr(index_width, "NARROW", most)
    monkeypatch.setattr(compiler, "tuner_of", lambda *args: Tuner(clock, "a device", None, "test"))
    a, b = numbers(32, 24), numbers(24, 40)
    fn = jitney.compile(lambda a, b: (a @ b).relu(), backend="triton_gpu", mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(fn(a, b), (a @ b).relu())
    assert clock.found == {wide}


@pytest.mark.parametrize(("theirs", "ours"), [(0.4, False), (0.6, True), (None, False)])
def test_the_faster_one_is_taken_under_max_autotune(
    theirs: float | None, ours: bool, kernels: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tuner = Tuner(Clock(2, theirs=theirs), "a device", None, "test")
    monkeypatch.setattr(compiler, "tuner_of", lambda *args: tuner)
    a, b = numbers(40, 24), numbers(24, 56)
    fn = jitney.compile(lambda a, b: (a @ b).relu(), backend="triton_gpu", mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(fn(a, b), (a @ b).relu())
    assert any(matrix_product_of(kernel) for kernel in kernels) is ours


def eight_bits(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Weights as a layer has them that was made smaller."""
    return F.linear(x, w.to(x.dtype)) * scale


def four_bits(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Two weights in a byte."""
    halves = torch.stack(((w & 15).to(torch.int8) - 8, (w >> 4).to(torch.int8) - 8), dim=-1)
    return F.linear(x, halves.flatten(1).to(x.dtype) * scale[:, None])


def several(x: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
    return [F.linear(x, w) for w in weights]


def read_between(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    first = x @ a
    return [first, x @ (b + first[:1].sum())]


def written_between(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    first = x @ a
    x.mul_(2)
    return [first, x @ b, x]


W, N = (320, 256), (256, 320)
# Programs of few rows, what they are given, and how many kernels there are; None: it does not matter.
NARROW: dict[str, tuple[Callable[..., Any], list[Any], int | None]] = {
    "a layer": (lambda x, w, b: F.silu(F.linear(x, w, b)), [(5, 256), W, (320,)], 1),
    "two rows": (lambda x, w: x @ w, [(2, 256), N], 1),
    "sixteen rows": (lambda x, w: x @ w, [(16, 256), N], 1),
    "few columns": (lambda w, x: (w @ x).relu(), [W, (256, 7)], 1),
    "uneven depth": (lambda x, w: x @ w, [(3, 263), (263, 257)], 1),
    "queries, keys and values": (several, [(4, 256), W, W, W], 1),
    "keys of fewer heads": (several, [(4, 256), (512, 256), W, W], 2),
    "four of one matrix": (several, [(4, 256), W, W, W, W], 2),
    "a gate": (lambda x, a, b: F.silu(x @ a) * (x @ b), [(4, 256), N, N], 1),
    "one that is read before the other": (lambda x, a, b: (F.silu(x @ a) * 2, x @ b), [(4, 256), N, N], 2),
    "a gate with biases": (
        lambda x, a, b, c, d: F.silu(torch.addmm(c, x, a)) * torch.addmm(d, x, b),
        [(4, 256), N, N, (320,), (320,)],
        1,
    ),
    "one reads another": (read_between, [(4, 256), N, N], None),
    "rows that change between": (written_between, [(4, 256), N, N], None),
    "eight bits": (eight_bits, [(4, 256), (320, 256, torch.int8), (320,)], 1),
    "keys and values of eight bits": (
        lambda x, *w: [F.linear(x, m.to(x.dtype)) for m in w],
        [(4, 256), *[(320, 256, torch.int8)] * 3],
        1,
    ),
    "eight bits that are kept": (
        lambda x, w: (F.linear(x, w.to(x.dtype)), w.to(x.dtype)),
        [(4, 256), (320, 256, torch.int8)],
        None,
    ),
    "a bias that is a row of a computed matrix": (
        lambda x, codes, table: (lambda w: torch.addmm(w[0], x, w))(table[codes.long()]),
        [(4, 256), (256, 256, torch.uint8), (256,)],
        None,
    ),
    "four bits": (four_bits, [(4, 512), (320, 256, torch.uint8), (320,)], 1),
    "a turned matrix that is computed": (lambda x, w: x @ (w * 2).t(), [(4, 256), W], None),
    "a row of what is computed": (lambda x, w: x @ (w * 2)[:256], [(4, 256), (300, 320)], None),
}


def given_for(sizes: list[Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Arguments of these sizes; small integers where another dtype is named."""
    made = []
    for size in sizes:
        if isinstance(size[-1], torch.dtype):
            bound = 127 if size[-1] is torch.int8 else 255
            made.append(torch.randint(-127 if bound == 127 else 0, bound, size[:-1], dtype=size[-1], device=DEVICE))
        else:
            made.append(numbers(*size, dtype=dtype))
    return made


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_products_of_few_rows_are_kernels_with_what_is_around_them(
    name: str, dtype: torch.dtype, kernels: list[Any]
) -> None:
    fn, sizes, count = NARROW[name]
    given = given_for(sizes, dtype)
    sides = []
    for run in (jitney.compile(fn, backend="triton_gpu", fullgraph=True), fn):
        args = [a.clone() for a in given]
        sides.append((run(*args), args))
    torch.testing.assert_close(sides[0], sides[1], rtol=2e-2, atol=2e-2)
    assert any(matrix_product_of(kernel) for kernel in kernels)
    assert count is None or len(kernels) == count


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        (((17, 256), N), torch.bfloat16),
        (((4, 64), (64, 320)), torch.bfloat16),  # little to read
        (((4, 256), (256, 64)), torch.bfloat16),
        (((4, 256), N), torch.float32),
    ],
)
def test_other_products_are_torchs_unless_asked_for(
    sizes: tuple[tuple[int, int], ...], dtype: torch.dtype, kernels: list[Any]
) -> None:
    a, b = (numbers(*size, dtype=dtype) for size in sizes)
    torch.testing.assert_close(jitney.compile(lambda a, b: a @ b, backend="triton_gpu")(a, b), a @ b)
    aten = jitney.compile(lambda a, b: a @ b, backend="triton_gpu", options={"gemm": "aten"})
    a, b = numbers(4, 256), numbers(256, 320)
    torch.testing.assert_close(aten(a, b), a @ b)
    assert not any(matrix_product_of(kernel) for kernel in kernels)


def test_a_batch_by_one_matrix_is_one_product(kernels: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``F.linear`` has it of rows that do not follow each other."""
    monkeypatch.setattr(products, "DEVICE", DEVICE)
    x, w = numbers(4, 2, 300, 160).transpose(1, 2)[:, :1].flatten(2), numbers(256, 320)
    fn = jitney.compile(lambda x, w: F.linear(x, w), backend="triton_gpu", fullgraph=True)
    torch.testing.assert_close(fn(x, w), F.linear(x, w))
    assert sum(matrix_product_of(kernel) is not None for kernel in kernels) == 1


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16], ids=str)
@pytest.mark.parametrize("to", [torch.float32, *HALVES], ids=str)
def test_small_integers_become_numbers_exactly(dtype: torch.dtype, to: torch.dtype) -> None:
    bounds = torch.iinfo(dtype)
    every = torch.arange(bounds.min, bounds.max + 1, device=DEVICE).to(dtype)
    assert torch.equal(jitney.compile(lambda x: x.to(to), backend="triton_gpu", fullgraph=True)(every), every.to(to))
