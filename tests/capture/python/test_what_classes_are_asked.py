"""Questions that Python asks the program's classes: how often, and of which object."""

from __future__ import annotations

import abc
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import check_made, compile_fn, disable, t

from jitney.torch_compat.torch_private import FakeTensor

LOG: list[Any] = []


class Meta(type):
    def __instancecheck__(cls, value: Any) -> bool:
        LOG.append(("instance", type(value).__name__))
        return False

    def __subclasscheck__(cls, kind: type) -> bool:
        LOG.append(("subclass", kind.__name__))
        return kind is int


class Asked(metaclass=Meta):
    pass


class Below(Asked):
    pass


class Rewinding:
    """An iterator that begins again where it is asked for an iterator."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        LOG.append("iter")
        self.at = 0
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at > 3:
            raise StopIteration
        return self.at


def unpacked(x: torch.Tensor) -> Any:
    first, *rest = Rewinding()
    return x * first, rest


def unpacked_from_its_end(x: torch.Tensor) -> Any:
    *rest, last = Rewinding()
    return x * last, rest


def unpacked_too_short(x: torch.Tensor) -> Any:
    try:
        a, b, *_, c, d, e = Rewinding()
    except ValueError as error:
        return x, str(error)
    return x, a, b, c, d, e


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: (x + 1, isinstance(Asked(), Asked), isinstance(Below(), Asked)),
    lambda x: (x + 1, isinstance(Asked(), (Asked, str)), isinstance(3, (str, Asked)), isinstance(3, (int, Asked))),
    lambda x: (x + 1, isinstance(Below(), ((int, Asked), str)), isinstance(x, (Asked, torch.Tensor))),
    lambda x: (x + 1, issubclass(int, Asked), issubclass(str, (bool, (Asked,))), issubclass(Below, (Below, Asked))),
    lambda x: (
        x + 1,
        isinstance(x, FakeTensor),
        isinstance(x, (FakeTensor, int)),
        isinstance(x, ((int, FakeTensor), Asked)),
    ),
    unpacked,
    unpacked_from_its_end,
    unpacked_too_short,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_questions_are_asked_as_python_asks_them(program: Callable[[torch.Tensor], Any]) -> None:
    told = []
    for call in (compile_fn(program), program):
        LOG.clear()
        told.append((repr([call(t(3)) for _ in range(2)]), [*LOG]))
    assert told[0] == told[1]


def test_a_module_comes_to_compute_what_it_lacks() -> None:
    module: Any = types.ModuleType("jitney_test_module")
    sys.modules[module.__name__] = module

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(module, "scale", 1)

    compiled = compile_fn(program)
    assert compiled(t(3)).equal(t(3))
    module.__getattr__ = lambda name: 5 if name == "scale" else None
    assert compiled(t(3)).equal(t(3) * 5)
    del sys.modules[module.__name__]


class Layer(abc.ABC):
    """As caches have: asked for by its abstract class after it was written to."""

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None

    @abc.abstractmethod
    def update(self, x: torch.Tensor) -> None: ...


class Growing(Layer):
    def update(self, x: torch.Tensor) -> None:
        self.keys = x if self.keys is None else torch.cat([self.keys, x])


class Sized(abc.ABC):  # noqa: B024
    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return hasattr(kind, "size")


def test_abstract_classes_look_at_the_class_alone() -> None:
    def fn(x: torch.Tensor, layer: Any) -> Any:
        layer.update(x)
        if isinstance(layer, Layer):
            x = layer.keys + 1
        return x * 2 if isinstance(layer, Sized) else x

    compiled = compile_fn(fn, fullgraph=True)
    ends = []
    for call in (fn, compiled):
        layer = Growing()
        told = [call(t(2), layer).tolist()]
        Growing.size = 3  # type: ignore[attr-defined]
        told.append(call(t(2), Growing()).tolist())
        del Growing.size  # type: ignore[attr-defined]
        ends.append((told, layer.keys.tolist() if layer.keys is not None else None))
    assert ends[0] == ends[1]


class Answering:
    """Is called in Python, and answers for attributes itself."""

    @disable
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def __getattr__(self, name: str) -> Any:
        LOG.append(name)
        raise AttributeError(name)


class Hashed:
    def __hash__(self) -> int:
        return 2

    def __eq__(self, other: object) -> bool:
        return self is other


def test_what_is_called_at_a_break_is_asked_for_nothing() -> None:
    def make() -> Any:
        callee, kept, LOG[:] = Answering(), list[Any](), ()

        def fn(x: torch.Tensor) -> Any:
            kept.append(Hashed())
            return callee(x + 1) + 1

        return fn, lambda: (len(kept), [*LOG])

    check_made(make, t(3), graphs=2, breaks=1)


class Tagged(abc.ABCMeta):
    def __instancecheck__(cls, value: Any) -> bool:
        LOG.append("asked")
        return super().__instancecheck__(value) or getattr(value, "tag", None) == cls.__name__


class Named(abc.ABCMeta):
    def __subclasscheck__(cls, kind: type) -> bool:
        LOG.append(kind.__name__)
        return super().__subclasscheck__(kind) or kind.__name__ == "Unrelated"


class ByTag(metaclass=Tagged):
    pass


class ByName(metaclass=Named):
    pass


class Child(ByTag, metaclass=Tagged):
    pass


class Unrelated:
    pass


def test_metaclasses_may_be_abstract_ones() -> None:
    def fn(x: torch.Tensor, value: Any) -> Any:
        value.written = 3
        x = x * 2 if isinstance(value, ByTag) else x
        return x + 1 if isinstance(value, ByName) else x

    compiled = compile_fn(fn)
    tagged = Unrelated()
    tagged.tag = "ByTag"  # type: ignore[attr-defined]
    for value in (Child(), tagged, Unrelated(), Growing()):
        fn(t(2), value)  # abstract classes remember answers
        seen = []
        for call in (fn, compiled):
            LOG.clear()
            seen.append((call(t(2), value).tolist(), [*LOG]))
        assert seen[0] == seen[1]
    compiled = compile_fn(lambda x, value: x * 2 if isinstance(value, ByTag) else x, fullgraph=True)
    assert [compiled(t(2), value).tolist() for value in (Child(), tagged, 3)] == [
        (t(2) * n).tolist() for n in (2, 2, 1)
    ]
