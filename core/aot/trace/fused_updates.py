"""torch's fused optimizers, and what a gradient scaler does to a list of gradients, operator by operator.

Their functional forms return lists of copies, which ATen graphs cannot hold, and nothing could be fused with them. The
formulas are those of ``ATen/native/cpu/Fused*Kernel.cpp`` and ``native/cuda/fused_*``: halves are computed with in
float32 and rounded at the end, and nothing is written where ``found_inf`` is 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensors = Sequence[torch.Tensor]
Number = Any  # a float, or a tensor of one
HALVES = (torch.float16, torch.bfloat16)


class _Update:
    """What one call does to the tensors of each parameter.

    Args:
        maximize: do parameters go up?
        grad_scale: what gradients are divided by, for good.
        found_inf: is it 1, nothing is written.
    """

    def __init__(self, maximize: bool, grad_scale: torch.Tensor | None, found_inf: torch.Tensor | None) -> None:
        self.maximize = maximize
        self.grad_scale = grad_scale
        self.skip = None if found_inf is None else found_inf == 1

    def gradient(self, held: torch.Tensor) -> torch.Tensor:
        """The gradient as the formula has it."""
        found = wide(held)
        if self.grad_scale is not None:
            found = found / self.grad_scale
            self.write(held, found)
        return -found if self.maximize else found

    def write(self, into: torch.Tensor, value: torch.Tensor) -> None:
        """Store a value, unless all is left out."""
        value = value.to(into.dtype)
        into.copy_(value if self.skip is None else torch.where(self.skip, into, value))


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """In the precision that is computed with."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def _exactly(number: Number) -> Number:
    return number.double() if isinstance(number, torch.Tensor) else number


def _as(number: Number, like: torch.Tensor) -> Number:
    return number.to(like.dtype) if isinstance(number, torch.Tensor) else number


def _adam(
    decoupled: bool,
    parameters: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    lr: Number,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    update = _Update(maximize, grad_scale, found_inf)
    for at, (held, grad) in enumerate(zip(parameters, grads, strict=True)):
        p, g, m, v = wide(held), update.gradient(grad), wide(exp_avgs[at]), wide(exp_avg_sqs[at])
        steps = state_steps[at].double()
        size = (_exactly(lr) / (1 - torch.pow(beta1, steps))).to(p.dtype)
        correction = (1 - torch.pow(beta2, steps)).sqrt().to(p.dtype)
        if weight_decay and decoupled:
            p = p * _as(1 - _exactly(lr) * weight_decay, p)
        elif weight_decay:
            g = g + p * weight_decay
        m = m.lerp(g, 1 - beta1) if p.device.type == "cpu" else beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        update.write(exp_avgs[at], m)
        update.write(exp_avg_sqs[at], v)
        largest = v
        if amsgrad:
            largest = torch.maximum(wide(max_exp_avg_sqs[at]), v)
            update.write(max_exp_avg_sqs[at], largest)
        update.write(held, p - size * m / (largest.sqrt() / correction + eps))


def _sgd(
    parameters: Tensors,
    grads: Tensors,
    momentum_buffer_list: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Number,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    update = _Update(maximize, grad_scale, found_inf)
    for at, (held, grad) in enumerate(zip(parameters, grads, strict=True)):
        p, g = wide(held), update.gradient(grad)
        if weight_decay:
            g = g + p * weight_decay
        if momentum:
            buffer = momentum_buffer_list[at]
            moved = g if is_first_step else wide(buffer) * momentum + g * (1 - dampening)
            update.write(buffer, moved)
            g = g + moved * momentum if nesterov else moved
        update.write(held, p - _as(lr, p) * g)


def _adagrad(
    parameters: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: Number,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    update = _Update(maximize, grad_scale, found_inf)
    for at, (held, grad) in enumerate(zip(parameters, grads, strict=True)):
        p, g = wide(held), update.gradient(grad)
        if weight_decay:
            g = g + p * weight_decay
        total = wide(state_sums[at]) + g * g
        update.write(state_sums[at], total)
        size = (_exactly(lr) / (1 + (state_steps[at].double() - 1) * lr_decay)).to(p.dtype)
        update.write(held, p - size * g / (total.sqrt() + eps))


def _unscale(grads: Tensors, found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    for grad in grads:
        finite = torch.isfinite(grad).all()
        found_inf.copy_(torch.where(finite, found_inf, 1.0))
        grad.copy_(wide(grad) * inv_scale)


def _quietly(function: Callable[..., None]) -> Callable[..., None]:
    def run(*args: Any, **kwargs: Any) -> None:
        with torch.no_grad():
            function(*args, **kwargs)

    return run


_FORMULAS: dict[str, Callable[..., None]] = {
    "_fused_adam_": functools.partial(_adam, False),
    "_fused_adamw_": functools.partial(_adam, True),
    "_fused_sgd_": _sgd,
    "_fused_adagrad_": _adagrad,
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
}
# torch's function -> the same, operator by operator.
IN_OPERATORS: dict[Any, Callable[..., None]] = {
    getattr(torch, name): _quietly(formula) for name, formula in _FORMULAS.items() if hasattr(torch, name)
}
