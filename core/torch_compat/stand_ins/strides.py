"""Strides that eager's kernels give their results, for operators of which torch's stand-ins say something else.

What a stand-in says is taken for the truth: programs branch on it while they are captured, ``reshape`` makes a view or
a copy by it, and results leave compiled graphs with it. ``StandInMode`` is torch's mode, put right by one rule for each
operator that was found to differ when all of torch's OpInfo samples were laid out in other ways (torch 2.13).
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from jitney.torch_compat import torch_private, torch_private_symbolic
from jitney.torch_compat.operator_effects import written_by
from jitney.torch_compat.stand_ins.memory_overlap import check_memory
from jitney.torch_compat.stand_ins.source_sizes import SOURCE_SIZES, check_room
from jitney.torch_compat.stand_ins.tensor_iterator import hint, result_strides

aten = torch.ops.aten
Rule = Callable[..., Any]  # torch's result, the arguments -> tensors laid out as the results (None: as torch says)

# By kernel: the one for CPUs does so, or those of all devices do, since they share TensorIterator.
CPU: dict[Any, Rule] = {}
EVERYWHERE: dict[Any, Rule] = {}

# Operators whose stand-ins torch cannot make; NotImplemented where it can.
INSTEAD: dict[Any, Rule] = {}

# Operators that leave out a result of which torch's stand-ins make an empty tensor: which of them are absent.
ABSENT: dict[Any, Rule] = {}

# Made by TensorIterator though their tags do not say so, and not by it though they do.
ITERATED = {
    aten.elu_backward.default, aten.floor_divide.default, aten.hardsigmoid_backward.default, aten.hardswish.default,
    aten.hardswish_backward.default, aten.hardtanh_backward.default, aten.leaky_relu_backward.default,
    aten.mish_backward.default, aten.mse_loss.default, aten.smooth_l1_loss.default, aten.softplus_backward.default,
}  # fmt: skip
NOT_ITERATED = {aten.binary_cross_entropy_with_logits.default, aten.clone.default, aten.isfinite.default,
                aten.isinf.default, aten.mvlgamma.default}  # fmt: skip
BACKWARDS = {aten.leaky_relu_backward.default, aten.threshold_backward.default}  # their kernels take the input first
NO_NUMBERS = {aten.lerp.Scalar, aten.pow.Tensor_Scalar}  # their kernels have the number, TensorIterator does not

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


def _makes_size(func: Any, args: Sequence[Any]) -> bool:
    """Has its result a size that depends on data? ``index`` asks ``nonzero``; the numbers of constants are known."""
    if torch.Tag.dynamic_output_shape not in func.tags or func is aten.index.Tensor:
        return False
    return any(isinstance(a, torch_private.FakeTensor) and a.constant is None for a in args)


REMEMBERED = 20_000  # operators on stand-ins, some 50 MB


class StandInMode(torch_private.LeanFakeTensorMode):
    """As torch's mode; results have eager's strides.

    ``written``: memory that operators have written to, by its number, also where no version counter tells; ``writes``:
    how often each. ``draws``: the devices on which an operator has drawn numbers. ``sized``: has one made a size that
    depends on data? Such a size may be known to be another one, and look like that.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        torch_private_symbolic.bound_results(REMEMBERED)
        self.written: dict[int, Any] = {}
        self.writes: collections.Counter[int] = collections.Counter()
        self.draws: set[torch.device] = set()
        self.sized = False

    def sized_meta(self) -> dict[str, bool]:
        """Of the operators since the last time, for the ``meta`` of their operation's node."""
        sized, self.sized = self.sized, False
        return {"data_sizes": True} if sized else {}

    def dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """One operator on stand-ins."""
        kwargs = kwargs or {}
        if func in SOURCE_SIZES:
            with self:
                SOURCE_SIZES[func](*args, **kwargs)
        if _writes_elements(func):
            check_room(*args, **kwargs)
            check_memory(func, *args, **kwargs)
        if func in INSTEAD:
            with self:
                instead = INSTEAD[func](*args, **kwargs)
            if instead is not NotImplemented:
                return instead
        if func._schema.is_mutable and func is not aten.detach_.default:
            storages = [x.untyped_storage() for x in written_by(func, tuple(args), dict(kwargs))]
            self.written.update((storage._cdata, storage) for storage in storages)
            self.writes.update(storage._cdata for storage in storages)
        self.sized |= _makes_size(func, args)
        known = _beside_unknown((*args, *kwargs.values()))
        for tensor, _ in known:
            tensor.constant = None
        try:
            made: Any = super().dispatch(func, types, args, kwargs)
        finally:
            for tensor, constant in known if not func._schema.is_mutable else ():
                tensor.constant = constant
        for position, name in _written_lists(func):
            written = args[position] if position < len(args) else kwargs[name]
            torch.autograd.graph.increment_version([x for x in written if not x.is_inference()])
        if func in ABSENT:
            made = tuple(None if absent else m for m, absent in zip(made, ABSENT[func](*args, **kwargs), strict=True))
        if _is_random(func) and not _drops_nothing(func, args, kwargs):
            self.draws.update(m.device for m in (made, *args) if isinstance(m, torch.Tensor))
        rule = EVERYWHERE.get(func) or CPU.get(func)
        if rule is None or made is NotImplemented:
            strided = isinstance(made, torch.Tensor) and made.layout is torch.strided
            return _iterated(func, made, args) if strided and _is_iterated(func) else made
        if func not in EVERYWHERE and _first(made).device.type != "cpu":
            return made
        with self:
            wanted = rule(made, *args, **kwargs)
            if isinstance(made, (list, tuple)):
                wanted = wanted if isinstance(wanted, (list, tuple)) else [wanted] * len(made)
                made = tuple([_laid_out(m, w) for m, w in zip(made, wanted, strict=False)])
                parameters = STATISTICS.get(func)
                if parameters is None:
                    return made
                kept = (p.dtype for p in args[parameters] if isinstance(p, torch.Tensor))
                dtype = next((d for d in kept if d is not args[0].dtype), args[0].dtype)
                return made[0], *(m.new_empty_strided(m.shape, m.stride(), dtype=dtype) for m in made[1:3]), *made[3:]
            return _laid_out(made, wanted)


