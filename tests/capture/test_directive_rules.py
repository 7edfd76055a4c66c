"""Decorators and context managers of torch.compile's own in code that jitney compiles."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers import FRONTEND, check, compile_fn, observe, t

from jitney.errors import Unsupported

pytestmark = pytest.mark.skipif(FRONTEND != "jitney", reason="what jitney does with them")
compiler: Any = pytest.importorskip("torch._dynamo")


@torch.compiler.nested_compile_region
def region(x: torch.Tensor, *, factor: int = 2) -> torch.Tensor:
    return x * factor


class Regions(torch.nn.Module):
    @torch.compiler.nested_compile_region
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@torch.compiler.wrap_numpy
def on_arrays(a: Any, b: Any = None) -> Any:
    return [np.sum(a * 2), {"row": a[0]}, 3] if b is None else np.sum(a + b, axis=0)


@compiler.error_on_graph_break(True)
def strict(x: torch.Tensor, breaks: bool) -> torch.Tensor:
    if breaks:
        print("a break")
    return x + 1


@compiler.patch_dynamo_config(capture_scalar_outputs=True)
def patched(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@compiler.dont_skip_tracing
def traced(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@compiler.override_cudagraphs(fwd=False)
def without_cudagraphs(x: torch.Tensor) -> torch.Tensor:
    return x * 2


WHOLE = {
    "regions": lambda x: region(x, factor=3) + region(x),
    "a region that is a method": lambda x: Regions()(x) * 2,
    "arrays": lambda x: on_arrays(x + 1, b=x) * 2,
    "scalars stay NumPy's": lambda x: on_arrays(x),
    "strict": lambda x: strict(x, False) * 2,
    "settings": lambda x: patched(x) + traced(x) + without_cudagraphs(x),
    "one operation": lambda x: torch.compiler.allow_in_graph(torch.vmap(torch.sum))(x),
}


@pytest.mark.parametrize("name", WHOLE)
def test_is_one_graph(name: str) -> None:
    check(WHOLE[name], t(), graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [region, on_arrays, patched, traced], ids=["region", "arrays", "patched", "traced"])
def test_is_compiled_itself(fn: Any) -> None:
    check(fn, t(), graphs=1, breaks=0)


def test_results_that_torchs_wrap_numpy_does_not_map_are_pythons() -> None:
    wrapped: Any = torch.compiler.wrap_numpy(lambda a: {1, 2})
    check(lambda x: (wrapped(x), x + 1), t(), breaks=1)


def test_error_on_graph_break_is_honoured() -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with compiler.error_on_graph_break(True):
            print("a break")
            return x + 1

    for fn in (inside, lambda x: strict(x, True), lambda x: strict(x, True) * 2):
        with pytest.raises(Unsupported, match="graph break"):
            compile_fn(fn)(t())


@pytest.fixture
def index_of() -> Iterator[Any]:
    """``operator.indexOf`` with a substitute, until the test ends."""
    functions = pytest.importorskip("torch._dynamo.variables.functions")
    handlers = functions.PolyfilledFunctionVariable._get_polyfill_handlers()
    before = dict(handlers)

    def index_of(a: Any, b: Any, /) -> int:
        for i, item in enumerate(a):
            if item is b or item == b:
                return i
        raise ValueError("sequence.index(x): x not in sequence")

    python = index_of
    python.__torch_dynamo_polyfill__ = index_of  # type: ignore[attr-defined]
    handlers[operator.indexOf] = python
    yield operator.indexOf
    handlers.clear()
    handlers.update(before)


def test_substitutes_are_interpreted(index_of: Any) -> None:
    check(lambda x: x + operator.indexOf([1, 2, 3], 2), t(), graphs=1, breaks=0)
    check(lambda x: x + operator.indexOf([1, 2, 3], 4), t(), raises=ValueError)


def test_allow_in_graph_inside_marks_what_is_older() -> None:
    import jitney

    def older(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([row * 2 for row in x.unbind()])

    for allow in (jitney.allow_in_graph, torch.compiler.allow_in_graph):

        def fn(x: torch.Tensor, allow: Any = allow) -> torch.Tensor:
            return allow(older)(x) + 1

        with observe() as seen:
            assert torch.equal(compile_fn(fn)(t()), older(t()) + 1)
        assert not seen.breaks and any(node.target is older for node in seen.graphs[0].graph.nodes)


def test_allow_in_graph_inside_looks_into_what_the_frame_has_made() -> None:
    import jitney

    def fn(x: torch.Tensor) -> Any:
        def local(y: torch.Tensor) -> torch.Tensor:
            return y * factor

        factor = x.sum()
        jitney.allow_in_graph([local])
        return jitney.allow_in_graph(torch.vmap(torch.sum))(x), local(x)

    check(fn, t(), graphs=1, breaks=0)
