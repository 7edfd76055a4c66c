"""Schedules of whole graphs that are wrong in one place are found out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx, nn

import jitney
from jitney.backends import Backend
from jitney.errors import BackendFailed
from jitney_lowering import CPU, decompositions, lower, schedule
from jitney_lowering.ir.loops import Extern, Strided
from jitney_lowering.repeats import expansion
from jitney_lowering.repeats.chains import Chains
from jitney_lowering.repeats.renaming import renamed
from jitney_lowering.repeats.runs import longest_run
from jitney_lowering.repeats.unrolled import Copy, Unrolled

DEPTH = 12
Change = Callable[[Unrolled], Unrolled]


class Layers(nn.Module):
    """Products, concatenations in place, constants, random numbers and a result of each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(DEPTH))
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])

    def forward(self, x: torch.Tensor) -> Any:
        results = []
        for layer in self.layers:
            y = nn.functional.dropout(layer(x).tanh() * torch.tensor([1.0, 0.0, 2.0, 1.0, 0.5, 1.0]), 0.5)
            results.append(torch.cat([x, y], 1))
            x = (y + x.sum(1, keepdim=True)).sin()
        return x, *results


@pytest.fixture(scope="module")
def layers() -> Unrolled:
    """Of the forward of such layers."""
    found: list[Unrolled] = []
    made = expansion.unrolled

    def kept(program: Any, items: Any) -> Unrolled | None:
        result = made(program, items)
        assert result is not None
        found.append(result)
        return result

    def compiled(graph: fx.GraphModule, inputs: Sequence[Any], request: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("jitney_lowering.scheduler.unrolled", kept)
            schedule(lower(graph, inputs, policy=CPU, once=True))
        return graph.forward

    backend = Backend("once", compiled, level="aten", decompositions=decompositions())
    jitney.compile(Layers().eval(), backend=backend, fullgraph=True, dynamic=False)(torch.randn(4, 6))
    (result,) = found
    return result


def changed(whole: Unrolled, number: int, copy: Copy) -> Unrolled:
    copies = list(whole.copies)
    copies[number] = copy
    return replace(whole, copies=copies)


def later_copies(whole: Unrolled) -> list[int]:
    return [n for n, copy in enumerate(whole.copies) if copy.later and copy.names]


def one_before(whole: Unrolled, copy: Copy) -> list[Copy]:
    """The copy of the same item one period before, if there is one."""
    return [c for c in whole.copies if c.template == copy.template and c.later == copy.later - 1]


def renames(whole: Unrolled, number: int, names: dict[str, str], tell: bool = True) -> Unrolled:
    """A copy with other buffers; ``tell``: it says so."""
    copy = whole.copies[number]
    own = whole.templates[copy.template]
    item = renamed(own, names, copy.item.nodes, "_other")
    return changed(whole, number, replace(copy, item=item, names=names if tell else copy.names))


def another_layers(whole: Unrolled, tell: bool) -> list[Unrolled]:
    """Copies that use a buffer of the layer before."""
    found = []
    for number in later_copies(whole):
        copy = whole.copies[number]
        for before in one_before(whole, copy):
            for name in copy.names:
                other = before.names.get(name, name)
                if other not in copy.names.values() and name not in whole.short.constants:
                    found.append(renames(whole, number, {**copy.names, name: other}, tell))
    assert len(found) > 10
    return found


def without(whole: Unrolled) -> list[Unrolled]:
    return [replace(whole, copies=[c for n, c in enumerate(whole.copies) if n != gone]) for gone in later_copies(whole)]


def twice(whole: Unrolled) -> list[Unrolled]:
    copies = list(whole.copies)
    return [replace(whole, copies=[*copies[:n], copies[n], *copies[n:]]) for n in later_copies(whole)]


def too_early(whole: Unrolled) -> list[Unrolled]:
    """What reads the result of the item before comes before that."""
    copies, found = list(whole.copies), []
    for n in later_copies(whole):
        if copies[n].item.reads & copies[n - 1].item.writes:
            found.append(replace(whole, copies=[*copies[: n - 1], copies[n], copies[n - 1], *copies[n + 1 :]]))
    assert found
    return found


def draws_out_of_order(whole: Unrolled) -> list[Unrolled]:
    copies = list(whole.copies)
    draws = [n for n, c in enumerate(copies) if isinstance(c.item, Extern) and c.item.has_effect]
    assert len(draws) == DEPTH
    first, second = draws[5:7]
    copies[first], copies[second] = copies[second], copies[first]
    return [replace(whole, copies=copies)]


def other_buffers(whole: Unrolled, change: Callable[[Any], Any]) -> list[Unrolled]:
    found = []
    used = {name for copy in whole.copies for name in copy.item.reads | copy.item.writes}
    for name, buffer in whole.program.buffers.items():
        new = change(buffer) if name in used - whole.short.buffers.keys() else buffer
        if new != buffer:
            found.append(replace(whole, program=replace(whole.program, buffers={**whole.program.buffers, name: new})))
    assert found
    return found


def homes(whole: Unrolled) -> list[Unrolled]:
    some = {b.home[0] for b in whole.short.buffers.values() if b.home is not None}
    assert some
    lost = other_buffers(whole, lambda b: b if b.home is None else replace(b, home=None))
    first = other_buffers(whole, lambda b: b if b.home is None else replace(b, home=(min(some), b.home[1])))
    return [*lost, *first]


def dtypes(whole: Unrolled) -> list[Unrolled]:
    return other_buffers(whole, lambda b: replace(b, dtype=torch.float64))


def constants(whole: Unrolled) -> list[Unrolled]:
    new = whole.program.constants.keys() - whole.short.constants.keys()
    assert whole.short.constants
    names = new or whole.program.constants.keys()
    less = [{n: t for n, t in whole.program.constants.items() if n != name} for name in names]
    other = [{**whole.program.constants, name: whole.program.constants[name] * 2} for name in names]
    return [replace(whole, program=replace(whole.program, constants=some)) for some in [*less, *other]]


def inputs(whole: Unrolled) -> list[Unrolled]:
    given = list(whole.program.inputs)
    found = []
    for at, name in enumerate(given):
        for other in range(at + 1, len(given)):
            if name is not None and given[other] is not None:
                swapped = [*given]
                swapped[at], swapped[other] = given[other], name
                found.append(replace(whole, program=replace(whole.program, inputs=swapped)))
    return found


def outputs(whole: Unrolled) -> list[Unrolled]:
    given = list(whole.program.outputs)
    found = []
    for at, output in enumerate(given):
        for other in range(len(given)):
            if other != at:
                found.append([*given[:at], given[other], *given[at + 1 :]])
        assert isinstance(output, Strided)
        found.append([*given[:at], replace(output, size=output.size[::-1]), *given[at + 1 :]])
    found.append(given[:-1])
    return [replace(whole, program=replace(whole.program, outputs=some)) for some in found]


def nodes(whole: Unrolled) -> list[Unrolled]:
    """Kernels that say that they are of another layer."""
    found = []
    for number in later_copies(whole):
        copy = whole.copies[number]
        for before in one_before(whole, copy):
            found.append(changed(whole, number, replace(copy, item=replace(copy.item, nodes=before.item.nodes))))
    return found


def checks(whole: Unrolled) -> list[Unrolled]:
    return [replace(whole, program=replace(whole.program, checks=[("b1", "it failed", RuntimeError)]))]


CHANGES: dict[str, Callable[[Unrolled], list[Unrolled]]] = {
    "another layer's buffers": lambda whole: another_layers(whole, True),
    "another layer's buffers, unsaid": lambda whole: another_layers(whole, False),
    "left out": without,
    "twice": twice,
    "too early": too_early,
    "random numbers in another order": draws_out_of_order,
    "homes": homes,
    "dtypes": dtypes,
    "constants": constants,
    "inputs": inputs,
    "outputs": outputs,
    "nodes": nodes,
    "checks": checks,
}


def test_what_is_right(layers: Unrolled) -> None:
    layers.verify()


@pytest.mark.parametrize("name", [*CHANGES])
def test_what_is_wrong_is_found(name: str, layers: Unrolled) -> None:
    wrong = CHANGES[name](layers)
    assert wrong
    for one in wrong:
        with pytest.raises(BackendFailed):
            one.verify()


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_a_wrong_chain_costs_time_only(
    trains: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each layer is compiled then, and the log says why."""
    later = Chains.later

    def wrong(self: Chains, name: str, periods: int) -> str:
        return later(self, name, periods - (periods == 3))

    monkeypatch.setattr(Chains, "later", wrong)
    caplog.set_level("INFO", "jitney.fusion")
    torch.manual_seed(0)
    model, x = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(DEPTH))), torch.randn(4, 6)
    with torch.set_grad_enabled(trains):
        result = jitney.compile(model, backend="llvm_cpu", fullgraph=True)(x)
        torch.testing.assert_close(result, model(x))
    assert "equal layers are compiled one by one: " in caplog.text


def test_numbers_that_only_compare_equal_differ() -> None:
    """``0.0 == -0.0``: a layer that adds another zero is another layer."""

    def program(x: torch.Tensor) -> torch.Tensor:
        for number in range(DEPTH):
            x = torch.mul(x, x).exp() * complex(1.0, -0.0 if number % 2 else 0.0)
        return x

    found: list[Any] = []

    def compiled(graph: fx.GraphModule, inputs: Sequence[Any], request: Any) -> Any:
        found.append(longest_run(graph.graph))
        return graph.forward

    backend = Backend("runs", compiled, level="aten", decompositions=decompositions())
    jitney.compile(program, backend=backend, fullgraph=True, dynamic=False)(torch.ones(3, dtype=torch.complex64))
    (run,) = found
    assert run is None