def _beside_unknown(values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Tensors whose numbers are known, and these, beside a float that nobody knows yet: torch would want both."""
    leaves = [leaf for v in values for leaf in (v if type(v) in (list, tuple) else (v,))]
    if not any(type(leaf) is torch.SymFloat for leaf in leaves):
        return []
    return [(x, x.constant) for x in leaves if type(x) is torch_private.FakeTensor and x.constant is not None]


@functools.cache
def _writes_elements(func: Any) -> bool:
    """Is it in place, element by element?"""
    name = func._schema.name.partition("::")[2]
    if func.namespace != "aten" or not name.endswith("_") or not func._schema.is_mutable:
        return False
    same = [getattr(aten, n) for n in (name, name[:-1]) if hasattr(aten, n)]
    return any(_is_iterated(getattr(packet, o)) for packet in same for o in packet.overloads())


@functools.cache
def _is_iterated(func: Any) -> bool:
    tagged = torch.Tag.pointwise in func.tags and func.namespace == "aten"
    return func in ITERATED or (tagged and func not in NOT_ITERATED)


def _iterated(func: Any, made: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """As TensorIterator lays the result out; sums of losses are as torch says."""
    given = [x for x in args if isinstance(x, torch.Tensor)]
    shape, stride = made.shape, made.stride()
    plain = all(type(n) is int and n > 1 for n in shape)
    if plain and all((x.shape, x.stride()) == (shape, stride) for x in given):
        return made
    if len(shape) < 2 or any(x.dim() > len(shape) for x in given):
        return made
    numbers = "calar" in func._overloadname and func not in NO_NUMBERS
    for x, argument in zip(args, func._schema.arguments, strict=False):
        numbers |= not isinstance(x, torch.Tensor) and isinstance(argument.type, torch.TensorType)
    if made.device.type == "cpu":
        given = [_converted(x, func, made, args) for x in given]
    wanted = result_strides(shape, given[::-1] if func in BACKWARDS else given, numbers=numbers)
    return made if _same(stride, wanted) else made.new_empty_strided(shape, wanted)


def _converted(x: torch.Tensor, func: Any, made: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """CPU's kernels take arguments of one dtype: others are copied, which leaves no gaps."""
    dtype = made.dtype
    if dtype is torch.bool:
        operands: list[Any] = [a for a in args[:2] if isinstance(a, (torch.Tensor, bool, int, float))]
        dtype = torch.result_type(*operands) if len(operands) == 2 else x.dtype
    return x if x.dtype is dtype or (func is aten.where.self and x is args[0]) else aten.clone.default(x)


@functools.cache
def _written_lists(func: Any) -> tuple[tuple[int, str], ...]:
    """Lists whose tensors it writes to: ``_foreach_add_`` and its like do not count that on stand-ins."""
    lists = [(n, a) for n, a in enumerate(func._schema.arguments) if str(a.type) == "List[Tensor]" and not a.kwarg_only]
    return tuple((n, a.name) for n, a in lists if a.alias_info is not None and a.alias_info.is_write)


@functools.cache
def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _drops_nothing(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is it attention whose probability of dropout is zero?"""
    at = next((i for i, a in enumerate(func._schema.arguments) if a.name == "dropout_p"), None)
    if at is None:
        return False
    return bool((args[at] if at < len(args) else kwargs.get("dropout_p", 0.0)) == 0)


def _first(made: Any) -> Any:
    return made[0] if isinstance(made, (list, tuple)) else made


def _laid_out(made: torch.Tensor, like: torch.Tensor | None) -> torch.Tensor:
    if like is None or (_same(made.stride(), like.stride()) and _same(made.shape, like.shape)):
        return made
    return torch.empty_strided(like.shape, like.stride(), dtype=made.dtype, device=made.device)


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Symbolic ones are the same if they are written alike: nothing is guarded."""
    return [getattr(getattr(s, "node", None), "expr", s) for s in some] == [
        getattr(getattr(s, "node", None), "expr", s) for s in others
    ]


def _rule(table: dict[Any, Rule], *targets: Any) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        table.update(dict.fromkeys(targets, rule))
        return rule

    return register


# --- elementwise ------------------------------------------------------------------------------------------------------


@_rule(EVERYWHERE, aten.ldexp.Tensor)
def _like_a_product_with_a_power(made: Any, a: Any, b: Any) -> Any:
    return aten.mul.Tensor(a, aten.pow.Scalar(2.0, b))


@_rule(EVERYWHERE, aten._prelu_kernel.default)
@_rule(EVERYWHERE, aten._to_copy.default, aten.deg2rad.default, aten.empty_like.default, aten.fill.Scalar,
       aten.flip.default, aten.frexp.Tensor, aten.full_like.default, aten.hardtanh.default, aten.huber_loss.default,
       aten.index_put.default, aten.nan_to_num.default, aten.ones_like.default, aten.rad2deg.default,
       aten.rand_like.default, aten.randn_like.default, aten.sort.default, aten.sort.stable,
       aten.zeros_like.default)  # fmt: skip
def _like_its_input(made: Any, x: Any, *rest: Any, memory_format: Any = None, **options: Any) -> Any:
    if not isinstance(x, torch.Tensor) or not all(type(n) is int for n in (*x.shape, *x.stride())):
        return None  # a symbolic one is cloned by way of ``empty_like``
    return aten.clone.default(x, memory_format=memory_format) if x.shape == _first(made).shape else None


@_rule(CPU, aten.index.Tensor, aten._unsafe_index.Tensor)
def _picked(made: Any, x: Any, indices: Sequence[Any]) -> Any:
    """TensorIterator takes the input, with a stride of zero where it is indexed, and then each index."""
    given = [i for i in indices if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for i in given):
        return None  # how many elements a mask picks, nobody knows
    at = [dim for dim, i in enumerate(indices) if i is not None]
    first = at[0]
    if at != [*range(first, first + len(at))]:
        first, x = 0, x.permute(*at, *(dim for dim in range(x.dim()) if dim not in at))
    given = torch.broadcast_tensors(*given)
    before, after = x.stride()[:first], x.stride()[first + len(at) :]
    with torch_private.without_modes():
        taken = _of_hints(made.shape, (*before, *[0] * given[0].dim(), *after))
        spread = [_of_hints(i.shape, i.stride()) for i in given]
        spread = [i.reshape([1] * len(before) + [*i.shape] + [1] * len(after)) for i in spread]
    return torch.empty_strided(made.shape, result_strides(made.shape, [taken, *spread], numbers=False))


def _of_hints(shape: Sequence[Any], stride: Sequence[Any]) -> torch.Tensor:
    """A tensor without data, of sizes as they were when captured: as ATen itself lays out views of it."""
    return torch.empty_strided([*map(hint, shape)], [*map(hint, stride)], device="meta")


# --- in the memory format that the argument suggests ----------------------------------------------------------------


@_rule(CPU, aten.roll.default)
def _roll(made: Any, x: Any, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    """Made by joining two parts, dimension by dimension, the last first; without dimensions it is flattened."""
    if not dims:
        return torch.empty(made.shape)
    if any(type(n) is int and n == 0 for n in x.shape):
        return None
    for shift, dim in zip(reversed(shifts), reversed(dims), strict=True):
        size = x.shape[dim]
        start = (size - shift) % size
        x = torch.cat([x.narrow(dim, start, size - start), x.narrow(dim, 0, start)], dim)
    return x


@_rule(EVERYWHERE, aten.upsample_bilinear2d.default, aten.upsample_bilinear2d.vec)
@_rule(CPU, aten.channel_shuffle.default, aten.max_unpool2d.default, aten.reflection_pad3d.default,
       aten.replication_pad3d.default)  # fmt: skip
def _in_its_format(made: Any, x: Any, *rest: Any, **options: Any) -> Any:
    return torch.empty(made.shape, memory_format=torch_private.suggest_memory_format(x))


@_rule(CPU, aten.native_group_norm.default)
def _in_its_format_beside_others(made: Any, x: Any, *rest: Any, **options: Any) -> Any:
    return torch.empty(x.shape, memory_format=torch_private.suggest_memory_format(x)), None, None


@_rule(CPU, aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit_no_training.default)
def _as_torch_says(*args: Any, **options: Any) -> Any:
    return (None,) * 5


@_rule(CPU, aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
       aten._native_batch_norm_legit.no_stats)  # fmt: skip
def _normed(made: Any, x: Any, *rest: Any, **options: Any) -> Any:
    formats = (torch.contiguous_format, torch_private.suggest_memory_format(x))
    if any(x.is_contiguous(memory_format=f) for f in formats):
        return None, None, None
    return torch.empty(x.shape), None, None


# --- always contiguous ----------------------------------------------------------------------------------------------


@_rule(EVERYWHERE, aten.huber_loss_backward.default, aten.index_add.default, aten.isin.Tensor_Tensor,
       aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.mse_loss_backward.default, aten.poisson.default,
       aten.pow.Scalar, aten.renorm.default, aten.smooth_l1_loss_backward.default, aten.tril.default,
       aten.triu.default)  # fmt: skip
@_rule(CPU, aten._standard_gamma.default, aten.log_sigmoid_forward.default, aten.normal.Tensor_Tensor,
       aten.rrelu_with_noise.default)  # fmt: skip
def _contiguous(made: Any, *rest: Any, **options: Any) -> Any:
    return torch.empty(_first(made).shape)


@_rule(EVERYWHERE, aten.native_layer_norm_backward.default)
@_rule(CPU, aten.native_layer_norm.default)
def _contiguous_beside_others(made: Any, *rest: Any, **options: Any) -> Any:
    return None if made[0] is None else torch.empty(made[0].shape), None, None


# --- sizes ----------------------------------------------------------------------------------------------------------


@_rule(CPU, aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _bags(made: Any, weight: Any, *rest: Any, **options: Any) -> Any:
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


@_rule(INSTEAD, aten.linalg_vector_norm.default)
def _vector_norm(x: Any, order: Any = 2, dim: Any = None, *rest: Any, **options: Any) -> Any:
    """torch's of 2.11 keeps a dimension of size 1 that is counted from the end."""
    if not dim or min(dim) >= 0:
        return NotImplemented
    return aten.linalg_vector_norm.default(x, order, [d % max(x.dim(), 1) for d in dim], *rest, **options)


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


def _transformed(x: Any, dim: Sequence[int], length: Any, dtype: torch.dtype) -> Any:
    """A transform along one dimension, which is innermost then; torch's cannot resize what has symbolic sizes."""
    plain = x.device.type == "cpu" and not torch.backends.mkl.is_available()
    if plain or len(dim) != 1 or all(type(n) is int for n in x.shape):
        return NotImplemented
    stride = x.stride()
    order = [*sorted((d for d in range(x.dim()) if d != dim[0]), key=lambda d: stride[d], reverse=True), dim[0]]
    size = [length if d == dim[0] else n for d, n in enumerate(x.shape)]
    steps, step = [1] * x.dim(), 1
    for d in reversed(order):
        steps[d], step = step, step * size[d]
    return torch.empty_strided(size, steps, dtype=dtype, device=x.device)


@_rule(INSTEAD, aten._fft_r2c.default)
def _real_transform(x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    length = x.shape[dim[-1]]
    return _transformed(x, dim, length // 2 + 1 if onesided else length, x.dtype.to_complex())


@_rule(INSTEAD, aten._fft_c2c.default)
def _complex_transform(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    return _transformed(x, dim, x.shape[dim[-1]], x.dtype) if dim else NotImplemented


@_rule(INSTEAD, aten._fft_c2r.default)
def _inverse_real_transform(x: Any, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    x = x.contiguous() if x.device.type == "cuda" else x
    return _transformed(x, dim, last_dim_size, x.dtype.to_real())


def _in_the_inputs_dtype(loss: Any, x: Any, target: Any, *more: Any, **named: Any) -> Any:
    """Losses whose result has the input's dtype, whatever the target's; torch's stand-ins have the wider one."""
    if x.dtype is target.dtype or not x.dtype.is_floating_point:
        return NotImplemented
    return loss(x, target.to(x.dtype), *more, **named)


for _loss in (aten.huber_loss.default, aten.soft_margin_loss.default):
    INSTEAD[_loss] = functools.partial(_in_the_inputs_dtype, _loss)


@_rule(INSTEAD, aten._is_all_true.default)
def _all_true(x: Any) -> Any:
    """What distributions ask of their arguments; of symbolic sizes torch's stand-in fails where capture calls it.

    Torch knows what constants hold, and computes with that: so this is no empty tensor.
    """
    return x.all()


@_rule(INSTEAD, aten._is_any_true.default)
def _any_true(x: Any) -> Any:
    return x.any()


@_rule(
    INSTEAD, aten.mul_.Tensor, aten.mul_.Scalar, aten.add_.Tensor, aten.add_.Scalar, aten.sub_.Tensor, aten.sub_.Scalar,
    aten.addcmul_.default, aten.addcdiv_.default,
)  # fmt: skip
def _in_place(x: Any, *others: Any, **options: Any) -> Any:
    """Integers times a float raise, of which torch's stand-in knows nothing; so do reals and complex numbers."""
    if type(x) is not torch_private.FakeTensor:
        return NotImplemented
    if not all(torch.can_cast(torch.result_type(x, other), x.dtype) for other in others):
        raise RuntimeError(f"the result can't be cast to the desired output type {x.dtype}")
    return NotImplemented


@_rule(INSTEAD, aten.multi_margin_loss.default)
def _margin_loss(
    x: Any, target: Any, p: Any = 1, margin: Any = 1, weight: Any = None, reduction: int = 1, **options: Any
) -> Any:
    """Of one sample without a batch, not reduced: one number, where torch's stand-in has a batch of one."""
    return x.new_empty(()) if reduction == 0 and target.dim() == 0 else NotImplemented


@_rule(INSTEAD, aten.multilabel_margin_loss_forward.default)
def _margin_loss_of_several_labels(x: Any, target: Any, reduction: int, **options: Any) -> Any:
    """As that of one label."""
    one = reduction == 0 and target.dim() == 1
    return (x.new_empty(()), torch.empty_like(target, dtype=x.dtype)) if one else NotImplemented
