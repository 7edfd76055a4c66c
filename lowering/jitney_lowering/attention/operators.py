"""Attention and its gradient as operators: what backends find in a graph whose products and softmax were so written.

``softmax(score(query @ key.mT)) @ value``, where nobody has to hold the products of all queries and keys. What is
registered here holds them: it says what is right, and serves whoever has no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from jitney.torch_compat import torch_private
from jitney_lowering.attention.score import Score


def attention(
    query: Tensor, key: Tensor, value: Tensor, others: Sequence[Tensor], score: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The attention of each query, and what its softmax is made of.

    The largest score and the sum of ``exp(score - largest)`` are kept apart: the logarithm of the sum would be lost
    beside -1e30, which all scores of a query are that sees no key.

    Args:
        query: (..., M, D).
        key: (..., N, D).
        value: (..., N, E), of as many matrices; their batch may have another shape.
        others: what the score reads besides the products.
        score: the text of a ``Score``, over the batch as the softmax has it.

    Returns:
        (..., M, E) with the value's batch and dtype, contiguous; twice float32 (..., M) with the query's batch: the
        largest score (0 if that is minus infinity) and the sum (1 instead of 0, if the softmax is safe).
    """
    found = _scores(query, key, others, score)[0]
    safe = Score.of(score).safe
    weights = torch_private.safe_softmax(found, -1) if safe else found.softmax(-1)
    flat = value.reshape(-1, *value.shape[-2:])
    result = torch.bmm(weights.reshape(len(flat), *weights.shape[-2:]).to(value.dtype), flat)
    largest = found.amax(-1)
    largest = largest.masked_fill(largest == float("-inf"), 0.0)
    total = (found - largest.unsqueeze(-1)).exp().sum(-1)
    if safe:
        total = total.masked_fill(total == 0, 1.0)
    statistics = [x.view(query.shape[:-1]).to(torch.float32) for x in (largest, total)]
    return result.view(*value.shape[:-2], *result.shape[-2:]), *statistics


class Given(NamedTuple):
    """What the operators of the backward are given.

    Args:
        gradient: of the result.
        result, largest, total: what ``attention`` gave; everything else is as there.
    """

    gradient: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    others: Sequence[Tensor]
    result: Tensor
    largest: Tensor
    total: Tensor
    score: str


