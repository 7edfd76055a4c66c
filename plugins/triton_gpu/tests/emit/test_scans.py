"""Scans by hand: of rows in one piece and in several, forwards and backwards."""

from __future__ import annotations

import pytest
import torch

from jitney_lowering.index import Index, Size, Var, index
from jitney_lowering.ir import Kernel, Nest, Reduce, Scan, Store, load, ref

F = torch.float32
KINDS = ["sum", "prod", "max", "min", "logsumexp"]


def scanned(kind: str, rows: int, length: Index | int, *, backwards: bool, across: bool) -> Kernel:
    """``o = running kind(a)``, and the greatest of ``o`` with its place in each row."""
    i, j = Var("i", rows), Var("j", length)
    at = j.size - 1 - j if backwards else index(j)
    place = at * rows + i if across else i * j.size + at
    scan = Scan("c", kind, load("a", place, F))
    top = Reduce("m", "max", ref("c", F))
    body = (Nest((j,), (scan, Store("o", place, ref("c", F)), top)), Nest((), (Store("t", index(i), ref("m", F)),)))
    kernel = Kernel("k", (i,), body, {"a": F, "o": F, "t": F})
    kernel.verify()
    return kernel


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_scans_of_rows(check, kind, backwards, across):
    for rows, length in ((3, 5), (17, 64), (33, 1100) if across else (2, 17000)):
        kernel = scanned(kind, rows, length, backwards=backwards, across=across)
        a = torch.randn(rows * length, generator=torch.Generator().manual_seed(0))
        a = a.sign() if kind == "prod" else a
        buffers = {"a": a, "o": torch.zeros(rows * length), "t": torch.zeros(rows)}
        made = check(kernel, buffers, rtol=1e-4, atol=2e-3)
        assert ("reverse=True" in made.text) is backwards and made.text.count("associative_scan(") <= 2


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("length", [1, 7, 4096, 5000])
def test_scans_of_symbolic_lengths(check, backwards, length):
    n = Size("n")
    kernel = scanned("sum", 3, n, backwards=backwards, across=False)
    buffers = {"a": torch.arange(3.0 * length) % 7 - 3, "o": torch.zeros(3 * length), "t": torch.zeros(3)}
    check(kernel, buffers, {n: length})
