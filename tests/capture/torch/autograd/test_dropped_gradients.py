"""``options={"drop_grads": True}``: no gradient outlives a step that begins by zeroing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jitney
from jitney import events


def trained(compile_: Callable[[Any], Any], zeroes: str = "first") -> tuple[nn.Module, list[Any], Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        if zeroes == "first":
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if zeroes == "before backward":
            optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if zeroes == "breaks":
            print(end="")
        return loss.detach(), norm, model[0].weight.grad * 2

    run = compile_(step)
    results = [run(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(4)]
    return model, results, optimizer.state_dict()


def compiled(backend: str, **more: Any) -> Callable[[Any], Any]:
    return lambda fn: jitney.compile(fn, backend=backend, options={"drop_grads": True}, **more)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_all_else_is_eagers(backend: str) -> None:
    model, results, state = trained(compiled(backend, fullgraph=True))
    wanted, *others = trained(lambda fn: fn)
    torch.testing.assert_close([results, state], others, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(list(model.parameters()), list(wanted.parameters()), rtol=1e-4, atol=1e-5)
    assert all(p.grad is None for p in model.parameters())


def test_the_graph_does_not_return_them() -> None:
    def results(options: dict[str, Any]) -> int:
        found: list[int] = []

        def count(event: Any) -> None:
            if isinstance(event, events.GraphCaptured):
                found.append(len(event.graph.graph.output_node().args[0]))

        with events.listen(count):
            trained(lambda fn: jitney.compile(fn, backend="eager", options=options))
        return found[-1]

    assert results({}) - results({"drop_grads": True}) == 4  # one for each parameter


def test_gradients_that_may_be_added_to_stay() -> None:
    for zeroes in ("never", "before backward"):
        model, *_ = trained(compiled("eager"), zeroes)
        wanted, *_ = trained(lambda fn: fn, zeroes)
        torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in wanted.parameters()])


def test_before_a_graph_break_they_stay() -> None:
    model, results, _ = trained(compiled("eager"), "breaks")
    wanted, others, _ = trained(lambda fn: fn, "breaks")
    torch.testing.assert_close(results, others)
    torch.testing.assert_close(list(model.parameters()), list(wanted.parameters()))
