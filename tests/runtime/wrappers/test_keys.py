"""A compiled module and its original are one key: libraries keep what they know of a module by the module."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from helpers import compile_fn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import jitney


class Block(torch.nn.Module):
    """A part of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def test_as_keys() -> None:
    block, other = Block(), Block()
    compiled = compile_fn(block)
    known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary({block: 1})
    assert known[compiled] == 1 and compiled == block and block == compiled and hash(block) == hash(compiled)
    assert compiled != other and compiled != compile_fn(other) and compile_fn(block) == compiled
    assert compiled in {block} and other not in {compiled} and compiled != 3


def test_classes_that_compare_otherwise() -> None:
    class Named(Block):
        __hash__ = None

        def __eq__(self, other: object) -> bool:
            return other == "named"

    compiled = compile_fn(Named())
    assert compiled == "named" and compiled != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(compiled)


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A mesh of one process."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def _in_place(block: Block) -> Any:
    return jitney.compile(block, backend="eager", inplace=True)


def _losses(mesh: Any, before: Callable[[Any], Any], after: Callable[[Any], Any]) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(before(Block()) for _ in range(2)), torch.nn.Linear(4, 1))
    for at in range(2):
        fully_shard(model[at], mesh=mesh)
        model[at] = after(model[at])
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = model(torch.ones(3, 4)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_fully_shard_of_compiled_parts(mesh: Any) -> None:
    def plain(block: Any) -> Any:
        return block

    expected = _losses(mesh, plain, plain)
    for before, after in ((compile_fn, plain), (plain, compile_fn), (_in_place, plain), (plain, _in_place)):
        assert _losses(mesh, before, after) == pytest.approx(expected)
