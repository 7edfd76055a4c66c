"""Of equal blocks one is lowered, and the schedule is that of the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

import jitney
from jitney.backends import Backend
from jitney_lowering import CPU, GPU, NotRepeated, Policy, Schedule, decompositions, lower, schedule
from jitney_lowering.ir import Program
from jitney_lowering.ir.loops import Strided
from jitney_lowering.repeats.renaming import named

DEPTH = 12


class Mixer(nn.Module):
    def __init__(self, tokens: int = 4, width: int = 8) -> None:
        super().__init__()
        self.norm, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 6), nn.GELU(), nn.Linear(6, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.after(x))


class Attention(nn.Module):
    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.into(self.norm(x)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        weights = (q @ k.transpose(2, 3) / 2).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Stack(nn.Module):
    def __init__(self, block: Callable[[], nn.Module], depth: int = DEPTH) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.sum(1)


class EachResult(Stack):
    def forward(self, x: torch.Tensor) -> Any:
        results = []
        for block in self.blocks:
            x = block(x)
            results.append(x)
        return tuple(results)


class Shared(Stack):
    """The same weights in each block, as in ALBERT."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in self.blocks:
            x = self.blocks[0](x)
        return x


class TwoBack(Stack):
    """Blocks that read what the last two have made."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = x * 2
        for block in self.blocks:
            x, before = block(x) + before, x
        return x + before


class Skips(Stack):
    """The second half reads what the first half has made, the last of it first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = len(self.blocks) // 2
        kept = []
        for block in self.blocks[:half]:
            x = block(x)
            kept.append(x)
        for block in self.blocks[half:]:
            x = block(x + kept.pop())
        return x


class AllReadOne(Stack):
    """All blocks read what the first one has made."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = None
        for block in self.blocks:
            x = block(x) if first is None else block(x) * first
            first = x if first is None else first
        return x


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "mixers": lambda depth: Stack(Mixer, depth),
    "attention": lambda depth: Stack(Attention, depth),
    "a result of each block": lambda depth: EachResult(Mixer, depth),
    "two operators": lambda depth: Stack(lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()), depth),
    "what the last two blocks made": lambda depth: TwoBack(Mixer, depth),
    "convolutions": lambda depth: Stack(lambda: nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.SiLU()), depth),
}
PARTLY = {"what the last two blocks made"}  # its first blocks are the only ones that are alike


def total(x: torch.Tensor) -> torch.Tensor:
    """A running sum beside the blocks, which nobody reads before the end."""
    added = x * 0
    for _ in range(DEPTH):
        x = (x @ x.T @ x).tanh()
        added = added + x.sin()
    return x + added


def counter(x: torch.Tensor) -> torch.Tensor:
    count = torch.zeros(())
    for _ in range(DEPTH):
        x = (x @ x.T @ x).tanh()
        count = count + 1
    return x * count


def weaker(x: torch.Tensor) -> torch.Tensor:
    """A scale that each block makes smaller, and that only the end reads."""
    scale = x.sum()
    for _ in range(DEPTH):
        x = (x @ x.T @ x).tanh()
        scale = scale * 0.5
    return x * scale


def each_count(x: torch.Tensor) -> list[torch.Tensor]:
    """Results that differ in a number."""
    count, results = torch.zeros(()), []
    for _ in range(DEPTH):
        x = (x @ x.T @ x).tanh()
        count = count + 1
        results.append(count)
    return [x, *results]


GROWING: dict[str, Callable[..., Any]] = {
    "a running sum": total,
    "a counter": counter,
    "a factor": weaker,
    "a result of each block": each_count,
}
OTHERS: dict[str, Callable[[int], nn.Module]] = {
    "the same weights": lambda depth: Shared(Mixer, depth),
    "from the first half to the second": lambda depth: Skips(Mixer, depth),
    "what the first one made": lambda depth: AllReadOne(Mixer, depth),
    "two kinds in turn": lambda depth: Stack(lambda: nn.Sequential(Mixer(), Attention()), depth),
}


class Both:
    """A backend that schedules each graph as a whole, and of equal blocks one, and runs it as it is."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.pairs: list[tuple[Schedule, Schedule]] = []
        self.short: list[Program] = []
        self.backend = Backend("both", self._compile, level="aten", decompositions=decompositions())

    def _compile(self, graph: fx.GraphModule, inputs: Any, request: Any) -> Callable[..., Any]:
        whole = schedule(lower(graph, inputs, policy=self.policy), policy=self.policy)
        program = lower(graph, inputs, policy=self.policy, once=True)
        if program.repetition is not None:
            self.short.append(program)
        try:
            once = schedule(program, policy=self.policy)
        except NotRepeated:
            once = whole
        once.verify()
        self.pairs.append((whole, once))
        return graph.forward


