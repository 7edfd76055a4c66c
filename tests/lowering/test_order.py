"""Items in the order in which least memory is taken: when they are put into it, and that dependencies hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lowering.graphs import lowered

import jitney
from jitney_lowering import GPU
from jitney_lowering.ir import Extern, Strided
from jitney_lowering.ir.loops import strided
from jitney_lowering.scheduler import Schedule, schedule
from jitney_lowering.scheduler.memory.order import ordered

TALL, SQUARE = torch.randn(8192, 8), torch.randn(64, 64)


def all_at_once(x: torch.Tensor) -> torch.Tensor:
    """Each sorted tensor is large, and what is wanted of it is small."""
    large = [torch.sort(y, 0, descending=d).values for y in (x, x.flip(1)) for d in (False, True)]
    return torch.stack([t.t() @ t for t in large])


def one_by_one(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(8, 8, device=x.device)
    for descending in (False, True):
        t = x.sort(0, descending=descending).values
        total = total + t.t() @ t
    return total


CASES: dict[str, tuple[Callable[..., Any], bool]] = {
    "all at once": (all_at_once, True),
    "one by one": (one_by_one, False),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_reordered(case: str) -> None:
    fn, changed = CASES[case]
    program = lowered(fn, TALL, whole=None, policy=GPU).program
    plain, made = schedule(program, policy=GPU), schedule(program, policy=GPU, large=0)
    assert (names(plain) != names(made)) == changed
    assert held(made) <= (0.6 if changed else 1) * held(plain)
    filled = {name for name in program.inputs if isinstance(name, str)}
    for item in made.items:
        assert item.reads - item.writes <= filled | program.constants.keys()
        filled |= item.writes


def names(made: Schedule) -> list[frozenset[str]]:
    """What the items make, in order."""
    return [item.writes for item in made.items]


def held(made: Schedule) -> int:
    """Elements of results that nobody has read for the last time yet, at most."""
    last = {name: n for n, item in enumerate(made.items) for name in item.reads | item.writes}
    last |= {o.buffer: len(last) for o in made.program.outputs if isinstance(o, Strided)}
    first = {name: n for n, item in reversed(list(enumerate(made.items))) for name in item.writes}
    size = {name: made.program.buffers[name].extent.value or 0 for name in first}
    return max(sum(size[b] for b in first if first[b] <= n <= last[b]) for n in range(len(made.items)))


def test_what_has_effects_stays() -> None:
    program = lowered(all_at_once, TALL, whole=None, policy=GPU).program
    items = list(schedule(program, policy=GPU).items)
    random = Extern(("r",), torch.ops.aten.rand.default, ((64,),), {}, reason="random")
    assert random.has_effect and not list(strided(random.args))
    kept = {o.buffer for o in program.outputs if isinstance(o, Strided)}
    assert ordered([random, *items], program, kept) == [random, *items]
    assert ordered(items, program, kept) != items


def test_what_dies_counts() -> None:
    """Of two products of one gradient, first the one that reads a large activation for the last time."""

    def fn(g: torch.Tensor, w: torch.Tensor, large: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        g = g.exp()
        return (g @ w).sum(0), (g.t() @ large).sum(0)

    program = lowered(fn, torch.randn(512, 64), SQUARE, torch.randn(512, 64), whole=None, policy=GPU).program
    made = [schedule(program, policy=GPU, large=0, dying=dying) for dying in ((), (2,))]
    first = [next(i for i in m.items if isinstance(i, Extern)) for m in made]
    assert program.inputs[2] not in first[0].reads
    assert program.inputs[2] in first[1].reads


@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_eagers(case: str, dynamic: bool, backend: str) -> None:
    device = "cuda" if backend == "triton_gpu" and torch.cuda.is_available() else "cpu"
    args = [TALL.to(device)]
    compiled = jitney.compile(CASES[case][0], backend=backend, dynamic=dynamic, fullgraph=True)
    torch.testing.assert_close(compiled(*args), CASES[case][0](*args), rtol=1e-4, atol=1e-3)
