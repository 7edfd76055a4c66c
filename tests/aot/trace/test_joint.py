"""Captured graphs on their way to functional ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe

import jitney

LAYER = torch.nn.Linear(4, 4)
PARAMETERS = dict(LAYER.named_parameters())


def called(x: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
    out: torch.Tensor = torch.func.functional_call(LAYER, parameters, (x,))
    return out


def turned(parts: list[Any], more: dict[str, list[Any]]) -> torch.Tensor:
    parts.reverse()
    more["more"] = more.pop("more")
    parts.reverse()
    out: torch.Tensor = parts[0][0] + more["more"][0]
    return out


@pytest.fixture
def allowed() -> Iterator[None]:
    jitney.allow_in_graph([called, turned])
    yield
    for fn in (called, turned):
        jitney.capture.marks._allowed.discard(fn)


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_functions_in_graphs_get_lists_and_dictionaries_of_their_own(backend: str) -> None:
    x = torch.randn(3, 4)
    for fn in (lambda x: called(x + 1, PARAMETERS) * 2, lambda x: turned([(x + 1, 2)], {"more": [x]}) * 2):
        with observe() as seen:
            compiled = compile_fn(fn, backend=backend)
            for _ in range(2):
                torch.testing.assert_close(compiled(x), fn(x))
        assert len(seen.graphs) == 1 and not seen.kept and not seen.breaks
