"""Kernels of each form, beside the reference: which form they get, whole tiles and parts of tiles, ties, nan."""

from __future__ import annotations

import pytest
import torch

from jitney_lowering import NotLowered
from jitney_lowering.index import Index, Size, Var, index
from jitney_lowering.ir import (
    ALL,
    Accumulate,
    Kernel,
    Nest,
    Partial,
    Reduce,
    Scratch,
    Store,
    Value,
    apply,
    constant,
    indirect,
    load,
    position,
    ref,
)
from jitney_triton_gpu import tiles
from jitney_triton_gpu.emit.pointwise import independent

F = torch.float32
DTYPES = sorted(ALL, key=str)
NAN, INF = float("nan"), float("inf")


def data(n: int, dtype: torch.dtype = F, seed: int = 0) -> torch.Tensor:
    """Numbers of both signs; never more than a hundred, so that sums of integers stay small."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, (n,), generator=generator).bool()
    if dtype.is_floating_point:
        return torch.randn(n, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0 if dtype is torch.uint8 else -100, 100, (n,), generator=generator).to(dtype)


def plain(loops: tuple[Var, ...], *stores: Store, **dtypes: torch.dtype) -> Kernel:
    return Kernel("k", (), (Nest(loops, stores),), dtypes)


# Pointwise


@pytest.mark.parametrize("n", [1, 2, 127, 128, 129, 1024, 3000])
@pytest.mark.parametrize("wide", [False, True])
def test_elements_of_one_axis(check, n, wide):
    i = Var("i", n)
    store = Store("b", index(i), apply("mul", load("a", index(i), F), constant(2.0, F)))
    made = check(plain((i,), store, a=F, b=F), {"a": data(n), "b": torch.zeros(n + 1)}, wide=wide)
    assert made.names == ["k0"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_of_every_dtype(check, dtype):
    i = Var("i", 200)
    value = apply("maximum", load("a", index(i), dtype), load("b", index(i), dtype))
    buffers = {"a": data(200, dtype), "b": data(200, dtype, 1), "c": torch.zeros(201, dtype=dtype)}
    check(plain((i,), Store("c", index(i), value), a=dtype, b=dtype, c=dtype), buffers)


def scaled(n: int | Size, **pairs: str) -> tuple[Kernel, dict[str, torch.Tensor]]:
    """``new = old * factor`` for each pair, with a factor of its own and one for all."""
    i = Var("i", n)
    stores = [
        Store(new, index(i), apply("mul", load(old, index(i), F), constant(float(number + 2), F)))
        for number, (new, old) in enumerate(pairs.items())
    ]
    names = sorted({*pairs, *pairs.values()})
    return plain((i,), *stores, **dict.fromkeys(names, F)), {b: data(700, seed=ord(b)) for b in names}


@pytest.mark.parametrize("n", [1, 300, 700, Size("n")])
def test_what_has_no_memory_in_common_has_programs_of_its_own(check, n):
    kernel, buffers = scaled(n, b="a", d="c", e="c", g="f")
    made = check(kernel, buffers, {Size("n"): 650} if isinstance(n, Size) else None)
    text = made.codes[0].functions[0].text
    assert [text.count(header) for header in ("if part == 0:", "elif part == 1:", "else:", "elif")] == [1, 1, 1, 1]
    assert made.codes[0].functions[0].programs.evaluate({Size("n"): 650}) % 3 == 0


def test_what_replaces_memory_is_stored_by_those_who_read_it(compiled):
    """``d`` is stored in the place of ``a``, which is read for ``b``."""
    kernel, buffers = scaled(700, b="a", d="c", f="e")
    (nest,) = kernel.body
    parts = independent(nest, {"a": "d"})
    assert sorted("".join(sorted(s.buffer for s in part)) for part in parts) == ["bd", "f"]
    function = compiled(kernel, replaced={"a": "d"})
    a, c = buffers["a"].clone(), buffers["c"].clone()
    buffers["d"] = buffers["a"]
    function(buffers)
    torch.testing.assert_close(buffers["b"], a * 2, rtol=0, atol=0)
    torch.testing.assert_close(buffers["d"], c * 3, rtol=0, atol=0)
    torch.testing.assert_close(buffers["f"], buffers["e"] * 4, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(1, 70), (70, 1), (32, 64), (33, 65), (100, 3)])
def test_what_is_turned_has_tiles_of_two_axes(check, shape):
    m, n = shape
    i, j, k = Var("i", m), Var("j", n), Var("k", 3)
    x = apply("add", load("a", (k * n + j) * m + i, F), load("b", (k * m + i) * n + j, F))
    buffers = {"a": data(3 * m * n), "b": data(3 * m * n, seed=1), "c": torch.zeros(3 * m * n)}
    made = check(plain((k, i, j), Store("c", (k * m + i) * n + j, x), a=F, b=F, c=F), buffers)
    assert min(shape) == 1 or "YBLOCK" in made.text


def test_a_symbolic_size_fits_all(check):
    n = Size("s0")
    i, j = Var("i", n), Var("j", 7)
    kernel = plain((i, j), Store("b", i * 7 + j, position(i * 7 + j, F)), b=F)
    for count in (1, 2, 50, 700):
        check(kernel, {"b": torch.zeros(count * 7 + 3)}, {n: count})


def test_a_kernel_may_write_what_it_reads(check):
    i = Var("i", 300)
    x = load("a", index(i), F)
    check(plain((i,), Store("a", index(i), apply("mul", x, x)), Store("b", index(i), x), a=F, b=F),
          {"a": data(300), "b": torch.zeros(300)})  # fmt: skip


def test_indices_that_are_loaded(check):
    i, j = Var("i", 50), Var("j", 6)
    at = indirect(load("at", index(i), torch.int64), 0, 6)
    kernel = plain((i, j), Store("b", i * 6 + j, load("a", at[0] * 6 + j, F, (at,))), a=F, b=F, at=torch.int64)
    places = torch.randint(0, 7, (50,), generator=torch.Generator().manual_seed(0))
    check(kernel, {"a": data(42), "b": torch.zeros(300), "at": places})


def divided(i: Var, n: int) -> list[Index]:
    return [i // 3, i % 5, (i // 4) * 4 + i % 4, (n - 1 - i) // 2, (i + 3) % 8, (i - 4) // 3 + 2, (i - 7) % 6]


def test_indices_are_divided_as_python_divides(check):
    i = Var("i", 100)
    stores = [Store(f"o{k}", index(i), load("a", x, F)) for k, x in enumerate(divided(i, 100))]
    stores += [Store(f"p{k}", index(i), position(x, torch.int64)) for k, x in enumerate(divided(i, 100))]
    dtypes = {s.buffer: s.value.dtype for s in stores}
    buffers = {"a": data(200)} | {name: torch.zeros(100, dtype=d) for name, d in dtypes.items()}
    check(plain((i,), *stores, a=F, **dtypes), buffers)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_element_beside_many(check, dtype):
    i = Var("i", 5)
    value = apply("maximum", load("a", index(0), dtype), load("b", index(i), dtype))
    buffers = {"a": data(1, dtype), "b": data(5, dtype, 1), "c": torch.zeros(5, dtype=dtype)}
    kernel = Kernel("k", (i,), (Nest((), (Store("c", index(i), value),)),), dict.fromkeys(buffers, dtype))
    check(kernel, buffers)


def test_an_empty_kernel_writes_nothing(check):
    i, j = Var("i", 0), Var("j", 5)
    x = load("a", i * 5 + j, F)
    for kernel in (
        Kernel("k", (i,), (Nest((j,), (Store("b", i * 5 + j, x),)),), {"a": F, "b": F}),
        plain((i, j), Store("b", i * 5 + j, x), a=F, b=F),
    ):
        check(kernel, {"a": torch.zeros(0), "b": torch.ones(5)})


# Rows


def rows(m: int | Size, n: int | Size, kind: str, dtype: torch.dtype, *, across: bool = False) -> Kernel:
    """Each row's reduction, and each element beside it."""
    i, j = Var("i", m), Var("j", n)
    place = j * m + i if across else i * n + j
    x = load("a", place, dtype)
    result = torch.int64 if kind.startswith("arg") else dtype
    nests = [Nest((j,), (Reduce("r", kind, x, index(j) if kind.startswith("arg") else None),))]
    nests.append(Nest((), (Store("o", index(i), ref("r", result)),)))
    if result is dtype and dtype is not torch.bool:
        nests.append(Nest((j,), (Store("b", place, apply("sub", x, ref("r", dtype))),)))
    return Kernel("k", (i,), tuple(nests), {"a": dtype, "o": result} | ({"b": dtype} if len(nests) == 3 else {}))