def attention_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value: contiguous; the key's as (..., D, N), as products of matrices give it.

    Args:
        arguments: see ``Given``.
    """
    given = Given(*arguments)
    query, key, value = given.query, given.key, given.value
    count, wide = value.shape[:-2].numel(), torch.float32
    weights, of_found = _of_softmax(given)
    of_value = torch.bmm(weights.mT, given.gradient.reshape(count, *given.gradient.shape[-2:]).to(wide))
    size = Score.of(given.score).size
    of_scores = _scores(query, key, given.others, given.score, of_found.reshape(size))[1].reshape(of_found.shape)
    of_query = torch.bmm(of_scores, key.reshape(count, *key.shape[-2:]).to(wide))
    of_key = torch.bmm(of_scores.mT, query.reshape(count, *query.shape[-2:]).to(wide))
    made = zip((of_query, of_key, of_value), (query, key, value), strict=True)
    dq, dk, dv = (x.to(like.dtype).view(like.shape) for x, like in made)
    return dq, dk.mT.contiguous().mT, dv


def attention_scores_backward(*arguments: Any) -> Tensor:
    """The gradient of what the softmax is taken of, float32: what gradients of others are computed of.

    It is as large as all products: who learns a bias has such a tensor in the backward, one at a time.

    Args:
        arguments: see ``Given``.
    """
    given = Given(*arguments)
    return _of_softmax(given)[1].view(Score.of(given.score).size)


def _of_softmax(given: Given) -> tuple[Tensor, Tensor]:
    """The weights, and the gradient of what they were computed of: float32, with one dimension of batch."""
    count = given.value.shape[:-2].numel()
    value, gradient = (x.reshape(count, *x.shape[-2:]).to(torch.float32) for x in (given.value, given.gradient))
    found = _scores(given.query, given.key, given.others, given.score)[0]
    weights = (found.reshape(count, *found.shape[-2:]) - given.largest.reshape(count, -1, 1)).exp()
    weights = weights / given.total.reshape(count, -1, 1)
    of_weights = torch.bmm(gradient, value.mT)
    return weights, weights * (of_weights - (gradient * given.result.reshape(gradient.shape)).sum(-1, keepdim=True))


def _scores(query: Tensor, key: Tensor, others: Sequence[Tensor], text: str, *gradient: Tensor) -> Any:
    """What the softmax is taken of, in float32; then the gradient of the products, if one is given."""
    score = Score.of(text)
    products = _products(query, key)
    if score.gradient and not gradient:
        gradient = (torch.zeros_like(score.result, device=query.device),)  # nobody looks at what comes of it
    inputs = [products, *others, *gradient]
    return fx.Interpreter(score.filled(inputs, query.device)).run(*inputs)


def _products(query: Tensor, key: Tensor) -> Tensor:
    count = query.shape[:-2].numel()
    wide = [x.reshape(count, *x.shape[-2:]).to(torch.float32) for x in (query, key)]
    return torch.bmm(wide[0], wide[1].mT).view(*query.shape[:-1], key.size(-2))


def attention_results(
    query: Tensor, key: Tensor, value: Tensor, others: Sequence[Tensor], score: str
) -> tuple[Tensor, Tensor, Tensor]:
    """New memory for what ``attention`` gives."""
    result = value.new_empty((*value.shape[:-2], query.size(-2), value.size(-1)))
    largest, total = (query.new_empty(query.shape[:-1], dtype=torch.float32) for _ in range(2))
    return result, largest, total


def backward_results(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """New memory for what ``attention_backward`` gives."""
    given = Given(*arguments)
    query, key, value = given.query, given.key, given.value
    return query.new_empty(query.shape), key.new_empty(key.mT.shape).mT, value.new_empty(value.shape)


def scores_backward_results(*arguments: Any) -> Tensor:
    """New memory for what ``attention_scores_backward`` gives."""
    given = Given(*arguments)
    return given.query.new_empty(Score.of(given.score).size, dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, others, ctx.score = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(query, key, value, *output, *others)


def _gradients(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Any, ...]:
    query, key, value, result, largest, total, *others = ctx.saved_tensors
    given = Given(gradient, query, key, value, others, result, largest, total, ctx.score)
    found, score = BACKWARD(*given), Score.of(ctx.score)
    of_others: list[Tensor | None] = [None] * len(others)
    if score.learned:
        module = score.of_learned(query.device)
        placeholders = list(module.graph.find_nodes(op="placeholder"))
        products, last = placeholders[0], placeholders[-1]
        tangent = SCORES_BACKWARD(*given).to(score.dtype) if last.users else None
        inputs = (_products(query, key) if products.users else None, *others, tangent)
        made = fx.Interpreter(module).run(*inputs)
        for at, each in zip(score.learned, made, strict=True):
            of_others[at] = each
    return (*found, of_others, None)


def _refuse(ctx: Any, *_: Any) -> None:
    raise NotImplementedError("attention as one operator has no second derivatives; options={'fused_attention': False}")


_library = torch.library.Library("jitney", "FRAGMENT")
_library.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor[] others, str score) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor[] others, Tensor result, "
    "Tensor largest, Tensor total, str score) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "attention_scores_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor[] others, "
    "Tensor result, Tensor largest, Tensor total, str score) -> Tensor"
)
_library.impl("attention_scores_backward", attention_scores_backward, "CompositeExplicitAutograd")
_library.impl("attention", attention, "CompositeExplicitAutograd")
_library.impl("attention_backward", attention_backward, "CompositeExplicitAutograd")
torch.library.register_fake("jitney::attention", attention_results, lib=_library)
torch.library.register_fake("jitney::attention_backward", backward_results, lib=_library)
torch.library.register_fake("jitney::attention_scores_backward", scores_backward_results, lib=_library)
torch.library.register_autograd("jitney::attention", _gradients, setup_context=_keep, lib=_library)
for _name in ("attention_backward", "attention_scores_backward"):
    torch.library.register_autograd(f"jitney::{_name}", _refuse, lib=_library)
FORWARD = torch.ops.jitney.attention.default
BACKWARD = torch.ops.jitney.attention_backward.default
SCORES_BACKWARD = torch.ops.jitney.attention_scores_backward.default
