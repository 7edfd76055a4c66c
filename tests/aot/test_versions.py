"""``tensor._version``: how often results and arguments have been written to, as eager counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney


def _results(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * 2
    y.add_(1)
    y.view(-1).mul_(w)
    z = torch.zeros(4)
    z.scatter_(0, torch.tensor([1]), 2.0)
    part = z[1:]
    part.add_(1)
    return y, z, part, (x * w).unsqueeze_(0), torch.nn.functional.relu(x * w, inplace=True)


def _after_a_break(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * 2
    y.add_(1)
    jitney.graph_break()
    y.add_(1)
    return y, y._version


def _arguments(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.zero_()
    x.copy_(w.detach())
    x[0] = 1
    return x


def _rows(x: torch.Tensor, w: torch.Tensor) -> Any:
    for i in range(3):
        x[i] += 1
    return x[1:]


def _lists(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.ones(3)
    torch._foreach_add_([x, y], 1)
    torch._foreach_mul_([x, y], 2)
    return y


def _unseen(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.data.add_(1)
    with torch.no_grad():
        w.add_(1)
        w.mul_(2)
    data = x.data
    data.mul_(2)
    return x * 2, data, x.mul_(3).data


def _reshaped(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.unsqueeze_(0)
    return x * w  # for whose gradient autograd saves the new shape


def _out(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.empty(3)
    with torch.no_grad():
        torch.add(x, 1, out=y)
        torch.add(x, 1, out=y)
    return y


def _saved(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    y.exp_()  # autograd saves what it gives
    return y


def _statistics(x: torch.Tensor, w: torch.Tensor) -> Any:
    norm = torch.nn.BatchNorm1d(3)
    norm(x.detach().expand(4, 3) + torch.arange(12.0).view(4, 3))
    return norm.running_mean, norm.num_batches_tracked


PROGRAMS = [_results, _after_a_break, _arguments, _rows, _lists, _unseen, _reshaped, _out, _saved, _statistics]
GRADS = [(False, False), (True, False), (False, True)]
CASES = [(contextlib.nullcontext, *grads) for grads in GRADS]
CASES += [(torch.no_grad, True, False), (torch.inference_mode, False, True)]


def _version(tensor: Any) -> Any:
    return tensor._version if isinstance(tensor, torch.Tensor) and not tensor.is_inference() else None


def _told(f: Callable[..., Any], mode: Any, x_grad: bool, w_grad: bool) -> Any:
    x = torch.arange(3.0)
    leaf = x.requires_grad_(x_grad)
    x = x * 1 if x_grad else x
    w = torch.full((3,), 2.0, requires_grad=w_grad)
    try:
        with mode():
            found = f(x, w)
    except RuntimeError as error:
        return str(error)[:40]
    found = found if isinstance(found, tuple) else (found,)
    versions = [_version(v) if isinstance(v, torch.Tensor) else v for v in (*found, x, w)]
    ends = [v for v in found if isinstance(v, torch.Tensor) and v.requires_grad]
    wanted = [leaf for leaf in (leaf, w) if leaf.requires_grad]
    gradients = torch.autograd.grad([v.sum() for v in ends], wanted, allow_unused=True) if ends else ()
    return versions, [g if g is None else g.tolist() for g in gradients]


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_versions_are_those_of_eager(program: Any, backend: str) -> None:
    for case in CASES:
        expected = _told(program, *case)
        assert _told(jitney.compile(program, backend=backend), *case) == expected, case


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_tensors_of_inference_mode(backend: str) -> None:
    """They count no writes; outside of it they may not be written to, and inside their shape may change."""
    with torch.inference_mode():
        x, y = torch.ones(3), torch.ones(3)
        run = jitney.compile(lambda x: x.unsqueeze_(0).mul(2), backend=backend)
        torch.testing.assert_close((run(x), x), (torch.full((1, 3), 2.0), torch.ones(1, 3)))

    def write(y: torch.Tensor) -> torch.Tensor:
        y[0] = 2
        return y.sum()

    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        jitney.compile(write, backend=backend)(y)


def test_data_that_was_set_in_inference_mode() -> None:
    """Torch makes no stand-in for such a tensor, which is half of that mode: a graph break."""

    def set_data(x: torch.Tensor) -> torch.Tensor:
        x.data = x.detach().clone()
        return x * 2

    x = torch.ones(3, 2).t()
    for _ in range(2):
        with torch.inference_mode():
            found = jitney.compile(set_data, backend="aot_eager")(x)
        torch.testing.assert_close(found, torch.full((2, 3), 2.0))


def _written_unseen(view: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        view.mul_(2)
    return view * 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_a_view_from_outside_that_autograd_forbids(backend: str) -> None:
    base = torch.ones(2, 3, requires_grad=True) * 1
    run = jitney.compile(_written_unseen, backend=backend)
    torch.testing.assert_close(run(base[0]), torch.full((3,), 6.0))
    with pytest.raises(RuntimeError, match="Output 0 of Unbind.* is a view and its base or another view"):
        run(base.unbind()[0])
