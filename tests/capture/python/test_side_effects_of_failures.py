"""What a call that fails leaves behind: what eager leaves, or nothing when the compiler itself failed."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import BACKEND, FRONTEND, check, compile_fn, t

import jitney
from jitney_testing.pictures import Freezer, differences


class Box:
    """An object with attributes."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_exception_in_the_middle_leaves_what_was_done() -> None:
    def fn(x: torch.Tensor, items: list[Any], box: Box) -> torch.Tensor:
        items.append(1)
        x.add_(1)
        box.n = 5
        raise ValueError("stop")

    check(fn, t(), [], Box(n=0), raises=ValueError)


def test_exception_from_an_operation_leaves_what_was_done() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, items: list[Any], d: dict[str, Any]) -> torch.Tensor:
        x.mul_(2)
        items.append(x.shape)
        d["missing"]
        items.append("never")
        return x @ y

    check(fn, t(), t(), [], {}, raises=KeyError)
    check(fn, t(), t(4), [], {"missing": 1}, raises=RuntimeError)


def test_operation_that_fails_only_on_real_values_leaves_what_was_done_before() -> None:
    def fn(x: torch.Tensor, index: torch.Tensor, items: list[Any], box: Box) -> torch.Tensor:
        items.append("before")
        box.n = 5
        with torch.no_grad():
            y = x[index]
        items.append("after")
        return y * 2

    check(fn, t(), torch.tensor([0, 7]), [], Box(n=0), calls=1, raises=IndexError, skips=None)


@pytest.mark.skipif(FRONTEND != "jitney", reason="jitney's own way with graphs that fail")
@pytest.mark.parametrize("catches", [True, False])
def test_a_graph_that_writes_and_fails_leaves_the_frame_to_eager(catches: bool) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor, items: list[Any]) -> torch.Tensor:
        y.add_(1)
        items.append(3)
        try:
            x.index_add_(0, index, y)
        except IndexError:
            y.mul_(10)
            items.append(4)
            if not catches:
                raise
        return x * 2

    compiled = jitney.compile(fn, backend="aot_eager", fullgraph=True)
    for last in (2, 7, 2):
        outcomes = []
        for run in (fn, compiled):
            x, y, items = torch.zeros(3), torch.ones(3), []
            try:
                result: Any = run(x, y, torch.tensor([0, 1, last]), items).tolist()
            except IndexError as error:
                result = str(error)
            outcomes.append((result, x.tolist(), y.tolist(), items))
        assert outcomes[0] == outcomes[1]


class Suppresses:
    """A manager of the program's, which writes when its block is left."""

    def __init__(self, x: torch.Tensor, suppresses: bool) -> None:
        self.x, self.suppresses = x, suppresses

    def __enter__(self) -> Suppresses:
        return self

    def __exit__(self, *raised: Any) -> bool:
        self.x.mul_(3)
        return self.suppresses


@contextlib.contextmanager
def tripling(x: torch.Tensor, suppresses: bool) -> Iterator[None]:
    try:
        yield
    except IndexError:
        if not suppresses:
            raise
    finally:
        x.mul_(3)


def stacked(x: torch.Tensor, suppresses: bool) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    stack.callback(x.mul_, 3)
    return stack


def suppressed(x: torch.Tensor, suppresses: bool) -> Any:
    return contextlib.suppress(IndexError if suppresses else KeyError)


@pytest.mark.skipif(FRONTEND != "jitney", reason="jitney's own way with graphs that fail")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("manager", [Suppresses, tripling, stacked, suppressed])
def test_managers_of_blocks_get_what_a_graph_raises(manager: Any, backend: str) -> None:
    def fn(x: torch.Tensor, index: torch.Tensor, suppresses: bool) -> torch.Tensor:
        with manager(x, suppresses):
            x.add_(1)
            y = x[index]
            return y * 2
        return x * 10

    compiled = jitney.compile(fn, backend=backend)
    for last, suppresses in ((2, True), (7, True), (7, False), (0, True)):
        outcomes = []
        for run in (fn, compiled):
            torch.manual_seed(0)
            x = torch.ones(3)
            try:
                result: Any = run(x, torch.tensor([0, last]), suppresses).tolist()
            except IndexError:
                result = "raised"
            outcomes.append((result, x.tolist(), x._version))
        assert outcomes[0] == outcomes[1], (last, suppresses)


def test_exception_caught_keeps_partial_writes() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> tuple[Any, ...]:
        try:
            for i in range(5):
                items.append(i)
                x = x + [1, 2][i]
        except IndexError:
            items.append("caught")
        return items, x

    check(fn, t(), [], calls=1, graphs=1)


# --- backends that fail --------------------------------------------------------------------------------------------


def _raising(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("no kernels today")


def _rubbish(graph: Any, inputs: Any) -> Any:
    return 42


@pytest.mark.skipif(FRONTEND != "jitney", reason="jitney's own errors")
@pytest.mark.parametrize("backend", [_raising, _rubbish])
def test_failing_backend_is_named_and_leaves_objects_unchanged(backend: Any) -> None:
    from jitney.errors import BackendFailed

    def fn(x: torch.Tensor, items: list[Any], d: dict[str, Any], box: Box) -> torch.Tensor:
        items.append(1)
        d["k"] = 2
        box.n = 3
        x.add_(1)
        return x * 2

    live = (t(), [0], {"a": 1}, Box(n=0))
    before = Freezer().freeze(copy.deepcopy(live), "args")
    with pytest.raises(BackendFailed) as caught:
        compile_fn(fn, backend=backend)(*live)
    assert not list(differences(before, Freezer().freeze(live, "args"), "args"))
    assert "test_side_effects_of_failures.py" in str(caught.value).splitlines()[0]
    if backend is _raising:
        assert "no kernels today" in str(caught.value)
        assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.skipif(FRONTEND != "jitney", reason="jitney's own errors")
def test_after_a_backend_failed_another_one_works() -> None:
    from jitney.errors import BackendFailed

    def fn(x: torch.Tensor, items: list[Any]) -> torch.Tensor:
        items.append(1)
        return x * 2

    items: list[Any] = []
    with pytest.raises(BackendFailed):
        compile_fn(fn, backend=_raising)(t(), items)
    assert torch.equal(compile_fn(fn, backend=BACKEND)(t(), items), t() * 2)
    assert items == [1]
