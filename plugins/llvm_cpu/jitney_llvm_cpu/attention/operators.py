"""Attention and its gradient, block by block: what is called for the operators of these names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jitney_llvm_cpu.attention.blocks import Block
from jitney_llvm_cpu.attention.rows import WIDE, gradients, weights
from jitney_llvm_cpu.options import LlvmCpuOptions
from jitney_llvm_cpu.policy import POLICY
from jitney_lowering.attention import (
    BACKWARD,
    FORWARD,
    Given,
    Recent,
    Score,
    Tile,
    attention_results,
    backward_results,
    masks,
    seen,
)
from jitney_lowering.ir import Extern

MOST = 128  # kernels, each for some sizes


@dataclass(frozen=True)
class Plan:
    """How one attention is computed.

    Args:
        block: of how much at a time.
        run: a kernel of ``rows``.
        seen: from a block's first and last row to the first column that any of its queries sees, and the last but one.
    """

    block: Block
    run: Callable[..., Any]
    seen: Callable[[int, int], tuple[int, int]]


_plans: Recent[Plan] = Recent(MOST)


def plan(make: Any, query: Tensor, key: Tensor, others: Sequence[Tensor], score: str) -> Plan:
    """For tensors like these; ``make``: of which kernel."""
    facts = [(t.dtype, t.shape, t.stride()) for t in others]

    def made() -> Plan:
        said = Score.of(score)
        tile = Tile.of(said, (*query.shape[:-1], key.size(-2)), others, query.device, POLICY)
        block = Block.of(query.shape[:-2].numel(), query.size(-2), key.size(-2))
        hiding = masks(tile.scored, tile.row, tile.column, safe=tile.safe)
        return Plan(block, make(tile, others, block, LlvmCpuOptions()), seen(hiding, key.size(-2)))

    return _plans.get((make, score, query.shape, key.size(-2), *facts), made)


def places(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Where blocks of ``size`` begin that cover ``count``, and how much of each those before have covered."""
    for begin in range(0, count, size):
        first = min(begin, count - size)
        yield first, begin - first


def attention(
    query: Tensor, key: Tensor, value: Tensor, others: Sequence[Tensor], score: str
) -> tuple[Tensor, Tensor, Tensor]:
    """As the operator of this name."""
    made = plan(weights, query, key, others, score)
    result, largest, total = attention_results(query, key, value, others, score)
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    out = result.view(-1, *result.shape[-2:])
    most, sums = (x.view(len(q), -1) for x in (largest, total))
    count, rows = made.block.matrices, made.block.rows
    for z, _ in places(len(q), count):
        some = slice(z, z + count)
        keys, values = k[some].to(WIDE).mT, v[some].to(WIDE)
        for y, _ in places(q.size(-2), rows):
            here = slice(y, y + rows)
            begin, end = made.seen(y, y + rows - 1)
            if begin >= end:
                out[some, here], most[some, here], sums[some, here] = 0.0, 0.0, 1.0
                continue
            products = torch.bmm(q[some, here].to(WIDE), keys[:, :, begin:end])
            found, most[some, here], sums[some, here] = made.run(products, *others, z, y, begin)
            mixed = torch.bmm(found, values[:, begin:end])
            out[some, here] = mixed
    return result, largest, total


def attention_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """As the operator of this name."""
    given = Given(*arguments)
    query, others = given.query, given.others
    made = plan(gradients, query, given.key, others, given.score)
    q, k, v, gradient = (x.reshape(-1, *x.shape[-2:]) for x in (query, given.key, given.value, given.gradient))
    minus = (gradient.to(WIDE) * given.result.reshape(gradient.shape).to(WIDE)).sum(-1)
    most, sums = (x.view(len(q), -1) for x in (given.largest, given.total))
    of_query, of_key, of_value = (torch.zeros(x.shape, dtype=WIDE, device=x.device) for x in (q, k, v))
    count, rows = made.block.matrices, made.block.rows
    for z, fresh_matrices in places(len(q), count):
        some = slice(z, z + count)
        keys, values = k[some].to(WIDE), v[some].to(WIDE)
        for y, fresh_rows in places(q.size(-2), rows):
            here = slice(y, y + rows)
            begin, end = made.seen(y, y + rows - 1)
            if begin >= end:
                continue
            mine, seen_keys, outer = q[some, here].to(WIDE), keys[:, begin:end], gradient[some, here].to(WIDE)
            products, of_weights = torch.bmm(mine, seen_keys.mT), torch.bmm(outer, values[:, begin:end].mT)
            row = (x[some, here].contiguous() for x in (most, sums, minus))
            found, of_products = made.run(products, of_weights, *row, *others, z, y, begin)
            of_query[some, here] = torch.bmm(of_products, seen_keys)
            new = slice(fresh_matrices, None), slice(fresh_rows, None)  # what no block before has added
            of_key[some][new[0], begin:end].baddbmm_(of_products[new].mT, mine[new])
            of_value[some][new[0], begin:end].baddbmm_(found[new].mT, outer[new])
    results = backward_results(*arguments)
    for to, found in zip(results, (of_query, of_key, of_value), strict=True):
        to.copy_(found.view(to.shape))
    return results


INSTEAD: dict[Any, Callable[..., Any]] = {FORWARD: attention, BACKWARD: attention_backward}


def called_instead(extern: Extern) -> Callable[..., Any] | None:
    """What is called in the place of an operator; see ``Wrapper``."""
    return INSTEAD.get(extern.target)
