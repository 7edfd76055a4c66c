"""Strides that eager's kernels give their results, for operators of which torch's stand-ins say something else.

What a stand-in says is taken for the truth: programs branch on it while they are captured, ``reshape`` makes a view or
a copy by it, and results leave compiled graphs with it. ``StandInMode`` is torch's mode, put right by one rule for each
operator that was found to differ when all of torch's OpInfo samples were laid out in other ways (torch 2.13).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from jitney.torch_compat import torch_private

aten = torch.ops.aten
Rule = Callable[..., Any]  # the operator's arguments -> tensors laid out as its results (None: as torch says)

# By kernel: the one for CPUs does so, or those of all devices do, since they share TensorIterator.
CPU: dict[Any, Rule] = {}
EVERYWHERE: dict[Any, Rule] = {}

# Operators whose stand-ins torch cannot make; NotImplemented where it can.
INSTEAD: dict[Any, Rule] = {}

# Operators that leave out a result of which torch's stand-ins make an empty tensor: which of them are absent.
ABSENT: dict[Any, Rule] = {}

HALVES = (torch.float16, torch.bfloat16)

# Norms keep their statistics in the dtype of their parameters (these arguments), if that is not the input's.
STATISTICS: dict[Any, slice] = {
    aten.native_batch_norm.default: slice(1, 5),
    aten._native_batch_norm_legit.default: slice(1, 5),
    aten._native_batch_norm_legit_functional.default: slice(1, 5),
    aten._native_batch_norm_legit_no_training.default: slice(1, 5),
    aten._native_batch_norm_legit.no_stats: slice(1, 3),
    aten.native_group_norm.default: slice(1, 3),
    aten.native_layer_norm.default: slice(2, 4),
}


class StandInMode(torch_private.LeanFakeTensorMode):
    """As torch's mode; results have eager's strides. ``draws``: the devices on which an operator has drawn numbers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.draws: set[torch.device] = set()

    def dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """One operator on stand-ins."""
        kwargs = kwargs or {}
        if func in INSTEAD:
            with self:
                instead = INSTEAD[func](*args, **kwargs)
            if instead is not NotImplemented:
                return instead
        made: Any = super().dispatch(func, types, args, kwargs)
        if func in ABSENT:
            made = tuple(None if absent else m for m, absent in zip(made, ABSENT[func](*args, **kwargs), strict=True))
        if _is_random(func) and not _drops_nothing(func, args, kwargs):
            self.draws.update(m.device for m in (made, *args) if isinstance(m, torch.Tensor))
        rule = EVERYWHERE.get(func)
        if rule is None and isinstance(made, torch.Tensor) and _converts_expanded(func, args):
            rule = func
            with self:
                args = tuple([_single(a) if isinstance(a, torch.Tensor) else a for a in args])
        if rule is None:
            rule = CPU.get(func)
            if rule is None or not _is_cpu(made):
                return made
        with self:
            wanted = rule(*args, **kwargs)
            if isinstance(made, (list, tuple)):
                made = tuple([_laid_out(m, w) for m, w in zip(made, wanted, strict=False)])
                parameters = STATISTICS.get(func)
                if parameters is None:
                    return made
                dtype = _kept_dtype(args[0], *args[parameters])
                return made[0], *(_of_dtype(m, dtype) for m in made[1:3]), *made[3:]
            return _laid_out(made, wanted)


def _converts_expanded(func: Any, args: Sequence[Any]) -> bool:
    """Do torch's Python references convert an expanded tensor of halves, which makes it dense? Kernels do not."""
    if torch.Tag.pointwise not in func.tags or func.namespace != "aten" or func is aten._to_copy.default:
        return False
    return any(
        isinstance(a, torch.Tensor)
        and a.dtype in HALVES
        and any(type(step) is int and step == 0 and size != 1 for size, step in zip(a.shape, a.stride(), strict=True))
        for a in args
    )


def _single(x: torch.Tensor) -> torch.Tensor:
    """Halves as float32, where they lie as they do."""
    return torch.empty_strided(x.shape, x.stride(), dtype=torch.float32, device=x.device) if x.dtype in HALVES else x