def described(made: Schedule) -> list[Any]:
    """A schedule with numbers for names, in the order in which they are first mentioned."""
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    inputs = [number(name) if isinstance(name, str) else name for name in made.program.inputs]
    items = [(one.key, [number(n) for n in one.names], one.nodes) for one in map(named, made.items)]
    outputs = [(number(o.buffer), o.size, o.stride) if isinstance(o, Strided) else o for o in made.program.outputs]
    # Which of two buffers gets the memory of a third one depends on their names.
    kept = [len(made.allocated), len(made.filled), len(made.successors), made.memory.size]
    return [inputs, items, outputs, kept, made.program.sizes]


def compiled(model: nn.Module, policy: Policy, trains: bool, dynamic: bool = False) -> Both:
    both = Both(policy)
    x = torch.randn(2, 4, 8)
    with torch.set_grad_enabled(trains):
        result = jitney.compile(model, backend=both.backend, fullgraph=True, dynamic=dynamic)(x)
    if trains:
        sum(r.sum() for r in (result if isinstance(result, tuple) else (result,))).backward()
    return both


# What readers compute by themselves reaches back to periods that would be left out: these are lowered whole.
INSIDE = {("what the last two blocks made", True), ("convolutions", True), ("two operators", False)}


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", [*MODELS])
def test_the_schedule_is_that_of_the_whole_graph(name: str, trains: bool) -> None:
    both = compiled(MODELS[name](DEPTH), CPU, trains)
    assert len(both.pairs) == 1 + trains
    for whole, once in both.pairs:
        assert described(once) == described(whole)
    if (name, trains) in INSIDE:
        assert len(once.program.steps) == len(whole.program.steps)
    elif name not in PARTLY or trains:  # the last pair is of the backward
        assert len(once.program.steps) < len(whole.program.steps)


@pytest.mark.parametrize("name", [*GROWING])
def test_what_grows_from_block_to_block_is_lowered_as_it_is(name: str) -> None:
    model = GROWING[name]
    with torch.no_grad():
        both = Both(CPU)
        x = torch.randn(2, 8)
        jitney.compile(model, backend=both.backend, fullgraph=True, dynamic=False)(x)
    ((whole, once),) = both.pairs
    assert described(once) == described(whole)


@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_whatever_the_connections_are_every_node_is_done(name: str) -> None:
    model = (MODELS | OTHERS)[name](DEPTH)
    for policy in (CPU, replace(GPU, recompute=0)):
        for whole, once in compiled(model, policy, True).pairs:
            assert len(once.program.inputs) == len(whole.program.inputs)
            assert {n for i in once.items for n in i.nodes} == {n for i in whole.items for n in i.nodes}


@pytest.mark.parametrize("name", [*MODELS])
def test_what_is_lowered_does_not_grow(name: str) -> None:
    sizes = []
    for depth in (DEPTH, 2 * DEPTH):
        sizes.append([len(program.steps) for program in compiled(MODELS[name](depth), CPU, True).short])
    assert sizes[0] == sizes[1]


def test_symbolic_sizes() -> None:
    both = compiled(Stack(Mixer), CPU, True, dynamic=True)
    for whole, once in both.pairs:
        assert described(once) == described(whole)
        assert once.program.sizes and len(once.program.steps) < len(whole.program.steps)


def test_few_blocks_are_lowered_as_they_are() -> None:
    assert not compiled(Stack(Mixer, 4), CPU, True).short


ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": lambda x: F.silu(x) + x,
    "square": lambda x: (x * x).tanh(),
    "two functions": lambda x: x.sin() + x.cos(),
    "turned": lambda x: torch.cat([x[:, 3:], x[:, :3]], 1) * 0.9,
    "padded": lambda x: F.pad(x, (1, 1))[:, 1:7].tanh(),
}


@pytest.mark.parametrize("end", ["nothing", "norm", "softmax"])
@pytest.mark.parametrize("name", ROWS)
def test_layers_that_their_reader_may_compute(name: str, end: str) -> None:
    """A step of the schedule may compute what no item of its own does."""

    def deep(x: torch.Tensor) -> torch.Tensor:
        for _ in range(24):
            x = ROWS[name](x)
        return F.layer_norm(x, (6,)) if end == "norm" else x.softmax(1) if end == "softmax" else x

    x = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(jitney.compile(deep, backend="llvm_cpu")(x), deep(x))


def test_readers_that_compute_anew_have_all_layers() -> None:
    def deep(x: torch.Tensor) -> torch.Tensor:
        for _ in range(24):
            x = F.silu(x) + x
        return F.layer_norm(x, (6,))

    for policy in (CPU, GPU, replace(CPU, recompute=8.0)):
        both = Both(policy)
        jitney.compile(deep, backend=both.backend)(torch.randn(4, 6))
        for whole, once in both.pairs:
            assert described(once) == described(whole)
