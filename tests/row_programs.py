"""Programs over rows of a few elements, one after the other: backends have code of their own for such rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

import jitney


def heavy(x: torch.Tensor) -> torch.Tensor:
    """What there is once a row takes longer than the row."""
    return (x.sum(-1).exp() + x.amax(-1)).tanh()[..., None] * x


STEPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x + x.sum(-1, keepdim=True),
    "mean of all but the row": lambda x: x - x.mean(0, keepdim=True),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "greatest": lambda x: x * x.amax(-1, keepdim=True).sigmoid(),
    # Of what is equal up to rounding the first: the last bits decide nothing.
    "where the greatest is": lambda x: x + x.to(torch.bfloat16).argmax(-1, keepdim=True),
    "running": lambda x: x.cumsum(-1),
    "turned": lambda x: x.flip(-1) * x[..., :1],
    "cross": lambda x: x.roll(1, -1) * x - x.roll(-1, -1),
    "length": lambda x: x / (1 + x.norm(dim=-1, keepdim=True)),
    "heavy": heavy,
    "product": lambda x: (x[..., :, None] * x[..., None, :]).sum(-1).tanh(),
    "padded": lambda x: torch.cat([x[..., 1:], x[..., :1].sin()], -1),
    "written": lambda x: torch.select_scatter(x, x[..., 0].cos(), -1, 1),
}


def check_chain(names: Sequence[str], x: torch.Tensor, backend: str, *, gradient: bool, dynamic: bool = False) -> None:
    """Steps one after the other: as near to float64 as four times eager's results; gradients that, or as eager's."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for name in names:
            x = STEPS[name](x)
        return x

    results = []
    compiled = jitney.compile(fn, backend=backend, dynamic=dynamic)
    for run, kind in ((compiled, x.dtype), (fn, x.dtype), (fn, torch.float64)):
        own = x.to(kind, copy=True).requires_grad_(gradient)
        found = run(own)
        if gradient:
            (found * torch.arange(x.shape[-1], device=x.device)).sum().backward()
        results.append([t.detach().double() for t in (found, own.grad) if t is not None])
    for number, (ours, eagers, exact) in enumerate(zip(*results, strict=True)):
        there = exact.isfinite() & eagers.isfinite()  # what is squared again and again leaves float32
        ours, eagers, exact = (torch.where(there, t, 0.0) for t in (ours, eagers, exact))
        error, allowed = (ours - exact).abs().max(), (eagers - exact).abs().max()
        near = 1e-5 if number == 0 else 1e-3
        good = error <= 4 * allowed + near * (exact.abs().max() + 1)
        if number == 1:
            good = good | ((ours - eagers).abs() <= 1e-3 * eagers.abs() + 1e-3 * (eagers.abs().max() + 1)).all()
        assert good, f"{names}: {float(error)} from float64, eager {float(allowed)}"