@functools.cache
def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _drops_nothing(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is it attention whose probability of dropout is zero?"""
    at = next((i for i, a in enumerate(func._schema.arguments) if a.name == "dropout_p"), None)
    if at is None:
        return False
    return bool((args[at] if at < len(args) else kwargs.get("dropout_p", 0.0)) == 0)


def _is_cpu(made: Any) -> bool:
    first = made[0] if isinstance(made, (list, tuple)) else made
    return isinstance(first, torch.Tensor) and first.device.type == "cpu"


def _laid_out(made: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor:
    if like is None or (_same(made.stride(), like.stride()) and _same(made.shape, like.shape)):
        return made
    return torch.empty_strided(like.shape, like.stride(), dtype=made.dtype, device=made.device)


def _of_dtype(made: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if made.dtype is dtype:
        return made
    return torch.empty_strided(made.shape, made.stride(), dtype=dtype, device=made.device)


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Symbolic ones are the same if they are written alike: nothing is guarded."""
    return [getattr(getattr(s, "node", None), "expr", s) for s in some] == [
        getattr(getattr(s, "node", None), "expr", s) for s in others
    ]


def _kept_dtype(x: torch.Tensor, *parameters: Any) -> torch.dtype:
    found = (p.dtype for p in parameters if isinstance(p, torch.Tensor) and p.dtype is not x.dtype)
    return next(found, x.dtype)


def _rule(table: dict[Any, Rule], *targets: Any) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        table.update(dict.fromkeys(targets, rule))
        return rule

    return register


# --- elementwise: torch's Python references order equal strides otherwise than TensorIterator -----------------------


@_rule(EVERYWHERE, aten.copysign.Tensor, aten.div.Tensor_mode, aten.floor_divide.default, aten.heaviside.default,
       aten.logaddexp.default, aten.logaddexp2.default, aten.logical_and.default, aten.logical_or.default,
       aten.logical_xor.default)  # fmt: skip
def _like_a_sum(a: Any, b: Any, *rest: Any, **options: Any) -> Any:
    return aten.add.Tensor(a, b)


@_rule(EVERYWHERE, aten.ldexp.Tensor)
def _like_a_product_with_a_power(a: Any, b: Any) -> Any:
    return aten.add.Tensor(a, _power(2.0, b))


@_rule(EVERYWHERE, aten.smooth_l1_loss.default, aten.mse_loss.default)
def _like_a_difference(x: Any, target: Any, reduction: int = 1, *rest: Any, **options: Any) -> Any:
    return None if reduction else aten.sub.Tensor(x, target)


@_rule(EVERYWHERE, aten.huber_loss.default)
def _like_its_input(x: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    return None if reduction or x.shape != target.shape else torch.empty_like(x)


@_rule(EVERYWHERE, aten.native_dropout_backward.default)
def _like_a_masked_one(grad: Any, mask: Any, scale: float) -> Any:
    return aten.add.Tensor(grad, mask)


# --- in the memory format that the argument suggests ----------------------------------------------------------------


@_rule(CPU, aten.roll.default)
def _roll(x: Any, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    """Made by joining two parts, dimension by dimension, the last first; without dimensions it is flattened."""
    if not dims:
        return torch.empty(x.shape, dtype=x.dtype)
    if any(type(n) is int and n == 0 for n in x.shape):
        return None
    for shift, dim in zip(reversed(shifts), reversed(dims), strict=True):
        size = x.shape[dim]
        start = (size - shift) % size
        x = torch.cat([x.narrow(dim, start, size - start), x.narrow(dim, 0, start)], dim)
    return x


@_rule(CPU, aten.channel_shuffle.default)
def _shuffled(x: Any, groups: int) -> Any:
    return torch.empty(x.shape, memory_format=torch_private.suggest_memory_format(x))


@_rule(CPU, aten.reflection_pad3d.default, aten.replication_pad3d.default)
def _padded(x: Any, padding: Sequence[Any]) -> Any:
    size = list(x.shape)
    for k in range(3):
        size[-1 - k] = size[-1 - k] + padding[2 * k] + padding[2 * k + 1]
    return torch.empty(size, memory_format=torch_private.suggest_memory_format(x))


@_rule(CPU, aten.max_unpool2d.default)
def _unpooled(x: Any, indices: Any, size: Sequence[Any]) -> Any:
    return torch.empty([*x.shape[:-2], *size], memory_format=torch_private.suggest_memory_format(x))


@_rule(CPU, aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit_no_training.default,
       aten.native_group_norm.default, aten.native_layer_norm.default)  # fmt: skip
def _as_torch_says(*args: Any, **options: Any) -> Any:
    return (None,) * 5


@_rule(CPU, aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
       aten._native_batch_norm_legit.no_stats)  # fmt: skip
def _normed(x: Any, *rest: Any, **options: Any) -> Any:
    formats = (torch.contiguous_format, torch_private.suggest_memory_format(x))
    if any(x.is_contiguous(memory_format=f) for f in formats):
        return None, None, None
    return torch.empty(x.shape), None, None


# --- always contiguous ----------------------------------------------------------------------------------------------


@_rule(EVERYWHERE, aten.pow.Scalar)
def _power(base: Any, exponent: Any) -> Any:
    return torch.empty(exponent.shape)


@_rule(CPU, aten._standard_gamma.default, aten.rrelu_with_noise.default)
def _like_the_first(x: Any, *rest: Any, **options: Any) -> Any:
    return torch.empty(x.shape)


@_rule(CPU, aten.normal.Tensor_Tensor)
def _contiguous(a: Any, b: Any, *rest: Any, **options: Any) -> Any:
    return torch.empty(torch.broadcast_shapes(a.shape, b.shape))


@_rule(CPU, aten.log_sigmoid_forward.default)
def _contiguous_two(x: Any) -> Any:
    made = torch.empty(x.shape)
    return made, made


# --- sizes ----------------------------------------------------------------------------------------------------------


@_rule(CPU, aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _bags(weight: Any, *rest: Any, **options: Any) -> Any:
    """The kernel leaves out results that only slower ones need, for bfloat16 as for float16."""
    if weight.dtype is not torch.bfloat16:
        return None, None, None, None
    rest = tuple(r.half() if isinstance(r, torch.Tensor) and r.is_floating_point() else r for r in rest)
    _, *others = aten._embedding_bag.default(weight.half(), *rest, **options)
    return None, *others


@_rule(ABSENT, aten._native_multi_head_attention.default)
def _weights(*args: Any, need_weights: bool = True, **options: Any) -> Any:
    """The weights are not there if nobody wants them."""
    return False, not (args[10] if len(args) > 10 else need_weights)


# --- torch's own does not take the operator's arguments --------------------------------------------------------------


@_rule(INSTEAD, aten._efficient_attention_backward.default)
def _efficient_attention(grad: Any, query: Any, key: Any, value: Any, bias: Any, *rest: Any, **options: Any) -> Any:
    """torch's (2.11 to 2.13) has no place for the forward's result, which comes after the bias."""
    if options.get("shared_storage_dqdkdv"):
        parts = query.new_empty((*query.shape[:-2], 3, *query.shape[-2:]))
        gradients = tuple(parts.select(-3, n) for n in range(3))
    else:
        gradients = tuple(torch.empty_like(x) for x in (query, key, value))
    if bias is None:
        return *gradients, query.new_empty((), dtype=torch.float32)
    last = bias.shape[-1]
    return *gradients, bias.new_empty((*bias.shape[:-1], (last + 15) // 16 * 16))[..., :last]


@_rule(INSTEAD, aten._efficientzerotensor.default)
def _zeros(*size: Any, **options: Any) -> Any:
    """Forward-mode AD's zeros without memory: what operators make of them would be no stand-ins under ``vmap``."""
    return aten.zeros.default(*size, **options)


@_rule(INSTEAD, aten.constant_pad_nd.default)
def _with_an_edge(x: Any, pad: Sequence[Any], value: Any = 0) -> Any:
    """torch's takes no symbolic amounts."""
    if not any(isinstance(amount, torch.SymInt) for amount in pad) or len(pad) % 2 or len(pad) > 2 * x.dim():
        return NotImplemented
    size, inner = list(x.shape), x
    for k in range(len(pad) // 2):
        at, before, after = x.dim() - 1 - k, pad[2 * k], pad[2 * k + 1]
        size[at] = size[at] + before + after
        if size[at] < 0:
            raise RuntimeError(f"padding by {before} and {after} resulted in a negative output size")
        if before < 0:
            inner = inner.narrow(at, -before, inner.shape[at] + before)
        if after < 0:
            inner = inner.narrow(at, 0, inner.shape[at] + after)
    if all(amount <= 0 for amount in pad):
        return inner.clone()
    return torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch_private.suggest_memory_format(x))
