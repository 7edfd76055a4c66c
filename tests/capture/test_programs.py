"""Programs with idioms of models and research code: eager's values, and one graph under ``fullgraph=True``.

A row whose ``graphs`` is more than one says how many jitney makes of it today.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import pytest
import torch
from captured import project_idioms, python_idioms, research_idioms, torch_idioms, training_idioms, values
from captured.table import Program

import jitney
from jitney import events

MODULES = (values, torch_idioms, python_idioms, research_idioms, training_idioms, project_idioms)
ROWS = [row for module in MODULES for row in module.program.rows]


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in _leaves(v)]
    return _leaves(vars(value)) if dataclasses.is_dataclass(value) else [value]


def _pictures(row: Program, made: tuple[Any, ...], call: Any) -> list[Any]:
    """Results of two calls, what became of the arguments and of a module's buffers, and gradients."""
    torch.manual_seed(0)
    subject, *args = made
    found: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            results = _leaves(call(*args))
            if row.train:
                torch.autograd.backward([r.sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad])
            found += [r.detach().clone() if isinstance(r, torch.Tensor) else r for r in results]
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if isinstance(subject, torch.nn.Module):
        tensors += [*subject.parameters(), *subject.buffers()]
    return [*found, *tensors, *(a.grad for a in tensors if a.is_leaf)]


def _same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor) and one.layout is torch.strided:
        torch.testing.assert_close(other, one)
    elif isinstance(one, float):
        assert other == pytest.approx(one)
    elif not isinstance(one, torch.Tensor):
        assert type(one) is type(other)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_program(row: Program, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in row.settings.items():
        monkeypatch.setattr(jitney.config, name, value)
    made = row.make()
    want = _pictures(row, made, made[0])
    made, graphs = row.make(), 0

    def listener(event: Any) -> None:
        nonlocal graphs
        graphs += isinstance(event, events.FrameCaptured) and event.graph is not None

    with events.listen(listener):
        compiled = jitney.compile(made[0], backend=backend, fullgraph=row.graphs == 1 and not row.breaks)
        got = _pictures(row, made, compiled)
    assert len(got) == len(want)
    for one, other in zip(want, got, strict=True):
        _same(one, other)
    assert graphs == row.graphs
