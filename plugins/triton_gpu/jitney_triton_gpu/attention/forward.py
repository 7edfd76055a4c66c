"""Attention, tile by tile: each program has some queries and goes through the keys (Dao et al. 2022; Milakov 2018).

Where there are too few queries for all processors, several programs share the keys, and a second function puts together
what they have found (Dao et al., Flash-Decoding, 2023).
"""

from __future__ import annotations

import torch

from jitney_lowering.index import index
from jitney_triton_gpu.attention.draft import LOG2E, Blocks, Body, Matrices, Problem, padded
from jitney_triton_gpu.code import Function, Parameter
from jitney_triton_gpu.emit.dtypes import NAMES
from jitney_triton_gpu.tiles import power

Statistics = tuple[Matrices, Matrices]
"""(..., M), float32: the largest score and the sum of the rest."""


def forward(problem: Problem, result: Matrices, statistics: Statistics, name: str, blocks: Blocks) -> Function:
    """The function that fills the result and what the softmax is made of.

    Args:
        problem: what to compute.
        result: (..., M, E).
        statistics: what the softmax is made of.
        name: the function's.
        blocks: of queries and keys.
    """
    body = Body(problem, name, blocks, (result, *statistics))
    programs = body.begin(body.y, problem.queries, (problem.query, problem.key, problem.value, result), statistics)
    _mix(body)
    line = body.line
    if problem.tile.safe:
        line("total = tl.where(total == 0.0, 1.0, total)")
    _store(body, result, "(mixed / total)")
    line('most = tl.where(most == float("-inf"), 0.0, most)')
    for matrices, shown in zip(statistics, ("most", "total"), strict=True):
        body.store_row(matrices, shown)
    return body.draft.finished(programs, blocks.warps)


def partial(
    problem: Problem, mixed: Matrices, statistics: Statistics, name: str, blocks: Blocks, parts: int
) -> Function:
    """The function that computes each part of the keys by itself.

    Args:
        problem, name, blocks: as for ``forward``.
        mixed: (parts, ..., M, E), float32: values by weights that nobody has divided yet.
        statistics: (parts, ..., M) of each part; minus infinity and 0 where it sees nothing.
        parts: at least 2.
    """
    body = Body(problem, name, blocks, (mixed, *statistics))
    own = [matrices.without_first() for matrices in (mixed, *statistics)]
    programs = body.begin(body.y, problem.queries, (problem.query, problem.key, problem.value, own[0]), own[1:], parts)
    for matrices in (mixed, *statistics):
        body.line(f"at_{matrices.name} += part * {matrices.stride[0]}")
    _mix(body, parts)
    _store(body, own[0], "mixed")
    for matrices, shown in zip(own[1:], ("most", "total"), strict=True):
        body.store_row(matrices, shown)
    return body.draft.finished(programs, blocks.warps)


def _mix(body: Body, parts: int = 1) -> None:
    """Go through the keys: the largest score ``most``, the ``total`` of weights and values ``mixed`` by these."""
    line, problem = body.line, body.problem
    query, key, value = problem.query, problem.key, problem.value
    depth, width = query.size[-1], value.size[-1]
    body.load("q", body.place(query, "y", "d[None, :]", "d", depth, "y"))
    line('most = tl.full([YBLOCK, 1], float("-inf"), tl.float32)')
    line("total = tl.zeros([YBLOCK, 1], tl.float32)")
    line("mixed = tl.zeros([YBLOCK, EBLOCK], tl.float32)")

    def some_keys() -> None:
        body.load("k", body.place(key, "x", "d[:, None]", "d", depth, "x"))
        line(f"products = tl.dot(q, k{body.precision})")
        scored = body.score("products")
        line(f"best = tl.maximum(most, tl.max({scored}, 1, keep_dims=True))")
        line('shift = tl.where(best == float("-inf"), 0.0, best)')
        line(f"weights = tl.exp2(({scored} - shift) * {LOG2E})")
        line(f"scale = tl.exp2((most - shift) * {LOG2E})")
        line("total = total * scale + tl.sum(weights, 1, keep_dims=True)")
        line("xs = x_start + tl.arange(0, XBLOCK)[:, None]")
        body.load("v", body.place(value, "xs", "e[None, :]", "e", width, "x"))
        line(f"mixed = tl.dot(weights.to({NAMES[value.dtype]}), v, mixed * scale{body.precision})")
        line("most = best")

    body.loops(body.x, some_keys, parts)


def _store(body: Body, result: Matrices, shown: str) -> None:
    body.store(body.place(result, "y", "e[None, :]", "e", result.size[-1], "y"), shown, result.dtype)


def together(problem: Problem, result: Matrices, parts: int, name: str) -> Function:
    """The function that puts parts together, a query in each program.

    Its parameters are ``mixed``, ``most_of`` and ``total_of``, which ``partial`` has filled, and ``result``,
    ``largest`` and ``sums_of``; all are contiguous.

    Args:
        problem, parts, name: as for ``partial``.
        result: as for ``forward``.
    """
    rows, width = problem.batch * problem.queries, result.size[-1]
    safe = "\n    total = tl.where(total == 0.0, 1.0, total)" if problem.tile.safe else ""
    body = f"""\
    row = tl.program_id(0)
    s = tl.arange(0, SBLOCK)
    e = tl.arange(0, EBLOCK)
    seen = s < {parts}
    at = s * {rows} + row
    mosts = tl.load(most_of + at, seen, other=float("-inf"))
    totals = tl.load(total_of + at, seen, other=0.0)
    tile = tl.load(mixed + at[:, None] * {width} + e[None, :], seen[:, None] & (e < {width})[None, :], other=0.0)
    most = tl.max(mosts, 0)
    most = tl.where(most == float("-inf"), 0.0, most)
    scale = tl.exp2((mosts - most) * {LOG2E})
    total = tl.sum(totals * scale, 0){safe}
    found = tl.sum(tile * scale[:, None], 0) / total
    tl.store(result + row * {width} + e, found.to({NAMES[result.dtype]}), e < {width})
    tl.store(largest + row, most)
    tl.store(sums_of + row, total)"""
    names = ("mixed", "most_of", "total_of", "result", "largest", "sums_of")
    parameters = tuple(Parameter(n, "buffer", n, result.dtype if n == "result" else torch.float32) for n in names)
    sizes = {"SBLOCK": power(parts), "EBLOCK": padded(width)}
    return Function(name, parameters, body, sizes, index(rows), 4)
