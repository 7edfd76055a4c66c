"""Writes of what the same mask has taken are operations of known sizes; values, gradients and writes are eager's."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from helpers import observe
from torch import fx
from torch._subclasses import FakeTensorMode

import jitney
from jitney.graph_compile.masked_writes import without_masked_writes


def moved(x: Any, y: Any, m: Any) -> Any:
    z = x.clone()
    z[m] = y[m]
    return z


def scaled(x: Any, y: Any, m: Any) -> Any:
    z = x * 1
    z[m] *= 3
    z[m] = y[m] * 2 + z[m]
    return z


def outside_the_domain(x: Any, y: Any, m: Any) -> Any:
    z, inside = x.clone(), y > 0
    z[inside] = y[inside].sqrt().log()  # no nan for the gradients of others
    z[~inside] = 1 / x[~inside].abs()
    return z


def rows(x: Any, y: Any, m: Any) -> Any:
    chosen = m.any(1) & (x.sum(1) > 0)
    z = x.clone()
    z[chosen] = y[chosen].exp() - 1
    return z


def into_an_argument(x: Any, y: Any, m: Any) -> Any:
    y[m] += x[m].detach()
    return x * y


def integers(x: Any, y: Any, m: Any) -> Any:
    z, drawn = (x.detach() * 9).long(), (y.detach() * 9).long()
    z[m] = drawn[m]
    z[m] -= 2
    return z


def in_place_and_used_again(x: Any, y: Any, m: Any) -> Any:
    z = x * 1
    a = z[m]
    b = a.mul_(2)
    z[m] = a + b
    return z


def mask_changed(x: Any, y: Any, m: Any) -> Any:
    z, flags = x * 1, m.clone()
    a = y.detach()[flags]
    flags[0] = False
    if a.dim():
        z[flags] = z[flags] * 5
    return z, a.sum()


def used_elsewhere(x: Any, y: Any, m: Any) -> Any:
    z = x.clone()
    v = y[m]
    z[m] = v.exp()
    return z, v


def another_place(x: Any, y: Any, m: Any) -> Any:
    z = x.clone()
    z[m] = z.flip(0)[m] - 2
    return z


WHOLE = [moved, scaled, outside_the_domain, rows, into_an_argument, integers, another_place]
OTHERS = [in_place_and_used_again, mask_changed, used_elsewhere]


def run(fn: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    x, base = torch.randn(3, 4, requires_grad=seed != 1), torch.randn(3, 4, requires_grad=seed > 1)
    m = torch.rand(3, 4) > (0.5, 0.3, 2.0, -1.0)[seed]
    y = base * 1
    found = fn(x, y, m)
    flat = found if isinstance(found, tuple) else (found,)
    total = sum((r * r).sum() for r in flat if r.is_floating_point())
    if isinstance(total, torch.Tensor) and total.requires_grad:
        total.backward()
    return found, x.grad, base.grad, y


def halved(x: Any, m: Any) -> Any:
    z = x + 1
    z[m] *= 0.5
    return z


def all_halved(x: Any, m: Any) -> Any:
    x *= 0.5
    return x + m


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_integers_in_place_become_no_floats(backend: str) -> None:
    for fn in (halved, all_halved):
        with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
            jitney.compile(fn, backend=backend)(torch.arange(4), torch.tensor([True, False, True, True]))


def doubled(x: Any, m: Any) -> Any:
    x[m] = x[m] * 2
    return x + 1


@pytest.mark.filterwarnings("ignore:Use of index_put_ on expanded tensors:UserWarning")
def test_what_overlaps_is_written_as_in_eager() -> None:
    for size, stride in (((3, 3), (1, 1)), ((3, 3), (1, 0)), ((3, 3), (0, 0))):
        expected, found = torch.arange(1, 6.0), torch.arange(1, 6.0)
        m = torch.eye(3) > 0
        a = doubled(expected.as_strided(size, stride), m)
        b = jitney.compile(doubled, backend="aot_eager")(found.as_strided(size, stride), m)
        torch.testing.assert_close((a, expected), (b, found))


def by_itself(x: Any) -> Any:
    m = x.view(torch.bool)
    x[m] = x[m] * 2
    return x + 1


def test_a_mask_in_the_memory_that_is_written_is_eagers_error() -> None:
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor refer"):
        jitney.compile(by_itself, backend="aot_eager")(torch.tensor([0, 1, 1, 0], dtype=torch.uint8))


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_values_gradients_and_writes(backend: str) -> None:
    for fn in [*WHOLE, *OTHERS]:
        compiled = jitney.compile(fn, backend=backend)
        with observe() as seen:
            for seed in range(4):
                torch.testing.assert_close(run(compiled, seed), run(fn, seed), equal_nan=True)
        assert fn in OTHERS or not (seen.breaks or seen.kept or seen.skips), fn


def test_a_mask_on_the_host_for_a_device_is_left_as_it_is() -> None:
    graph, mode = fx.Graph(), FakeTensorMode()
    values = {}
    with mode:
        for name in "zy":
            values[name] = torch.empty(4, device="cuda")
        values["m"] = torch.empty(4, dtype=torch.bool)
        values["taken"] = torch.empty(2, device="cuda")
    nodes = {name: graph.placeholder(name) for name in "zym"}
    nodes["taken"] = graph.call_function(operator.getitem, (nodes["y"], nodes["m"]))
    for name, node in nodes.items():
        node.meta["example_value"] = values[name]
    graph.call_function(operator.setitem, (nodes["z"], nodes["m"], nodes["taken"]))
    graph.output((nodes["z"],))
    module = fx.GraphModule(torch.nn.Module(), graph)
    made = without_masked_writes(module)
    assert [node.target for node in made.graph.nodes] == [node.target for node in module.graph.nodes]
