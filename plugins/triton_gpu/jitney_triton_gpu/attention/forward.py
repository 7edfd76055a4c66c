"""Attention, tile by tile: each program has some queries and goes through the keys (Dao et al. 2022; Milakov 2018)."""

from __future__ import annotations

from jitney_triton_gpu.attention.draft import LOG2E, Blocks, Body, Matrices, Problem
from jitney_triton_gpu.code import Function
from jitney_triton_gpu.emit.dtypes import NAMES


def forward(
    problem: Problem, result: Matrices, statistics: tuple[Matrices, Matrices], name: str, blocks: Blocks
) -> Function:
    """The function that fills the result and what the softmax is made of.

    Args:
        problem: what to compute.
        result: (..., M, E).
        statistics: (..., M), float32: the largest score and the sum of the rest.
        name: the function's.
        blocks: of queries and keys.
    """
    body = Body(problem, name, blocks, (result, *statistics))
    line = body.line
    query, key, value = problem.query, problem.key, problem.value
    depth, width = query.size[-1], value.size[-1]
    programs = body.begin(body.y, problem.queries, (query, key, value, result), statistics)
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

    body.loops(body.x, some_keys)
    if problem.tile.safe:
        line("total = tl.where(total == 0.0, 1.0, total)")
    body.store(body.place(result, "y", "e[None, :]", "e", width, "y"), "(mixed / total)", result.dtype)
    line('most = tl.where(most == float("-inf"), 0.0, most)')
    for matrices, shown in zip(statistics, ("most", "total"), strict=True):
        body.store_row(matrices, shown)
    return body.draft.finished(programs, blocks.warps)
