"""``torch.utils.checkpoint`` in a graph, for backends of both levels: gradients, random numbers, what is refused."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import jitney
from jitney.errors import Unsupported


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(dropout), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.inner(x) * scale


def made(wrap: Callable[[Block, torch.Tensor], Any], dropout: float = 0.0) -> tuple[Block, Callable[..., Any]]:
    torch.manual_seed(0)
    block = Block(dropout)
    return block, lambda x: wrap(block, x)


def trained(block: Block, fn: Callable[..., Any], requires_grad: bool = True) -> list[Any]:
    found: list[Any] = []
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(3, 4, requires_grad=requires_grad)
        block.zero_grad()
        result = fn(x)
        found.append(result.detach())
        if result.requires_grad:
            result.square().sum().backward()
        found += [x.grad, *(p.grad for p in block.parameters()), torch.rand(())]
    return found


CALLS: dict[str, Callable[[Block, torch.Tensor], Any]] = {
    "not reentrant": lambda block, x: checkpoint(block, x, use_reentrant=False).sin(),
    "reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True).sin(),
    "arguments": lambda block, x: checkpoint(block, x, scale=2.0, use_reentrant=False) + x,
    "function": lambda block, x: checkpoint(lambda a, b: block(a) * b + x.cos(), x, x * 2, use_reentrant=False),
    "sequence": lambda block, x: checkpoint_sequential(block.inner, 2, x, use_reentrant=False),
    "in a row": lambda block, x: checkpoint(block, checkpoint(block, x, use_reentrant=True), use_reentrant=False),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_checkpoints_are_part_of_the_graph(name: str, backend: str) -> None:
    block, fn = made(CALLS[name])
    wanted = trained(block, fn)
    torch.testing.assert_close(trained(block, jitney.compile(fn, backend=backend, fullgraph=True)), wanted)


@pytest.mark.parametrize("name", ["not reentrant", "reentrant", "sequence"])
def test_what_is_drawn_again_is_the_same(name: str) -> None:
    block, fn = made(CALLS[name], 0.5)
    wanted = trained(block, fn)
    torch.testing.assert_close(trained(block, jitney.compile(fn, backend="eager", fullgraph=True)), wanted)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_arguments_without_gradients_give_what_eager_gives(name: str, backend: str) -> None:
    block, fn = made(CALLS[name])
    wanted = trained(block, fn, requires_grad=False)
    got = trained(block, jitney.compile(fn, backend=backend), requires_grad=False)
    torch.testing.assert_close(got, wanted)


def asks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.requires_grad:
        y.register_hook(lambda g: g * 2)
    return (y.exp() if torch.is_grad_enabled() else y.cos()) * (1 + x.is_leaf)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_function_asks_for_gradients_as_in_eager(reentrant: bool, backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(asks, x, use_reentrant=reentrant) + checkpoint(asks, x * 2, use_reentrant=reentrant)

    found = []
    for run in (fn, jitney.compile(fn, backend=backend)):
        x = torch.linspace(-1, 1, 5, requires_grad=True)
        result = run(x)
        result.sum().backward()
        found.append((result.detach(), x.grad))
    torch.testing.assert_close(*found)


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    cache: Any = None
    step: int = 0


class Ordered(collections.OrderedDict[str, Any]):
    """As module outputs of libraries are."""


def with_none(x: torch.Tensor) -> Any:
    return x.sin(), None, 3, "name"


def in_dict(x: torch.Tensor) -> Any:
    y = x.sin()
    return {"y": y, "view": y[1:], "same": y, "nothing": None, "size": y.shape[0], "argument": x, "more": [y * 2, True]}


def in_dataclass(x: torch.Tensor) -> Any:
    return Output(x.cos() * 2, cache=(x.sin(), None), step=x.shape[0])


def in_ordered(x: torch.Tensor) -> Any:
    return Ordered(logits=x.exp(), loss=None)


def nested(x: torch.Tensor) -> Any:
    inner, nothing = checkpoint(lambda a: (a.sin() * 2, None), x, use_reentrant=False)
    return Output(inner.cos(), cache=nothing), inner.exp(), x.tan()


def with_attribute(x: torch.Tensor) -> Any:
    y = x.sin()
    y.scale = 3.0  # type: ignore[attr-defined]
    return y, None


def nothing(x: torch.Tensor) -> Any:
    x.sin()


def with_function(x: torch.Tensor) -> Any:
    y = x.sin()
    return lambda z: z * y


WHOLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "with none": lambda x: checkpoint(with_none, x, use_reentrant=False),
    "dict": lambda x: checkpoint(in_dict, x, use_reentrant=False),
    "dataclass": lambda x: vars(checkpoint(in_dataclass, x * 2, use_reentrant=False)),
    "one of it": lambda x: checkpoint(in_dataclass, x, use_reentrant=False).cache[0] * 2,
    "ordered": lambda x: checkpoint(in_ordered, x, use_reentrant=False)["logits"] + 1,
    "nested": lambda x: vars(checkpoint(nested, x, use_reentrant=False)[0])["hidden"] * 2,
    "nested, all": lambda x: checkpoint(nested, x, use_reentrant=False)[1:],
    "nothing": lambda x: (checkpoint(nothing, x, use_reentrant=False), x * 2),
    "function": lambda x: checkpoint(with_function, x, use_reentrant=False)(x + 1),
    "attribute": lambda x: (lambda y: y * y.scale)(checkpoint(with_attribute, x, use_reentrant=False)[0]),
    "written later": lambda x: checkpoint(in_dict, x, use_reentrant=False)["view"].mul_(2) + x.sum(),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", WHOLE)
def test_a_function_may_return_more_than_tensors(name: str, backend: str) -> None:
    found = []
    for run in (WHOLE[name], jitney.compile(WHOLE[name], backend=backend, fullgraph=True)):
        for size in (4, 5, 6):
            x = torch.linspace(-1, 1, size, requires_grad=True)
            result, _ = tree_flatten(run(x))
            made = [t for t in result if isinstance(t, torch.Tensor) and t.requires_grad]
            torch.stack([t.square().sum() for t in made]).sum().backward()
            found.append(([t.detach() if isinstance(t, torch.Tensor) else t for t in result], x.grad))
    half = len(found) // 2
    for wanted, got in zip(found[:half], found[half:], strict=True):
        assert [type(one) for one in wanted[0]] == [type(one) for one in got[0]]
        for one, other in zip(wanted[0], got[0], strict=True):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(other, one)
            else:
                assert one == other
        torch.testing.assert_close(got[1], wanted[1])


def test_results_that_nobody_uses_are_not_results_of_the_graph() -> None:
    graphs = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(in_dict, x, use_reentrant=False)["more"][0] + 1

    def keep(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    jitney.compile(fn, backend=keep, fullgraph=True)(torch.ones(3, requires_grad=True))
    (within,) = next(n.target.graphs for n in graphs[0].graph.nodes if hasattr(n.target, "graphs"))
    assert len(within.graph.output_node().args[0]) == 1


def test_a_write_to_a_result_within_a_later_checkpoint_is_refused() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y, _ = checkpoint(lambda a: (a.sin(), None), x, use_reentrant=False)
        return checkpoint(lambda a: y.mul_(2) + a, x, use_reentrant=False)

    with pytest.raises(Unsupported, match="changes something"):
        jitney.compile(fn, backend="eager", fullgraph=True)(torch.ones(3, requires_grad=True))


def test_a_reentrant_checkpoint_of_more_than_tensors_is_refused() -> None:
    fn = jitney.compile(lambda x: checkpoint(with_none, x, use_reentrant=True)[0], backend="eager", fullgraph=True)
    with pytest.raises(Unsupported, match="more than tensors"):
        fn(torch.ones(3, requires_grad=True))


class Count:
    def __init__(self) -> None:
        self.runs = 0


OLDER = Count()


def counted_in_list(x: torch.Tensor) -> Any:
    runs: list[int] = []

    def counted(a: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return a.sin()

    return checkpoint(counted, x, use_reentrant=False) * 2, lambda: len(runs)


def counted_in_new_object(x: torch.Tensor) -> Any:
    count = Count()

    def counted(a: torch.Tensor) -> torch.Tensor:
        count.runs += 1
        return a.sin()

    return checkpoint(counted, x, use_reentrant=False) * 2, lambda: count.runs


def counted_in_written_object(x: torch.Tensor) -> Any:
    OLDER.runs = 0

    def counted(a: torch.Tensor) -> torch.Tensor:
        OLDER.runs += 1
        return a.sin()

    return checkpoint(counted, x, use_reentrant=False) * 2, lambda: OLDER.runs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [counted_in_list, counted_in_new_object, counted_in_written_object])
def test_a_function_that_counts_its_runs_is_run_twice(fn: Callable[..., Any], backend: str) -> None:
    x = torch.randn(3, requires_grad=True)
    result, runs = jitney.compile(fn, backend=backend)(x)
    result.sum().backward()
    assert runs() == 2
    with pytest.raises(Unsupported, match="changes something"):
        jitney.compile(fn, backend=backend, fullgraph=True)(x)
