"""Kernels of attention, made at the first call for tensors of these sizes, and what calls them for an operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from jitney.backends.devices import raw_stream
from jitney_lowering.attention import (
    BACKWARD,
    FORWARD,
    SCORES_BACKWARD,
    Given,
    Recent,
    Score,
    Tile,
    attention_results,
    backward_results,
    scores_backward_results,
)
from jitney_lowering.ir import Extern
from jitney_triton_gpu.attention.backward import of_keys, of_queries, of_scores
from jitney_triton_gpu.attention.blocks import blocks, parts_of
from jitney_triton_gpu.attention.draft import Matrices, Problem
from jitney_triton_gpu.attention.forward import forward, partial, together
from jitney_triton_gpu.code import Function
from jitney_triton_gpu.device import INTERPRETED, multiplies_in_tf32
from jitney_triton_gpu.launcher import HEADER
from jitney_triton_gpu.module import load
from jitney_triton_gpu.policy import POLICY

_counter = itertools.count()


def called_instead(extern: Extern) -> Callable[..., Any] | None:
    """What is called in the place of an operator; see ``Wrapper``."""
    return INSTEAD.get(extern.target)


def attention(
    query: Tensor, key: Tensor, value: Tensor, others: Sequence[Tensor], score: str
) -> tuple[Tensor, Tensor, Tensor]:
    """As the operator of this name."""
    result, largest, total = attention_results(query, key, value, others, score)
    given = {"query": query, "key": key, "value": value, "result": result, "largest": largest, "sums_of": total}
    parts = parts_of(query, key, value)
    if parts > 1:
        rows = (parts, *query.shape[:-1])
        given["mixed"] = query.new_empty((*rows, value.size(-1)), dtype=torch.float32)
        given |= {name: query.new_empty(rows, dtype=torch.float32) for name in ("most_of", "total_of")}
    _run(_forward, given, others, score)
    return result, largest, total


def attention_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """As the operator of this name."""
    given, made = Given(*arguments), backward_results(*arguments)
    filled = {"delta": torch.empty_like(given.largest), "of_query": made[0], "of_key": made[1], "of_value": made[2]}
    _run(_backward, _read(given) | filled, given.others, given.score)
    return made


def attention_scores_backward(*arguments: Any) -> Tensor:
    """As the operator of this name."""
    given, made = Given(*arguments), scores_backward_results(*arguments).zero_()  # what is hidden is not looked at
    filled = {"of_scores": made.view(*given.query.shape[:-1], given.key.size(-2))}
    _run(_scores_backward, _read(given) | filled, given.others, given.score)
    return made


def _read(given: Given) -> dict[str, Tensor]:
    """What functions of the backward read."""
    return {
        "query": given.query, "key": given.key, "value": given.value, "result": given.result,
        "largest": given.largest, "sums_of": given.total, "given": given.gradient,
    }  # fmt: skip


INSTEAD: dict[Any, Callable[..., Any]] = {
    FORWARD: attention,
    BACKWARD: attention_backward,
    SCORES_BACKWARD: attention_scores_backward,
}
Launch = Callable[[Sequence[Tensor]], None]
MOST = 256  # each for some sizes
_launches: Recent[Launch] = Recent(MOST)


def _run(make: Any, given: dict[str, Tensor], others: Sequence[Tensor], score: str) -> None:
    """Fill what of the given tensors is to be filled."""
    tensors = (*given.values(), *others)
    key = (make, score, _precision(given["query"]), *[(t.dtype, t.device, t.shape, t.stride()) for t in tensors])
    _launches.get(key, lambda: _made(make, given, others, score))(tensors)


def _made(make: Any, given: dict[str, Tensor], others: Sequence[Tensor], score: str) -> Launch:
    query, key = given["query"], given["key"]
    size = (*query.shape[:-1], key.size(-2))
    tile = Tile.of(Score.of(score), size, others, query.device, POLICY)
    names = {name: f"other{at}" for name, at in tile.others.items()}
    extents = {name: Matrices.of(name, others[at]).extent for name, at in tile.others.items()}
    matrices = {name: Matrices.of(name, tensor) for name, tensor in given.items()}
    extents |= {name: m.extent for name, m in matrices.items()}
    problem = Problem(tile, matrices["query"], matrices["key"], matrices["value"], extents, _precision(query))
    functions = make(problem, matrices)
    source = HEADER + "".join(f"\n\n{f.text}" for f in functions)
    entries = load(source, "attention", {f.name: f for f in functions}, query.device, True)
    order = [*given, *(f"other{n}" for n in range(len(others)))]
    places = [
        (entries[f.name], f.programs.value, [order.index(names.get(str(p.of), str(p.of))) for p in f.parameters])
        for f in functions
    ]
    device = query.device.index

    def launch(tensors: Sequence[Tensor]) -> None:
        for entry, programs, at in places:
            entry(programs, *[tensors[n] for n in at])

    def launch_on_device(tensors: Sequence[Tensor]) -> None:
        stream = raw_stream(device)
        for entry, programs, at in places:
            entry(programs, stream, *[tensors[n].data_ptr() for n in at])

    return launch if INTERPRETED else launch_on_device


def _forward(problem: Problem, m: dict[str, Matrices]) -> list[Function]:
    name = f"attention{next(_counter)}"
    shared, dims = problem.of_groups(), {"largest": 1, "sums_of": 1, "most_of": 1, "total_of": 1}
    if shared is not problem:
        m = {name: found.of_groups(dims.get(name, 2)) for name, found in m.items()}
    size = blocks(shared, "forward")
    if "mixed" not in m:
        return [forward(shared, m["result"], (m["largest"], m["sums_of"]), name, size)]
    parts = m["mixed"].size[0]
    first = partial(shared, m["mixed"], (m["most_of"], m["total_of"]), f"{name}_parts", size, parts)
    return [first, together(problem, m["result"], parts, name)]


def _backward(problem: Problem, m: dict[str, Matrices]) -> list[Function]:
    number = next(_counter)
    given, statistics, delta = m["given"], (m["largest"], m["sums_of"]), m["delta"]
    queries, keys = blocks(problem, "queries"), blocks(problem, "keys")
    first = of_queries(
        problem, given, m["result"], statistics, delta, m["of_query"], f"attention{number}_queries", queries
    )
    made = (m["of_key"], m["of_value"])
    return [first, of_keys(problem, given, statistics, delta, made, f"attention{number}_keys", keys)]


def _scores_backward(problem: Problem, m: dict[str, Matrices]) -> list[Function]:
    name, statistics = f"attention{next(_counter)}_scores", (m["largest"], m["sums_of"])
    return [of_scores(problem, m["given"], m["result"], statistics, m["of_scores"], name, blocks(problem, "queries"))]


def _precision(query: Tensor) -> str:
    """How float32 is multiplied."""
    if query.dtype is not torch.float32:
        return ""
    if INTERPRETED:
        return "ieee"
    return "tf32" if multiplies_in_tf32() else "tf32x3"
