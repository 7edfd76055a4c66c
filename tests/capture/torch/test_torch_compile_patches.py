"""torch.compile puts itself around functions of torch in the whole process; capture looks through that."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import jitney
from jitney.capture.marks import without_patches
from jitney.errors import Unsupported

pytestmark = pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")


@pytest.fixture(autouse=True)
def patched() -> None:
    """What a first use of torch.compile leaves in the process; there is no way back."""
    torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
    assert "mutation_guard" in torch.nn.Module.__init__.__code__.co_filename
    assert "eval_frame" in torch.optim.Adam._init_group.__code__.co_filename  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_an_optimizers_step_stays_one_graph(kind: str) -> None:
    model = torch.nn.Linear(3, 2)
    twin = copy.deepcopy(model)
    optimizers = [getattr(torch.optim, kind)(m.parameters(), lr=0.01) for m in (model, twin)]
    step = jitney.compile(optimizers[0].step, backend="eager", fullgraph=True)
    for _ in range(3):
        for m, run in ((model, step), (twin, optimizers[1].step)):
            m.zero_grad()
            m(torch.ones(4, 3)).square().sum().backward()
            run()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_a_module_is_made_inside() -> None:
    def fn(x: torch.Tensor) -> Any:
        made = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sigmoid())
        return made(x), made

    out, made = jitney.compile(fn, backend="eager", fullgraph=True)(torch.ones(3))
    assert torch.equal(out, torch.ones(3).sigmoid())
    assert [type(m).__name__ for m in made.modules()] == ["Sequential", "ReLU", "Sigmoid"]
    assert torch.equal(made(torch.ones(3)), out)


def test_what_users_disable_stays_disabled() -> None:
    @torch.compiler.disable(reason="optimizer step not supported")
    def mine(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert without_patches(mine) is mine
    with pytest.raises(Unsupported, match="disabled for compiling"):
        jitney.compile(lambda x: mine(x) * 2, backend="eager", fullgraph=True)(torch.ones(2))


def test_an_optimizer_disabled_by_hand_stays_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = without_patches(torch.optim.SGD._init_group)  # type: ignore[attr-defined]
    assert "eval_frame" not in inner.__code__.co_filename
    monkeypatch.setattr(torch.optim.SGD, "_init_group", torch.compiler.disable(inner, reason="mine"))
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(torch.ones(4, 3)).sum().backward()
    with pytest.raises(Unsupported, match="_init_group is disabled for compiling"):
        jitney.compile(optimizer.step, backend="eager", fullgraph=True)()
