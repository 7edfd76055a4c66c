"""``__subclasshook__`` of the program's abstract classes, which ``ABCMeta`` asks once for each class."""

from __future__ import annotations

import abc
import collections.abc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import jitney
from jitney.errors import Unsupported

ASKED: list[str] = []
ANSWER = True


def family(hook: Any) -> tuple[Any, Any, Any]:
    """An abstract class with a hook, a class that it knows by its name, and one that it does not know."""

    class Abstract(abc.ABC):
        __subclasshook__ = classmethod(hook)  # type: ignore[assignment]

    return Abstract, type("Known", (), {}), type("Other", (), {})


def by_name(cls: Any, other: type) -> Any:
    return True if other.__name__ == "Known" else NotImplemented


def by_global(cls: Any, other: type) -> Any:
    return ANSWER if other.__name__ == "Known" else False


def noting(cls: Any, other: type) -> Any:
    ASKED.append(other.__name__)
    return by_name(cls, other)


ASK: dict[str, Callable[..., Any]] = {
    "isinstance": lambda x, one, cls: x * 2 if isinstance(one, cls) else x * 3,
    "issubclass": lambda x, one, cls: x * 2 if issubclass(type(one), cls) else x * 3,
    "tuple": lambda x, one, cls: x * 2 if isinstance(one, (int, cls)) else x * 3,
    "tensor": lambda x, one, cls: x * 2 if isinstance(x, cls) else x * (3 + isinstance(one, cls)),
}


@pytest.mark.parametrize("ask", ASK)
def test_a_hook_is_asked_in_the_graph(ask: str) -> None:
    fn = ASK[ask]
    cls, *kinds = family(by_name)
    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    got = [compiled(torch.ones(1), kind(), cls).item() for _ in "12" for kind in kinds]
    assert got == [fn(torch.ones(1), kind(), cls).item() for _ in "12" for kind in kinds]


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As frozendict does with an abstract class of the standard library."""
    before = collections.abc.MutableMapping.__subclasshook__

    @classmethod  # type: ignore[misc]
    def hook(cls: Any, other: type) -> Any:
        return False if other.__name__ == "Frozen" else before(other)

    monkeypatch.setattr(collections.abc.MutableMapping, "__subclasshook__", hook)
    yield


@pytest.mark.usefixtures("patched")
def test_a_hook_that_a_library_has_put_into_an_abstract_class() -> None:
    def fn(x: torch.Tensor, one: Any) -> torch.Tensor:
        return x * (1 + isinstance(one, collections.abc.Mapping)) + isinstance(x, collections.abc.Mapping)

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for one in (type("Frozen", (), {})(), type("Table", (dict,), {})(), type("Frozen", (dict,), {})()):
        assert compiled(torch.ones(1), one).item() == fn(torch.ones(1), one).item()


def test_a_hook_that_leaves_traces_is_run_by_python() -> None:
    def fn(x: torch.Tensor, one: Any, cls: Any) -> Any:
        before = len(ASKED)
        return (x * 2 if isinstance(one, cls) else x * 3), len(ASKED) - before

    results = []
    for wrap in (lambda f: f, lambda f: jitney.compile(f, backend="eager")):
        cls, known, _ = family(noting)
        called = wrap(fn)
        results.append([str(called(torch.ones(1), known(), cls)) for _ in "123"])
    assert results[0] == results[1]


def test_a_hook_reads_what_the_frame_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor, one: Any, cls: Any) -> torch.Tensor:
        global ANSWER
        ANSWER = False
        return x * 2 if isinstance(one, cls) else x * 3

    monkeypatch.setitem(globals(), "ANSWER", True)
    cls, known, _ = family(by_global)
    assert jitney.compile(fn, backend="eager")(torch.ones(1), known(), cls).item() == 3
    cls, known, _ = family(by_global)
    monkeypatch.setitem(globals(), "ANSWER", True)
    with pytest.raises(Unsupported, match="may change something"):
        jitney.compile(fn, backend="eager", fullgraph=True)(torch.ones(1), known(), cls)


def test_a_hook_behind_a_class_that_fits_is_not_asked() -> None:
    def raises(cls: Any, other: type) -> Any:
        raise ValueError("asked")

    cls, known, _ = family(raises)

    def fn(x: torch.Tensor, one: Any) -> torch.Tensor:
        return x * 2 if isinstance(one, (known, cls)) else x

    assert jitney.compile(fn, backend="eager", fullgraph=True)(torch.ones(1), known()).item() == 2


def test_a_hook_that_raises_raises_in_the_program() -> None:
    def raises(cls: Any, other: type) -> Any:
        raise ValueError("asked")

    def fn(x: torch.Tensor, one: Any, cls: Any) -> torch.Tensor:
        try:
            return x * 2 if isinstance(one, cls) else x
        except ValueError:
            return x * 5

    cls, known, _ = family(raises)
    assert jitney.compile(fn, backend="eager")(torch.ones(1), known(), cls).item() == 5
