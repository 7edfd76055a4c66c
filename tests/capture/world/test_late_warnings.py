"""``warnings.catch_warnings`` in captured code: filters hold for what is warned in their block, and for that only."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, t

import jitney


def ignored(x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("within", stacklevel=1)
        y = x * 2
    warnings.warn("after", stacklevel=1)
    return y


def by_message(x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="wi.*", category=UserWarning)
        warnings.warn("within", stacklevel=1)
        warnings.warn("another", stacklevel=1)
        warnings.warn("within", DeprecationWarning, stacklevel=1)
    return x * 2


def nested(x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        with contextlib.suppress(KeyError), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "us.*")
            warnings.warn("user", stacklevel=1)
            raise KeyError
        warnings.warn("user", stacklevel=1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        warnings.warn("on a stack", stacklevel=1)
    return x + 1


@pytest.mark.parametrize("fn", [ignored, by_message, nested])
def test_filters_of_a_block_are_part_of_the_graph(fn: Any) -> None:
    check(fn, t(2), breaks=0, graphs=1)


def test_a_break_within_a_block_leaves_its_filters_in_place() -> None:
    def breaks(x: torch.Tensor, limit: int) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("before", stacklevel=1)
            jitney.graph_break()
            warnings.warn("behind", stacklevel=1)
            y = x * limit
        warnings.warn("after", stacklevel=1)
        return y

    def scenario(compiled: Any) -> Any:
        fn = compiled(breaks)
        return [fn(t(2), 1), fn(t(2), 2), len(warnings.filters)]

    check_scenario(scenario)


def test_an_operation_that_warns_in_a_block() -> None:
    def warns(x: torch.Tensor) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.nn.functional.softmax(x)  # without a dimension

    check(warns, t(2))


def test_a_block_that_makes_exceptions() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                warnings.warn("now", stacklevel=1)
            except UserWarning:
                return x * 2
        return x

    check(raises, t(2))


def test_a_block_in_a_world_that_makes_exceptions() -> None:
    def scenario(compiled: Any) -> Any:
        fn, results = compiled(ignored), []
        for action in ("ignore", "error"):
            with warnings.catch_warnings():
                warnings.simplefilter(action)  # type: ignore[arg-type]
                try:
                    results.append(fn(t(2)))
                except UserWarning as error:
                    results.append(str(error))
        return results

    check_scenario(scenario)


def test_warnings_shown_another_way_in_a_block() -> None:
    def shows(x: torch.Tensor, seen: list[str]) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *rest: seen.append(str(message))  # type: ignore[assignment]
            warnings.warn("seen", stacklevel=1)
        return x * 2

    check(shows, t(2), [])


def test_a_block_that_keeps_its_warnings() -> None:
    def keeps(x: torch.Tensor) -> Any:
        with warnings.catch_warnings(record=True) as kept:
            warnings.simplefilter("always")
            warnings.warn("kept", stacklevel=1)
        return x * len(kept), str(kept[0].message)

    check(keeps, t(2))


def test_a_frame_reads_the_warnings_that_it_keeps() -> None:
    def fn(x: torch.Tensor, kept: list[Any] | None) -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("first", stacklevel=1)
            number = len(seen)
            warnings.warn("second", stacklevel=1)
        return x + 1, number, [str(w.message) for w in seen], kept is None

    compiled = jitney.compile(fn, backend="eager")
    for kept in (None, [], None):
        assert str(compiled(torch.ones(2), kept)) == str(fn(torch.ones(2), kept))


def test_a_frame_is_given_the_list_of_warnings_or_another() -> None:
    def fn(x: torch.Tensor, kept: list[Any]) -> Any:
        warnings.warn("said", stacklevel=1)
        return x + 1, len(kept)

    compiled = jitney.compile(fn, backend="eager")
    for own in (False, True, False, True):
        found = []
        for run in (fn, compiled):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                found.append(str(run(torch.ones(2), seen if own else [])))
        assert found[0] == found[1]
