"""Gradients of attention: of queries by programs that go through the keys, of keys and values by others that go through
the queries. Weights are computed again, in both (Dao 2023)."""

from __future__ import annotations

from jitney_triton_gpu.attention.draft import LOG2E, Blocks, Body, Matrices, Problem
from jitney_triton_gpu.code import Function
from jitney_triton_gpu.emit.dtypes import NAMES


def of_queries(
    problem: Problem,
    given: Matrices,
    result: Matrices,
    statistics: tuple[Matrices, Matrices],
    delta: Matrices,
    made: Matrices,
    name: str,
    blocks: Blocks,
) -> Function:
    """The function that fills the queries' gradient, and ``delta``.

    Args:
        problem: what was computed.
        given: the gradient of the result.
        result, statistics: of the forward.
        delta: (..., M), float32: sums of the result times its gradient.
        made: like the query.
        name: the function's.
        blocks: of queries and keys.
    """
    body = Body(problem, name, blocks, (given, result, *statistics, delta, made))
    line = body.line
    query, key, value = problem.query, problem.key, problem.value
    depth, width = query.size[-1], value.size[-1]
    programs = body.begin(body.y, problem.queries, (query, key, value, given, result, made), (*statistics, delta))
    body.load("q", body.place(query, "y", "d[None, :]", "d", depth, "y"))
    _load_given(body, given, result)
    body.store_row(delta, "minus")
    _load_statistics(body, statistics)
    line("total = tl.zeros([YBLOCK, DBLOCK], tl.float32)")

    def some_keys() -> None:
        body.load("k", body.place(key, "x", "d[:, None]", "d", depth, "x"))
        body.load("v", body.place(value, "x", "e[:, None]", "e", width, "x"))
        gradient = _of_products(body)
        line(f"total = tl.dot(({gradient}).to({NAMES[key.dtype]}), tl.trans(k), total{body.precision})")

    body.loops(body.x, some_keys)
    body.store(body.place(made, "y", "d[None, :]", "d", depth, "y"), "total", made.dtype)
    return body.draft.finished(programs, blocks.warps)


def of_scores(
    problem: Problem,
    given: Matrices,
    result: Matrices,
    statistics: tuple[Matrices, Matrices],
    made: Matrices,
    name: str,
    blocks: Blocks,
) -> Function:
    """The function that fills the gradient of what the softmax is taken of, (..., M, N), wherever a key is seen."""
    body = Body(problem, name, blocks, (given, result, *statistics, made))
    query, key, value = problem.query, problem.key, problem.value
    depth, width = query.size[-1], value.size[-1]
    programs = body.begin(body.y, problem.queries, (query, key, value, given, result, made), statistics)
    body.load("q", body.place(query, "y", "d[None, :]", "d", depth, "y"))
    _load_given(body, given, result)
    _load_statistics(body, statistics)

    def some_keys() -> None:
        body.load("k", body.place(key, "x", "d[:, None]", "d", depth, "x"))
        body.load("v", body.place(value, "x", "e[:, None]", "e", width, "x"))
        _of_scored(body)
        down, across = made.stride[-2:]
        mask = body.writer.mask(frozenset({"x", "y"}))
        body.store((f"at_{made.name} + y * {down} + x * {across}", mask or ""), "of_scored", made.dtype)

    body.loops(body.x, some_keys)
    return body.draft.finished(programs, blocks.warps)


def of_keys(
    problem: Problem,
    given: Matrices,
    statistics: tuple[Matrices, Matrices],
    delta: Matrices,
    made: tuple[Matrices, Matrices],
    name: str,
    blocks: Blocks,
) -> Function:
    """The function that fills the gradients of keys and values; see ``of_queries``, after which it runs."""
    of_key, of_value = made
    body = Body(problem, name, blocks, (given, *statistics, delta, *made))
    line = body.line
    query, key, value = problem.query, problem.key, problem.value
    depth, width = query.size[-1], value.size[-1]
    programs = body.begin(body.x, problem.keys, (query, key, value, given, *made), (*statistics, delta))
    body.load("k", body.place(key, "x", "d[:, None]", "d", depth, "x"))
    body.load("v", body.place(value, "x", "e[:, None]", "e", width, "x"))
    line("total_k = tl.zeros([XBLOCK, DBLOCK], tl.float32)")
    line("total_v = tl.zeros([XBLOCK, EBLOCK], tl.float32)")

    def some_queries() -> None:
        body.load("q", body.place(query, "y", "d[None, :]", "d", depth, "y"))
        body.load("g", body.place(given, "y", "e[None, :]", "e", width, "y"))
        body.load_row("minus", delta)
        _load_statistics(body, statistics)
        gradient = _of_products(body)
        line(f"total_v = tl.dot(tl.trans(weights.to({NAMES[value.dtype]})), g, total_v{body.precision})")
        line(f"total_k = tl.dot(tl.trans(({gradient}).to({NAMES[query.dtype]})), q, total_k{body.precision})")

    body.loops(body.y, some_queries)
    line("xs = first + tl.arange(0, XBLOCK)[:, None]")
    body.store(body.place(of_key, "xs", "d[None, :]", "d", depth, "x"), "total_k", of_key.dtype)
    body.store(body.place(of_value, "xs", "e[None, :]", "e", width, "x"), "total_v", of_value.dtype)
    return body.draft.finished(programs, blocks.warps)


def _load_given(body: Body, given: Matrices, result: Matrices) -> None:
    """Tiles ``g`` and ``r``, and of each query ``minus``, the sum of what they multiply to."""
    width = body.problem.value.size[-1]
    body.load("g", body.place(given, "y", "e[None, :]", "e", width, "y"))
    body.load("r", body.place(result, "y", "e[None, :]", "e", width, "y"))
    body.line("minus = tl.sum(r.to(tl.float32) * g.to(tl.float32), 1, keep_dims=True)")


def _load_statistics(body: Body, statistics: tuple[Matrices, Matrices]) -> None:
    largest, total = statistics
    body.load_row("most", largest)
    body.load_row("sums", total, "1.0")
    body.line("part = 1.0 / sums")


def _of_products(body: Body) -> str:
    """The gradient of a tile of products, of which there are ``q``, ``k``, ``v``, ``g``, ``most``, ``part``, ``minus``.

    Then there are ``weights``.
    """
    _of_scored(body)
    return body.gradient("of_scored")


def _of_scored(body: Body) -> None:
    """The tiles ``weights`` and ``of_scored``, the gradient of what the softmax is taken of."""
    line = body.line
    line(f"products = tl.dot(q, k{body.precision})")
    scored = body.score("products")
    line(f"weights = {body.masked(f'tl.exp2(({scored} - most) * {LOG2E}) * part')}")
    line(f"of_weights = tl.dot(g, v{body.precision})")
    line("of_scored = weights * (of_weights - minus)")
