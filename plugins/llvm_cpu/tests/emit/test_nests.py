"""Loops of every shape beside the reference: lengths around a vector's, strides, offsets, reductions, tails."""

from __future__ import annotations

import mmap

import pytest
import torch
from kernel_reference import run_kernel

import jitney
from jitney.errors import BackendFailed
from jitney_lowering.index import Index, Size, Var, index, min_
from jitney_lowering.ir import (
    ALL,
    Accumulate,
    Kernel,
    Nest,
    Partial,
    Reduce,
    Scan,
    Scratch,
    Store,
    apply,
    constant,
    indirect,
    load,
    position,
    ref,
)

F = torch.float32
DTYPES = sorted(ALL, key=str)
LENGTHS = [*range(26), 31, 32, 33, 63, 64, 65, 127, 128, 129, 200]


def data(n: int, dtype: torch.dtype = F, seed: int = 0) -> torch.Tensor:
    """Numbers of both signs; never more than a hundred, so that sums of integers stay small."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, (n,), generator=generator).bool()
    if dtype.is_floating_point:
        return torch.randn(n, generator=generator, dtype=torch.float64).to(dtype)
    low = 0 if dtype is torch.uint8 else -100
    return torch.randint(low, 100, (n,), generator=generator).to(dtype)


def check(compiled, kernel, buffers, sizes=None, *, rtol=0.0, atol=0.0, threads=(1, 2), **options):
    """The emitted kernel and the reference leave the same in all buffers."""
    sizes = sizes or {}
    expected = {name: t.clone() for name, t in buffers.items()}
    run_kernel(kernel, expected, sizes)
    function = compiled(kernel, sizes=list(sizes), **options)
    for count in threads:
        found = {name: t.clone() for name, t in buffers.items()}
        function(found, list(sizes.values()), threads=count)
        for name in buffers:
            torch.testing.assert_close(found[name], expected[name], rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_loops_of_every_length(compiled, dtype):
    kernels, buffers = [], {}
    for n in LENGTHS:
        i = Var("i", n)
        value = apply("maximum", load(f"a{n}", index(i), dtype), load(f"b{n}", index(i), dtype))
        buffers |= {f"a{n}": data(n, dtype), f"b{n}": data(n, dtype, 1), f"out{n}": torch.zeros(n + 1, dtype=dtype)}
        dtypes = {name: dtype for name in (f"a{n}", f"b{n}", f"out{n}")}
        kernels.append(Kernel(f"k{n}", (), (Nest((i,), (Store(f"out{n}", index(i), value),)),), dtypes))
    compiled(*kernels)(buffers)
    for n in LENGTHS:
        assert buffers[f"out{n}"][:n].tolist() == torch.maximum(buffers[f"a{n}"], buffers[f"b{n}"]).tolist()
        assert buffers[f"out{n}"][n].item() == 0, "written past the end"


@pytest.mark.parametrize("dtype", [F, torch.int8, torch.bfloat16, torch.float64, torch.bool], ids=str)
def test_one_module_for_all_sizes(compiled, dtype):
    n = Size("s0", low=0)
    i = Var("i", n)
    store = Store("out", index(i), load("a", index(i), dtype))
    function = compiled(Kernel("k", (), (Nest((i,), (store,)),), {"a": dtype, "out": dtype}), sizes=[n])
    for length in LENGTHS:
        a, out = data(length, dtype), torch.zeros(length + 1, dtype=dtype)
        for threads in (1, 2):
            function({"a": a, "out": out}, [length], threads=threads)
            assert out[:length].tolist() == a.tolist()
            assert out[length].item() == 0


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [F, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8], ids=str)
def test_reductions_of_rows_of_every_length(compiled, dtype, kind):
    kernels, buffers = [], {}
    result = torch.int64 if kind.startswith("arg") else dtype
    for n in [1, *LENGTHS[2:]]:
        i, j = Var("i", 3), Var("j", n)
        value = load(f"a{n}", i * n + j, dtype)
        at = index(j) if kind.startswith("arg") else None
        nests = (Nest((j,), (Reduce("r", kind, value, at),)), Nest((), (Store(f"o{n}", index(i), ref("r", result)),)))
        kernels.append(Kernel(f"k{n}", (i,), nests, {f"a{n}": dtype, f"o{n}": result}))
        a = data(3 * n, dtype)
        if kind == "prod":
            a = a.clamp(-1, 1) if dtype is not torch.uint8 else a.clamp(0, 1)
        buffers |= {f"a{n}": a, f"o{n}": torch.zeros(3, dtype=result)}
    copies = {name: t.clone() for name, t in buffers.items()}
    compiled(*kernels)(buffers)
    for kernel in kernels:
        run_kernel(kernel, copies)
    for name in copies:
        slack = 0.0 if not dtype.is_floating_point else {F: 3e-6, torch.float64: 1e-14}.get(dtype, 1e-2)
        torch.testing.assert_close(buffers[name], copies[name], rtol=slack, atol=slack)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "logsumexp"])
@pytest.mark.parametrize("dtype", [torch.float64, F, torch.int64, torch.int32], ids=str)
def test_scans_of_rows_of_every_length(compiled, dtype, kind):
    if kind == "logsumexp" and not dtype.is_floating_point:
        pytest.skip("of floats")
    kernels, buffers = [], {}
    for n in [1, *LENGTHS[2:]]:
        i, j = Var("i", 3), Var("j", n)
        scan = Scan("c", kind, load(f"a{n}", i * n + j, dtype))
        store = Store(f"o{n}", i * (n + 1) + j, ref("c", dtype))
        kernels.append(Kernel(f"k{n}", (i,), (Nest((j,), (scan, store)),), {f"a{n}": dtype, f"o{n}": dtype}))
        a = data(3 * n, dtype).clamp(-1, 1) if kind == "prod" else data(3 * n, dtype)
        buffers |= {f"a{n}": a, f"o{n}": torch.full((3 * n + 3,), 7, dtype=dtype)}
    expected = {name: t.clone() for name, t in buffers.items()}
    for kernel in kernels:
        run_kernel(kernel, expected)
    compiled(*kernels)(buffers)
    slack = {F: 1e-5, torch.float64: 1e-13}.get(dtype, 0.0)
    for name in expected:  # the last element of each row is nobody's
        torch.testing.assert_close(buffers[name], expected[name], rtol=slack, atol=slack)


@pytest.mark.parametrize("target", [F, torch.bfloat16, torch.float16, torch.int8], ids=str)
def test_a_scan_over_two_loops_beside_a_sum_is_converted(compiled, target):
    i, j, k = Var("i", 2), Var("j", 5), Var("k", 13)
    wide = apply("cast", load("a", i * 65 + j * 13 + k, F), dtype=torch.float64)
    scan = Scan("c", "sum", wide)
    store = Store("o", i * 65 + j * 13 + k, apply("cast", ref("c", torch.float64), dtype=target))
    total = Reduce("r", "sum", load("a", i * 65 + j * 13 + k, F))
    nests = (Nest((j, k), (scan, store, total)), Nest((), (Store("t", index(i), ref("r", F)),)))
    kernel = Kernel("k", (i,), nests, {"a": F, "o": target, "t": F})
    kernel.verify()
    buffers = {"a": data(130), "o": torch.zeros(130, dtype=target), "t": torch.zeros(2)}
    check(compiled, kernel, buffers, rtol=1e-5, atol=1e-5)


def test_a_sum_that_a_scan_reaches_keeps_infinities_and_nans_where_they_begin(compiled):
    i, j = Var("i", 1), Var("j", 20)
    statements = (Scan("c", "sum", load("a", index(j), F)), Store("o", index(j), ref("c", F)))
    kernel = Kernel("k", (i,), (Nest((j,), statements),), {"a": F, "o": F})
    a = torch.arange(20.0)
    a[6], a[13] = float("inf"), float("-inf")
    check(compiled, kernel, {"a": a, "o": torch.zeros(20)})


def test_a_scan_needs_rows():
    j = Var("j", 4)
    kernel = Kernel("k", (), (Nest((j,), (Scan("c", "sum", load("a", index(j), F)),)),), {"a": F})
    with pytest.raises(BackendFailed, match="no scan of a row"):
        kernel.verify()


@pytest.mark.parametrize("kind", ["any", "all", "max", "min", "argmax", "argmin"])
def test_reductions_of_bools(compiled, kind):
    for n in (1, 5, 40, 65):
        j = Var("j", n)
        at = index(j) if kind.startswith("arg") else None
        result = torch.int64 if at is not None else torch.bool
        nest = Nest((j,), (Reduce("r", kind, load("a", index(j), torch.bool), at),))
        finish = Nest((), (Store("o", index(0), ref("r", result)),))
        kernel = Kernel("k", (), (nest,), {"a": torch.bool, "o": result}, (finish,))
        function = compiled(kernel)
        for a in (torch.zeros(n).bool(), torch.ones(n).bool(), data(n, torch.bool), torch.arange(n) == n - 1):
            found, expected = torch.zeros(1, dtype=result), torch.zeros(1, dtype=result)
            function({"a": a, "o": found})
            run_kernel(kernel, {"a": a, "o": expected})
            assert found.item() == expected.item()


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize("dtype", [F, torch.int32, torch.bool], ids=str)
def test_a_reduction_of_nothing_is_the_identity(compiled, kind, dtype):
    if (kind in ("any", "all")) != (dtype is torch.bool):
        pytest.skip("no such reduction")
    n = Size("s0", low=0)
    for size in (index(0), n):
        i, j = Var("i", 2), Var("j", size)
        nests = (
            Nest((j,), (Reduce("r", kind, load("a", index(j), dtype)),)),
            Nest((), (Store("o", index(i), ref("r", dtype)),)),
        )
        kernel = Kernel("k", (i,), nests, {"a": dtype, "o": dtype})
        check(compiled, kernel, {"a": data(1, dtype), "o": data(2, dtype)}, {n: 0})


def test_nan_wins_and_the_first_extreme_counts(compiled):
    nan, inf = float("nan"), float("inf")
    rows = [
        [1.0, 5.0, 5.0, 2.0] * 5,
        [1.0] * 9 + [nan] + [7.0] * 5 + [nan] * 5,
        [-inf] * 20,
        [inf] * 20,
        [-0.0, 0.0] * 10,
        [3.0] * 19 + [nan],
    ]
    a = torch.tensor(rows)
    m, n = a.shape
    i, j = Var("i", m), Var("j", n)
    x = load("a", i * n + j, F)
    kinds = ("max", "min", "argmax", "argmin")
    reduces = tuple(Reduce(k, k, x, index(j) if k.startswith("arg") else None) for k in kinds)
    stores = tuple(Store(f"o_{k}", index(i), ref(k, torch.int64 if k.startswith("arg") else F)) for k in kinds)
    dtypes = {"a": F} | {f"o_{k}": torch.int64 if k.startswith("arg") else F for k in kinds}
    kernel = Kernel("k", (i,), (Nest((j,), reduces), Nest((), stores)), dtypes)
    buffers = {"a": a.flatten()} | {name: torch.zeros(m, dtype=d) for name, d in dtypes.items() if name != "a"}
    compiled(kernel)(buffers)
    torch.testing.assert_close(buffers["o_max"], a.amax(1), equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(buffers["o_min"], a.amin(1), equal_nan=True, rtol=0, atol=0)
    assert buffers["o_argmax"].tolist() == a.argmax(1).tolist()
    assert buffers["o_argmin"].tolist() == a.argmin(1).tolist()


@pytest.mark.parametrize("n", [1, 7, 16, 67, 300])
def test_reductions_over_two_loops_and_over_all_threads(compiled, n):
    m = 9
    i, j = Var("i", m), Var("j", n)
    x = load("a", i * n + j, torch.float64)
    nest = Nest(
        (i, j), (Reduce("s", "sum", x), Reduce("p", "argmax", x, i * n + j), Store("b", i * n + j, apply("neg", x)))
    )
    finish = Nest((), (Store("o", index(0), ref("s", torch.float64)), Store("q", index(0), ref("p", torch.int64))))
    k = Var("k", n)
    scaled = apply("mul", load("a", index(k), torch.float64), ref("s", torch.float64))
    kernel = Kernel(
        "k",
        (),
        (nest,),
        {"a": torch.float64, "b": torch.float64, "o": torch.float64, "q": torch.int64, "c": torch.float64},
        (finish, Nest((k,), (Store("c", index(k), scaled),))),
    )
    f64 = torch.zeros(1, dtype=torch.float64)
    buffers = {
        "a": data(m * n, torch.float64),
        "b": torch.zeros(m * n, dtype=torch.float64),
        "o": f64,
        "q": torch.zeros(1, dtype=torch.int64),
        "c": torch.zeros(n, dtype=torch.float64),
    }
    check(compiled, kernel, buffers, rtol=1e-13, atol=1e-13)


def test_a_sum_in_each_thread_when_threads_have_nothing_to_do(compiled):
    i = Var("i", 3)
    kernel = Kernel(
        "k",
        (),
        (Nest((i,), (Reduce("s", "sum", load("a", index(i), F)),)),),
        {"a": F, "o": F},
        (Nest((), (Store("o", index(0), ref("s", F)),)),),
    )
    check(compiled, kernel, {"a": data(3), "o": torch.zeros(1)}, rtol=1e-6, threads=(1, 2, 5))


def test_a_long_sum_is_as_exact_as_torch_s(compiled):
    n = 3_000_001
    a = torch.rand(n, generator=torch.Generator().manual_seed(1)) + 0.1
    exact = a.double().sum().item()
    i = Var("i", n)
    s = Reduce("s", "sum", load("a", index(i), F))
    finish = (Nest((), (Store("o", index(0), ref("s", F)),)),)
    out = torch.zeros(1)
    function = compiled(Kernel("k", (), (Nest((i,), (s,)),), {"a": F, "o": F}, finish))
    for threads in (1, 2):
        function({"a": a, "o": out}, threads=threads)
        assert abs(out.item() - exact) <= max(4 * abs(a.sum().item() - exact), 2e-7 * exact)


@pytest.mark.parametrize("shape", [(30_000, 8), (2, 100_000), (300, 300)])
def test_a_long_sum_over_two_loops_is_as_exact_as_torch_s(compiled, shape):
    a = torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.1
    exact = a.double().sum().item()
    one, i, j = Var("one", 2), Var("i", shape[0]), Var("j", shape[1])
    nests = (
        Nest((i, j), (Reduce("s", "sum", load("a", i * shape[1] + j, F)),)),
        Nest((), (Store("o", index(one), ref("s", F)),)),
    )
    out = torch.zeros(2)
    compiled(Kernel("k", (one,), nests, {"a": F, "o": F}))({"a": a, "o": out})
    assert out[0].item() == out[1].item()
    assert abs(out[0].item() - exact) <= max(4 * abs(a.sum().item() - exact), 2e-7 * exact)


# Where elements are


@pytest.mark.parametrize("stride", [0, 1, 2, 3, 5, -1, -2])
@pytest.mark.parametrize("dtype", [F, torch.int8, torch.float16, torch.bool], ids=str)
def test_loads_and_stores_with_strides_and_offsets(compiled, stride, dtype):
    for n in (3, 8, 21, 64):
        i = Var("i", n)
        start = 2 + (0 if stride >= 0 else -stride * (n - 1))
        source = load("a", i * stride + start, dtype)
        stores = [Store("b", index(i) + 1, source)]
        if stride:
            stores.append(Store("c", i * stride + start, load("a", index(i), dtype)))
        kernel = Kernel("k", (), (Nest((i,), tuple(stores)),), {"a": dtype, "b": dtype, "c": dtype})
        buffers = {"a": data(6 * n + 8, dtype), "b": data(n + 2, dtype, 1), "c": data(6 * n + 8, dtype, 2)}
        check(compiled, kernel, buffers)


@pytest.mark.parametrize("n", [4, 8, 19])
def test_symbolic_strides(compiled, n):
    s = Size("s0")
    i, j = Var("i", s), Var("j", n)
    kernel = Kernel(
        "transpose", (j,), (Nest((i,), (Store("b", j * s + i, load("a", i * n + j, F)),)),), {"a": F, "b": F}
    )
    for m in (2, 8, 37):
        check(compiled, kernel, {"a": data(m * n), "b": torch.zeros(m * n)}, {s: m})
    kernel = Kernel(
        "transpose", (), (Nest((j, i), (Store("b", i * n + j, load("a", j * s + i, F)),)),), {"a": F, "b": F}
    )
    for m in (2, 8, 37):
        check(compiled, kernel, {"a": data(m * n), "b": torch.zeros(m * n)}, {s: m})


@pytest.mark.parametrize("n", [5, 24, 50])
@pytest.mark.parametrize("indices", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_indices_that_are_loaded(compiled, n, indices):
    rows, width = 7, 6
    i, j = Var("i", n), Var("j", width)
    at = indirect(load("at", index(i), indices), 0, rows - 1)
    embedding = Store("out", i * width + j, load("table", at[0] * width + j, F, (at,)))
    by_row = Kernel("rows", (i,), (Nest((j,), (embedding,)),), {"at": indices, "table": F, "out": F})
    by_lane = Kernel("lanes", (), (Nest((j, i), (embedding,)),), {"at": indices, "table": F, "out": F})
    buffers = {
        "at": torch.randint(0, rows, (n,), generator=torch.Generator().manual_seed(0)).to(indices),
        "table": data(rows * width),
        "out": torch.zeros(n * width),
    }
    check(compiled, by_row, buffers)
    check(compiled, by_lane, buffers)


def divided(i: Var, n: int) -> list[Index]:
    """Indices in which a variable is divided, some of them by whole vectors."""
    few = [i // 3, i % 5, (i // 4) * 4 + i % 4, (n - 1 - i) // 2, (i + 3) % 8, (i - 4) // 3 + 2, min_(i, n // 2)]
    vectors = [i // 16, i % 32, (i // 32) * 3 + i % 32, (i + 8) % 16, (i + 64) // 32, (i // 8) % 4, (i % 64) // 16 + i]
    return [*few, (i - 7) % 6, *vectors, (i // 32) * 32 + 31 - i % 32, (i * 2) // 32, (i * 2) % 32, (i // 2) % 16]


@pytest.mark.parametrize("n", [2, 8, 33, 100, 256])
def test_indices_with_divisions(compiled, n):
    i = Var("i", n)
    stores = [Store(f"o{k}", index(i), load("a", x, F)) for k, x in enumerate(divided(i, n))]
    stores += [Store(f"p{k}", index(i), position(x, torch.int64)) for k, x in enumerate(divided(i, n))]
    stores += [Store(f"q{k}", index(i), position(x, F)) for k, x in enumerate(divided(i, n))]
    dtypes = {s.buffer: s.value.dtype for s in stores}
    kernel = Kernel("k", (), (Nest((i,), tuple(stores)),), {"a": F} | dtypes)
    check(compiled, kernel, {"a": data(2 * n + 40)} | {name: torch.zeros(n, dtype=d) for name, d in dtypes.items()})


def test_scattered_stores(compiled):
    for n in (6, 16, 45):
        i = Var("i", n)
        stores = (Store("b", i % 3 * n + i // 3, load("a", index(i), F)), Store("c", i * 3 + 1, load("a", index(i), F)))
        kernel = Kernel("k", (), (Nest((i,), stores),), {"a": F, "b": F, "c": F})
        check(compiled, kernel, {"a": data(n), "b": torch.zeros(3 * n), "c": torch.zeros(3 * n)})


def test_places_beyond_two_to_the_thirty_first(compiled, tmp_path):
    n, step = 16, 2**29 + 1
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(n * step)  # takes no space but for the pages written to
        memory = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.int8)
    memory[::step] = torch.arange(n, dtype=torch.int8)
    i, s, one = Var("i", n), Size("s0"), Var("one", 2)
    for stride in (index(step), s):
        element = load("a", i * stride, torch.int8)
        at = indirect(load("at", index(i), torch.int32), 0, n)
        looked_up = load("a", at[0] * stride, torch.int8, (at,))
        stores = tuple(Store(f"b{k}", index(i), x) for k, x in enumerate((element, looked_up, apply("neg", element))))
        dtypes = {name: torch.int8 for name in ("a", "b0", "b1", "b2")} | {"at": torch.int32}
        vectors = Kernel("vectors", (one,), (Nest((i,), stores),), dtypes)
        alone = Kernel("alone", (i,), (Nest((), stores),), dtypes)
        for kernel in (vectors, alone):
            buffers = {f"b{k}": torch.zeros(n, dtype=torch.int8) for k in range(3)}
            places = torch.arange(n, dtype=torch.int32).flip(0)
            compiled(kernel, sizes=[s])(buffers | {"a": memory, "at": places}, [step])
            assert buffers["b0"].tolist() == list(range(n))
            assert buffers["b1"].tolist() == list(range(n))[::-1]
            assert buffers["b2"].tolist() == [-k for k in range(n)]


# In place, and order


def test_a_kernel_may_write_what_it_reads(compiled):
    n = 77
    i = Var("i", n)
    x = load("a", index(i), F)
    kernel = Kernel(
        "k", (), (Nest((i,), (Store("a", index(i), apply("mul", x, x)), Store("b", index(i), x))),), {"a": F, "b": F}
    )
    a = data(n)
    same = a.clone()
    check(compiled, kernel, {"a": a, "b": torch.zeros(n)})
    compiled(kernel)({"a": same, "b": same})  # both names are one memory: the later store stays
    assert torch.equal(same, a)


def test_a_nest_reads_what_the_nest_before_it_wrote(compiled):
    m, n = 4, 21
    i, j = Var("i", m), Var("j", n)
    x = load("a", i * n + j, F)
    y = load("b", i * n + (n - 1 - j), F)
    first = load("b", i * n, F)
    nests = (
        Nest((j,), (Store("b", i * n + j, apply("add", x, constant(1.0, F))),)),
        Nest((j,), (Store("c", i * n + j, apply("add", y, first)),)),
    )
    kernel = Kernel("k", (i,), nests, {"a": F, "b": F, "c": F})
    check(compiled, kernel, {"a": data(m * n), "b": torch.zeros(m * n), "c": torch.zeros(m * n)})


# Scratch and partials


@pytest.mark.parametrize("extent", [13, 40_000])
def test_scratch_of_every_iteration(compiled, extent):
    m = 5
    i, j = Var("i", m), Var("j", extent)
    x = load("a", i * extent + j, F)
    nests = (
        Nest((j,), (Store("t", index(j), apply("mul", x, x)), Reduce("s", "sum", apply("abs", x)))),
        Nest((j,), (Store("b", i * extent + j, apply("add", load("t", extent - 1 - index(j), F), ref("s", F))),)),
    )
    kernel = Kernel("k", (i,), nests, {"a": F, "b": F}, scratch=(Scratch("t", F, index(extent)),))
    check(compiled, kernel, {"a": data(m * extent), "b": torch.zeros(m * extent)}, rtol=1e-5)


def test_scratch_of_a_symbolic_size(compiled):
    n = Size("s0")
    i, j = Var("i", 3), Var("j", n)
    nests = (
        Nest((j,), (Store("t", index(j), load("a", i * n + j, F)), Store("u", index(j), position(index(j))))),
        Nest(
            (j,),
            (Store("b", i * n + j, load("t", n - 1 - j, F)), Store("c", i * n + j, load("u", n - 1 - j, torch.int64))),
        ),
    )
    scratch = (Scratch("t", F, index(n)), Scratch("u", torch.int64, index(n)))
    kernel = Kernel("k", (i,), nests, {"a": F, "b": F, "c": torch.int64}, scratch=scratch)
    for size in (2, 9, 100):
        check(
            compiled,
            kernel,
            {"a": data(3 * size), "b": torch.zeros(3 * size), "c": torch.zeros(3 * size, dtype=torch.int64)},
            {n: size},
        )


@pytest.mark.parametrize("dtype", [F, torch.int64, torch.float16, torch.bool], ids=str)
@pytest.mark.parametrize("kind", ["sum", "max", "any"])
def test_partials_are_combined_over_the_threads(compiled, dtype, kind):
    if (kind == "any") != (dtype is torch.bool):
        pytest.skip("no such reduction")
    for m, n in ((6, 5), (3, 40), (50, 33)):
        i, j, k = Var("i", m), Var("j", n), Var("k", n)
        add = Accumulate("p", index(j), kind, load("a", i * n + j, dtype))
        finish = Nest((k,), (Store("o", index(k), load("p", index(k), dtype)),))
        kernel = Kernel(
            "columns", (i,), (Nest((j,), (add,)),), {"a": dtype, "o": dtype}, (finish,),
            partials=(Partial("p", dtype, index(n), kind),),
        )  # fmt: skip
        slack = {F: 1e-5, torch.float16: 1e-1}.get(dtype, 0.0)
        buffers = {"a": data(m * n, dtype), "o": torch.zeros(n, dtype=dtype)}
        check(compiled, kernel, buffers, rtol=slack, atol=slack, threads=(1, 2, 3))


def test_accumulating_to_one_place_in_the_innermost_loop(compiled):
    m, n = 6, 45
    i, r, j = Var("i", m), Var("r", 3), Var("j", n)
    x = load("a", (i * 3 + r) * n + j, F)
    clear = Nest((r,), (Store("t", index(r), constant(0.0, F)),))
    gather = Nest((r, j), (Accumulate("t", index(r), "sum", x), Accumulate("p", index(r), "max", x)))
    out = Nest((r,), (Store("o", i * 3 + r, load("t", index(r), F)),))
    finish = Nest((r,), (Store("q", index(r), load("p", index(r), F)),))
    kernel = Kernel(
        "k", (i,), (clear, gather, out), {"a": F, "o": F, "q": F}, (finish,),
        scratch=(Scratch("t", F, index(3)),), partials=(Partial("p", F, index(3), "max"),),
    )  # fmt: skip
    check(compiled, kernel, {"a": data(m * 3 * n), "o": torch.zeros(m * 3), "q": torch.zeros(3)}, rtol=1e-5, atol=1e-6)


def test_columns_accumulated_over_rows_in_scratch(compiled):
    m, rows, n = 3, 17, 21
    i, r, j = Var("i", m), Var("r", rows), Var("j", n)
    clear = Nest((j,), (Store("t", index(j), constant(0.0, F)),))
    add = Nest((r, j), (Accumulate("t", index(j), "sum", load("a", (i * rows + r) * n + j, F)),))
    out = Nest((j,), (Store("o", i * n + j, load("t", index(j), F)),))
    kernel = Kernel("k", (i,), (clear, add, out), {"a": F, "o": F}, scratch=(Scratch("t", F, index(n)),))
    check(compiled, kernel, {"a": data(m * rows * n), "o": torch.zeros(m * n)}, rtol=1e-5, atol=1e-6)


# Outer loops


def test_outer_loops_of_several_variables(compiled):
    sizes = (3, 4, 5)
    s = Size("s0")
    for last in (index(5), s):
        a, b, c = Var("a", sizes[0]), Var("b", sizes[1]), Var("c", last)
        j = Var("j", 11)
        place = ((a * 4 + b) * last + c) * 11 + j
        turned = ((c * 4 + b) * 3 + a) * 11 + j
        kernel = Kernel("k", (a, b, c), (Nest((j,), (Store("o", turned, load("x", place, F)),)),), {"x": F, "o": F})
        n = 3 * 4 * 5 * 11
        check(compiled, kernel, {"x": data(n), "o": torch.zeros(n)}, {s: 5}, threads=(1, 2, 7))


def test_an_empty_kernel_writes_nothing(compiled):
    i, j = Var("i", 0), Var("j", 5)
    x = load("a", i * 5 + j, F)
    outer = Kernel("k", (i,), (Nest((j,), (Store("b", i * 5 + j, x),)),), {"a": F, "b": F})
    inner = Kernel("k", (j,), (Nest((i,), (Store("b", i * 5 + j, x),)),), {"a": F, "b": F})
    none = Kernel("k", (), (Nest((i, j), (Store("b", i * 5 + j, x),)),), {"a": F, "b": F})
    for kernel in (outer, inner, none):
        check(compiled, kernel, {"a": torch.zeros(0), "b": torch.zeros(0)})


def test_a_kernel_of_one_element(compiled):
    kernel = Kernel(
        "k", (), (Nest((), (Store("b", index(0), apply("exp", load("a", index(0), F))),)),), {"a": F, "b": F}
    )
    check(compiled, kernel, {"a": data(1), "b": torch.zeros(1)}, rtol=1e-6)


def test_the_text_depends_on_the_kernel_alone(compiled):
    def made() -> Kernel:
        m, n = Var("m", 5), Var("n", 30)
        at = indirect(load("at", index(n), torch.int64), 0, 9)
        x = apply("add", load("a", m * 10 + at[0], F, (at,)), load("b", m * 30 + n // 2, F))
        return Kernel(
            "k", (m,), (Nest((n,), (Store("o", m * 30 + n, x),)),), {"a": F, "b": F, "o": F, "at": torch.int64}
        )

    assert compiled(made()).text == compiled(made()).text


@pytest.mark.parametrize("n", [3, 16, 70])
def test_long_columns_are_as_exact_as_torch_s(compiled, n):
    m = 60_000
    a = torch.rand((m, n), generator=torch.Generator().manual_seed(1)) + 0.1
    exact = a.double().sum(0)
    s = Size("s0")
    for rows in (index(m), s):
        i, j, k = Var("i", rows), Var("j", n), Var("k", n)
        add = Accumulate("p", index(j), "sum", load("a", i * n + j, F))
        finish = Nest((k,), (Store("o", index(k), load("p", index(k), F)),))
        partials = (Partial("p", F, index(n), "sum"), Partial("q", F, index(n), "max"))
        highest = Accumulate("q", index(j), "max", load("a", i * n + j, F))
        top = Nest((k,), (Store("t", index(k), load("q", index(k), F)),))
        buffers = {"a": F, "o": F, "t": F}
        kernel = Kernel("k", (i,), (Nest((j,), (add, highest)),), buffers, (finish, top), partials=partials)
        function = compiled(kernel, sizes=[s])
        for threads in (1, 2, 3):
            out, most = torch.zeros(n), torch.zeros(n)
            function({"a": a, "o": out, "t": most}, [m], threads)
            eager = (a.sum(0).double() - exact).abs().max()
            assert (out.double() - exact).abs().max() <= max(8 * eager, 3e-7 * exact.max())
            assert torch.equal(most, a.amax(0))


def ill_formed() -> dict[str, Kernel]:
    i, j = Var("i", 8), Var("j", 8)
    copy = Nest((i,), (Store("out", index(i), load("a", index(i), F)),))
    again = Nest((j,), (Store("more", index(j), load("a", index(j), F)),))
    known = {"a": F, "out": F, "more": F}
    early = Nest((i,), (Store("more", index(i), load("out", index(7) - i, F)), copy.statements[0]))
    return {
        "nests without outer loops": Kernel("k", (), (copy, again), known),
        "is no loop around": Kernel("k", (), (Nest((i,), (Store("out", index(j), load("a", index(i), F)),)),), known),
        "is read before it is stored": Kernel("k", (), (early,), known),
        "is not torch.float32": Kernel("k", (), (copy,), known | {"out": torch.float64}),
        "is not known": Kernel("k", (), (Nest((i,), (Store("out", index(i), ref("r", F)),)),), known),
    }


@pytest.mark.parametrize("what", ill_formed())
def test_kernels_that_are_not_well_formed_are_refused_whatever_is_configured(compiled, what):
    with jitney.config.patch(verify=False), pytest.raises(BackendFailed, match=what):
        compiled(ill_formed()[what])
