"""A row with data of its own: steps with it, and the same in float64."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from .row import Place, Row, Target

WIDE = {torch.complex64: torch.complex128}


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a result, in order: of containers, of transformers' outputs, of dataclasses."""
    found: list[Tensor] = []
    for leaf in tree_flatten(dict(value) if isinstance(value, dict) else value)[0]:
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif isinstance(leaf, dict):
            found += tensors_in(dict(leaf))
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            found += tensors_in([getattr(leaf, part.name) for part in dataclasses.fields(leaf)])
    return found


def continuous(tensor: Tensor) -> bool:
    """Does it hold numbers that rounding applies to?"""
    return tensor.is_floating_point() or tensor.is_complex()


@dataclasses.dataclass
class Job:
    """A row's target and arguments, for one front end.

    Args:
        row: what they are of.
        target: to compile.
        args: of a call.
        device: where they are.
    """

    row: Row
    target: Target
    args: tuple[Any, ...]
    device: str

    def wanted(self) -> list[Tensor]:
        """What training takes the gradients of."""
        parameters = list(self.target.parameters()) if isinstance(self.target, nn.Module) else []
        return [t for t in [*parameters, *tensors_in(self.args)] if t.requires_grad]

    def step(self, compiled: Target) -> list[Tensor]:
        """One step: results; in training the gradients after them (zeros in place of none)."""
        with self.autocast():
            if self.row.mode == "inference":
                with torch.no_grad():
                    return tensors_in(compiled(*self.args))
            results = tensors_in(compiled(*self.args))
        wanted = self.wanted()
        losses = [t.mean() for t in results if continuous(t) and t.requires_grad]
        loss = functools.reduce(torch.add, [t.real if t.is_complex() else t for t in losses])
        return [*results, *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)]

    @contextlib.contextmanager
    def autocast(self) -> Iterator[None]:
        """What the row runs under."""
        if self.row.autocast is None:
            yield
            return
        with torch.autocast(self.device, self.row.autocast):
            yield

    def outcome(self, compiled: Target) -> list[Tensor]:
        """A step's results as copies; with what it wrote into arguments, from which it takes them back."""
        if not self.row.writes:
            return [t.detach().clone() for t in self.step(compiled)]
        before = [(t, t.detach().clone()) for t in tensors_in(self.args)]
        found = [t.detach().clone() for t in [*self.step(compiled), *tensors_in(self.args)]]
        with torch.no_grad():
            for tensor, old in before:
                tensor.copy_(old)
        return found


def make(row: Row, place: Place) -> Job:
    """The row's data, converted to its type; the same numbers every time."""
    torch.manual_seed(0)
    target, args = row.make(place)
    if row.dtype is not torch.float32:
        target, args = converted((target, args), row.dtype)
    return Job(row, target, args, place.device)


def copied(job: Job, place: Place) -> Job:
    """The same once more, sharing nothing: a copy of a module, another making of a function."""
    if isinstance(job.target, nn.Module):
        with contextlib.suppress(Exception):
            target, args = copy.deepcopy((job.target, job.args))
            return dataclasses.replace(job, target=target, args=args)
    return make(job.row, place)


def exact(job: Job, place: Place) -> list[Tensor]:
    """The results of a step in float64. Raises whatever a program raises that cannot do so."""
    wide = copied(job, place)
    wide.target, wide.args = converted((wide.target, wide.args), torch.float64)
    wide.row = dataclasses.replace(job.row, autocast=None, dtype=torch.float64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        found = wide.outcome(wide.target)
    finally:
        torch.set_default_dtype(before)
    floats = [t for t in found if continuous(t)]
    if floats and not any(t.dtype in (torch.float64, torch.complex128) for t in floats):
        raise TypeError(f"results are {floats[0].dtype} whatever the arguments are")
    return found


def converted(value: Any, dtype: torch.dtype) -> Any:
    """Modules and floating-point tensors in another type, also those that functions have closed over."""
    return tree_map(functools.partial(_converted, dtype=dtype), value)


def _converted(leaf: Any, dtype: torch.dtype) -> Any:
    if isinstance(leaf, nn.Module):
        leaf = leaf.to(dtype)
        if dtype is torch.float64:
            for owner in leaf.modules():
                for name, value in vars(owner).items():
                    if isinstance(value, Tensor):  # no buffer: a plain attribute
                        setattr(owner, name, _converted(value, dtype))
        return leaf
    if isinstance(leaf, Tensor):
        if leaf.is_complex():
            return leaf.to(WIDE.get(leaf.dtype, leaf.dtype)) if dtype is torch.float64 else leaf
        if not leaf.is_floating_point():
            return leaf
        return leaf.detach().to(dtype).requires_grad_(leaf.requires_grad)
    if isinstance(leaf, functools.partial):
        return functools.partial(
            _converted(leaf.func, dtype), *converted(leaf.args, dtype), **converted(leaf.keywords, dtype)
        )
    owner = getattr(leaf, "__self__", None)
    if isinstance(owner, nn.Module):
        _converted(owner, dtype)
    for cell in getattr(leaf, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty one
            cell.cell_contents = converted(cell.cell_contents, dtype)
    return leaf


Step = Callable[[], Any]
