"""What torch's operators do though their schemas do not say so."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten
# Operators whose results are views of their first argument though their schemas do not say so.
VIEWS: frozenset[Any] = frozenset(
    (_aten._unsafe_view.default, _aten.unsafe_split.Tensor, _aten.unsafe_split_with_sizes.default)
)
# In-place operators after which a tensor has other sizes or strides, in eager too.
RESHAPING = frozenset({"t_", "transpose_", "swapdims_", "swapaxes_", "squeeze_", "unsqueeze_", "as_strided_", "set_"})
# Operators that convert numbers to the dtype of a tensor, and raise if that cannot hold them.
CONVERTED_NUMBERS: frozenset[Any] = frozenset(
    (
        _aten.full.default, _aten.full_like.default, _aten.new_full.default, _aten.scalar_tensor.default,
        _aten.fill.Scalar, _aten.masked_fill.Scalar, _aten.index_fill.int_Scalar, _aten.constant_pad_nd.default,
        _aten.scatter.value, _aten.scatter.value_reduce, _aten.clamp.default, _aten.clamp_min.default,
        _aten.clamp_max.default, _aten.add.Tensor, _aten.sub.Tensor, _aten.rsub.Tensor,
    )
)  # fmt: skip
# Of these, such as give floats for integers where the number is a float.
PROMOTING_NUMBERS = frozenset((_aten.clamp.default, _aten.clamp_min.default, _aten.clamp_max.default))
# Operators that write to running statistics though no schema says so: the positions of these, and of what says whether.
HIDDEN_WRITES: dict[Any, tuple[int, int, int | None]] = {
    _aten.native_batch_norm.default: (3, 4, 5),
    _aten.cudnn_batch_norm.default: (3, 4, 5),
    _aten.miopen_batch_norm.default: (3, 4, 5),
    _aten.batch_norm_update_stats.default: (1, 2, None),
    _aten.batch_norm_gather_stats.default: (3, 4, None),
    _aten.batch_norm_gather_stats_with_counts.default: (3, 4, None),
}
# Where the running mean is among the arguments of a norm, by the module of its function.
RUNNING_MEANS = {"torch.nn.functional": 1, "torch": 3}
# Functions whose writes the tensors' version counters do not count.
UNCOUNTED = {
    name: getattr(_aten, name).default
    for name in (
        "_amp_foreach_non_finite_check_and_unscale_",
        "_amp_update_scale_",
        "_cummax_helper",
        "_cummin_helper",
        "_fused_adagrad_",
        "_fused_adam_",
        "_fused_adamw_",
        "_fused_moving_avg_obs_fq_helper",
        "_fused_sgd_",
        "fused_moving_avg_obs_fake_quant",
        "rrelu_with_noise",
    )
}


def hidden_writes(node: Any) -> list[Any]:
    """Arguments of an FX node that its operator writes to though no schema says so: batch norm's running statistics."""
    if node.op != "call_function":
        return []
    return _hidden_writes(node.target, node.args)


def _hidden_writes(func: Any, args: Any) -> list[Any]:
    if func not in HIDDEN_WRITES:
        return []
    first, second, training = HIDDEN_WRITES[func]
    if training is not None and not args[training]:
        return []
    return [args[n] for n in (first, second) if args[n] is not None]


def written_by(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call of an operator writes to, declared or not."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return _hidden_writes(func, args)
    found: list[torch.Tensor] = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        found += [t for t in (value if isinstance(value, list | tuple) else [value]) if isinstance(t, torch.Tensor)]
    return found


def count_writes(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Have version counters count what a call of a function, by its name, has written to without counting."""
    if name in UNCOUNTED:
        written = written_by(UNCOUNTED[name], args, kwargs)
        torch.autograd.graph.increment_version([t for t in written if not t.is_inference()])


def writes_statistics(node: fx.Node) -> bool:
    """A normalisation that may write its running statistics; their stand-ins do not show it."""
    name = str(getattr(node.target, "__name__", node.target))
    if not node.op.startswith("call_") or ("batch_norm" not in name and "instance_norm" not in name):
        return False
    place = RUNNING_MEANS.get(str(getattr(node.target, "__module__", None)))
    if place is not None and name in ("batch_norm", "instance_norm"):
        mean = node.args[place] if len(node.args) > place else node.kwargs.get("running_mean")
        if mean is None:
            return False
    training = node.args[5] if len(node.args) > 5 else node.kwargs.get("training", node.kwargs.get("use_input_stats"))
    return training is not False