def buffers_of(kernel: Kernel, m: int, n: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    made = {"a": data(m * n, dtype), "o": torch.zeros(m, dtype=kernel.buffers["o"])}
    return made | ({"b": torch.zeros(m * n, dtype=dtype)} if "b" in kernel.buffers else {})


SLACK = {F: 1e-5, torch.float64: 1e-13, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.mark.parametrize("kind", ["sum", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [F, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("across", [False, True])
def test_rows_of_every_dtype(check, dtype, kind, across):
    for m, n in ((5, 70), (70, 5)):
        kernel = rows(m, n, kind, dtype, across=across)
        slack = SLACK.get(dtype, 0.0) if kind == "sum" else 0.0
        check(kernel, buffers_of(kernel, m, n, dtype), rtol=slack, atol=slack)


@pytest.mark.parametrize("kind", ["any", "all"])
def test_truth_values_of_rows(check, kind):
    kernel = rows(9, 40, kind, torch.bool)
    for a in (torch.zeros(360).bool(), torch.ones(360).bool(), data(360, torch.bool)):
        check(kernel, buffers_of(kernel, 9, 40, torch.bool) | {"a": a})


@pytest.mark.parametrize("kind", ["sum", "max", "argmin"])
@pytest.mark.parametrize("wide", [False, True])
def test_rows_that_are_too_long_are_taken_in_pieces(check, monkeypatch, kind, wide):
    monkeypatch.setattr(tiles, "LONGEST_ROW", 64)
    kernel = rows(3, 5000, kind, F)
    made = check(kernel, buffers_of(kernel, 3, 5000, F), rtol=1e-5, atol=1e-4, wide=wide)
    assert "for r_start in" in made.text


def test_rows_of_a_symbolic_length(check):
    m, n = Size("s0"), Size("s1")
    kernel = rows(m, n, "max", F)
    for shape in ((1, 1), (4, 3), (3, 900), (40, 33)):
        check(kernel, buffers_of(kernel, *shape, F), dict(zip((m, n), shape, strict=True)))


def test_nan_wins_and_the_first_extreme_counts(check):
    table = [
        [1.0, 5.0, 5.0, 2.0] * 5,
        [1.0] * 9 + [NAN] + [7.0] * 5 + [NAN] * 5,
        [-INF] * 20,
        [INF] * 20,
        [-0.0, 0.0] * 10,
        [3.0] * 19 + [NAN],
    ]
    a = torch.tensor(table)
    for kind in ("max", "min", "argmax", "argmin"):
        kernel = rows(6, 20, kind, F)
        buffers = buffers_of(kernel, 6, 20, F) | {"a": a.flatten()}
        made = check(kernel, buffers)
        made(buffers)
        eager = getattr(a, kind)(1) if kind.startswith("arg") else getattr(a, f"a{kind}")(1)
        torch.testing.assert_close(buffers["o"], eager, equal_nan=True, rtol=0, atol=0)


def test_what_a_row_keeps_is_the_same_wherever_it_is_read(check, monkeypatch):
    """Softmax, whose exponentials are kept in memory of the row: in registers, or computed again for each piece."""
    m, n = 4, 3000
    i, j = Var("i", m), Var("j", n)
    x = load("a", i * n + j, F)
    nests = (
        Nest((j,), (Reduce("m", "max", x),)),
        Nest((j,), (Store("t", index(j), apply("exp", apply("sub", x, ref("m", F)))),)),
        Nest((j,), (Reduce("s", "sum", load("t", index(j), F)),)),
        Nest((j,), (Store("b", i * n + j, apply("div", load("t", index(j), F), ref("s", F))),)),
    )
    kernel = Kernel("k", (i,), nests, {"a": F, "b": F}, scratch=(Scratch("t", F, index(n)),))
    for longest in (4096, 64):
        monkeypatch.setattr(tiles, "LONGEST_ROW", longest)
        made = check(kernel, {"a": data(m * n), "b": torch.zeros(m * n)}, rtol=1e-5)
        assert not made.codes[0].workspaces


def test_memory_of_a_row_that_is_read_elsewhere(check):
    m, n = 3, 40
    i, j = Var("i", m), Var("j", n)
    nests = (
        Nest((j,), (Store("t", index(j), load("a", i * n + j, F)),)),
        Nest((j,), (Store("b", i * n + j, load("t", n - 1 - index(j), F)),)),
    )
    kernel = Kernel("k", (i,), nests, {"a": F, "b": F}, scratch=(Scratch("t", F, index(n)),))
    made = check(kernel, {"a": data(m * n), "b": torch.zeros(m * n)})
    assert len(made.codes[0].workspaces) == 1


@pytest.mark.parametrize("m", [3, 700, 5000])
def test_memory_of_a_row_beside_sums_over_rows(check, m):
    n = 40
    i, j, k = Var("i", m), Var("j", n), Var("k", n)
    nests = (
        Nest((j,), (Store("t", index(j), load("a", i * n + j, F)),)),
        Nest((j,), (Accumulate("p", index(j), "sum", load("t", n - 1 - index(j), F)),)),
    )
    finish = (Nest((k,), (Store("b", index(k), load("p", index(k), F)),)),)
    scratch, partials = (Scratch("t", F, index(n)),), (Partial("p", F, index(n), "sum"),)
    kernel = Kernel("k", (i,), nests, {"a": F, "b": F}, finish, scratch, partials)
    check(kernel, {"a": data(m * n), "b": torch.zeros(n)}, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("longest", [4096, 16])
@pytest.mark.parametrize("m", [3, 700])
def test_what_a_row_keeps_outlives_the_memory_that_it_came_from(compiled, monkeypatch, m, longest):
    """``b`` is stored in the place of ``a``, in between; in registers, and in memory where rows go by in pieces."""
    monkeypatch.setattr(tiles, "LONGEST_ROW", longest)
    n = 40
    i, j, k = Var("i", m), Var("j", n), Var("k", n)
    kept = load("t", index(j), F)
    nests = (
        Nest((j,), (Reduce("s", "sum", load("a", i * n + j, F)), Store("t", index(j), load("a", i * n + j, F)))),
        Nest((j,), (Store("b", i * n + j, ref("s", F)),)),
        Nest((j,), (Accumulate("p", index(j), "sum", kept), Store("c", i * n + j, apply("neg", kept)))),
    )
    finish = (Nest((k,), (Store("o", index(k), load("p", index(k), F)),)),)
    scratch, partials = (Scratch("t", F, index(n)),), (Partial("p", F, index(n), "sum"),)
    kernel = Kernel("k", (i,), nests, dict.fromkeys("abco", F), finish, scratch, partials)
    function = compiled(kernel, replaced={"a": "b"})
    a = data(m * n)
    buffers = {"a": a.clone(), "b": torch.zeros(0), "c": torch.zeros(m * n), "o": torch.zeros(n)}
    buffers["b"] = buffers["a"]
    function(buffers)
    torch.testing.assert_close(buffers["c"], -a, rtol=0, atol=0)
    torch.testing.assert_close(buffers["o"], a.view(m, n).sum(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(buffers["b"], a.view(m, n).sum(1).repeat_interleave(n), rtol=1e-4, atol=1e-4)


# Splits


def total(n: int | Size, kinds: tuple[str, ...], dtype: torch.dtype) -> tuple[Kernel, dict[str, torch.Tensor]]:
    """Reductions of everything, and what is made of each at the end."""
    j = Var("j", n)
    x = load("a", index(j), dtype)
    reduces = tuple(Reduce(k, k, x, index(j) if k.startswith("arg") else None) for k in kinds)
    stores = tuple(Store(f"o_{k}", index(0), ref(k, torch.int64 if k.startswith("arg") else dtype)) for k in kinds)
    outs = {f"o_{k}": torch.zeros(1, dtype=torch.int64 if k.startswith("arg") else dtype) for k in kinds}
    dtypes = {"a": dtype} | {name: t.dtype for name, t in outs.items()}
    return Kernel("k", (), (Nest((j,), reduces),), dtypes, (Nest((), stores),)), outs


@pytest.mark.parametrize("n", [1, 5, 1000, 40000])
@pytest.mark.parametrize("dtype", [F, torch.float64, torch.float16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("wide", [False, True])
def test_reductions_of_everything(check, n, dtype, wide):
    kinds = ("max", "argmax", "argmin") if dtype is torch.uint8 else ("sum", "max", "min", "argmax", "argmin")
    kernel, outs = total(n, kinds, dtype)
    a = data(n, dtype) / (1 if not dtype.is_floating_point else n**0.5)
    made = check(kernel, {"a": a.to(dtype), **outs}, rtol=SLACK.get(dtype, 0.0), atol=SLACK.get(dtype, 0.0), wide=wide)
    assert all(name.startswith("k0") for name in made.names)
    assert n < 40000 or len(made.names) == 2


def test_positions_over_many_parts(check):
    """The first of equals, and nan, in whatever part of the whole they are."""
    n = 30000
    kernel, outs = total(n, ("max", "argmax", "argmin"), F)
    for places, value in (((29999,), 9.0), ((17, 29000), 9.0), ((5, 14000, 29999), NAN), ((20000, 3), -9.0)):
        a = data(n).clamp(-3, 3)
        a[list(places)] = value
        check(kernel, {"a": a, **outs})


def columns(m: int | Size, n: int, kind: str, dtype: torch.dtype) -> Kernel:
    i, j, k = Var("i", m), Var("j", n), Var("k", n)
    add = Accumulate("p", index(j), kind, load("a", i * n + j, dtype))
    end = Nest((k,), (Store("o", index(k), load("p", index(k), dtype)),))
    return Kernel("k", (i,), (Nest((j,), (add,)),), {"a": dtype, "o": dtype}, (end,),
                  partials=(Partial("p", dtype, index(n), kind),))  # fmt: skip


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", [F, torch.bfloat16, torch.int32], ids=str)
def test_columns(check, dtype, kind):
    for m, n in ((1, 9), (700, 3), (40, 200)):
        slack = {F: 1e-5, torch.bfloat16: 1e-1}.get(dtype, 0.0) if kind == "sum" else 0.0
        buffers = {"a": data(m * n, dtype), "o": torch.zeros(n, dtype=dtype)}
        check(columns(m, n, kind, dtype), buffers, rtol=slack, atol=slack)


def test_columns_of_a_symbolic_length(check):
    m = Size("s0")
    for count in (1, 7, 900):
        check(columns(m, 33, "max", F), {"a": data(count * 33), "o": torch.zeros(33)}, {m: count})


# Sweeps


def norm_backward(m: int | Size, n: int) -> Kernel:
    """Something of each row, results over rows for each element, and one over all."""
    i, j, k = Var("i", m), Var("j", n), Var("k", n)
    x = load("a", i * n + j, F)
    product: Value = apply("mul", x, ref("r", F))
    nests = (
        Nest((j,), (Reduce("r", "max", x),)),
        Nest((j,), (Store("b", i * n + j, apply("sub", x, ref("r", F))), Accumulate("p", index(j), "sum", product))),
        Nest((j,), (Accumulate("q", index(0), "max", product),)),
    )
    ends = (
        Nest((k,), (Store("o", index(k), load("p", index(k), F)),)),
        Nest((), (Store("t", index(0), load("q", index(0), F)),)),
    )
    partials = (Partial("p", F, index(n), "sum"), Partial("q", F, index(1), "max"))
    return Kernel("k", (i,), nests, dict.fromkeys("abot", F), ends, partials=partials)


@pytest.mark.parametrize("shape", [(1, 5), (2, 64), (50, 33), (7, 1000)])
@pytest.mark.parametrize("wide", [False, True])
def test_rows_with_results_over_rows(check, shape, wide):
    m, n = shape
    buffers = {"a": data(m * n), "b": torch.zeros(m * n), "o": torch.zeros(n), "t": torch.zeros(1)}
    made = check(norm_backward(m, n), buffers, rtol=1e-5, atol=1e-5, wide=wide)
    assert made.names == ["k0", "k0_finish", "k0_finish1"]


def test_rows_of_a_symbolic_count_with_results_over_rows(check):
    m = Size("s0")
    for count in (1, 2, 3, 4, 50):
        buffers = {"a": data(count * 9), "b": torch.zeros(count * 9), "o": torch.zeros(9), "t": torch.zeros(1)}
        check(norm_backward(m, 9), buffers, {m: count}, rtol=1e-5, atol=1e-5)


def test_long_rows_accumulate_in_memory(check, monkeypatch):
    monkeypatch.setattr(tiles, "LONGEST_ROW", 64)
    monkeypatch.setattr(tiles, "GUESS", 64)
    m, n = 5, 300
    buffers = {"a": data(m * n), "b": torch.zeros(m * n), "o": torch.zeros(n), "t": torch.zeros(1)}
    check(norm_backward(m, n), buffers, rtol=1e-5, atol=1e-5)


# What is refused


def test_what_would_be_added_up_wrong_is_refused(compiled):
    m, r, n = Var("m", 4), Var("r", 3), Var("n", 5)
    x = load("a", (m * 3 + r) * 5 + n, F)
    nests = (Nest((r, n), (Reduce("s", "sum", x), Accumulate("p", index(r), "sum", x))),)
    end = (Nest((r,), (Store("o", index(r), load("p", index(r), F)),)),)
    kernel = Kernel("k", (m,), nests, {"a": F, "o": F}, end, partials=(Partial("p", F, index(3), "sum"),))
    with pytest.raises(NotLowered, match="accumulated in one place"):
        compiled(kernel)


def test_an_end_without_a_beginning_is_refused(compiled):
    i = Var("i", 4)
    kernel = Kernel(
        "k", (), (Nest((i,), (Store("b", index(i), load("a", index(i), F)),)),), {"a": F, "b": F, "c": F},
        (Nest((), (Store("c", index(0), constant(1.0, F)),)),),
    )  # fmt: skip
    with pytest.raises(NotLowered, match="waits for nothing"):
        compiled(kernel)


def test_a_vector_does_not_say_how_a_matrix_is_read(check) -> None:
    """``r[x] = sum(v[k] * m[k, x])``: neighbours of the matrix are of different rows."""
    x, k = Var("x", 96), Var("k", 40)
    value = apply("mul", load("v", index(k), F), load("m", index(k) * 96 + x, F))
    nests = (Nest((k,), (Reduce("s", "sum", value),)), Nest((), (Store("r", index(x), ref("s", F)),)))
    kernel = Kernel("k", (x,), nests, {"v": F, "m": F, "r": F})
    buffers = {"v": data(40), "m": data(96 * 40, seed=1), "r": torch.zeros(96)}
    made = check(kernel, buffers, rtol=1e-5, atol=1e-5)
    assert made.codes[0].functions[0].blocks["XBLOCK"] >= 32
