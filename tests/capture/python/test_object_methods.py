"""Methods that every object has from ``object``: never of what stands for a tensor or a number while capturing."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check, compile_fn, t
from torch import nn

VALUES: dict[str, Any] = {
    "integers": [2, 3, 4, 5],
    "floats": [0.5, 1.5, 2.5],
    "scalars of NumPy": [np.float64(1.5), np.float64(2.5)],
    "integers of NumPy": [np.int64(1), np.int64(2)],
    "arrays": [np.arange(3.0), np.arange(3.0) + 1],
    "parameters": [nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))],
    "tensors": [torch.ones(2), torch.zeros(2)],
    "modules": [nn.ReLU()],
    "dates": [datetime.date(2020, 1, 2), datetime.date(2020, 1, 3)],
}
METHODS: dict[str, tuple[Any, ...]] = {
    "__str__": (),
    "__format__": ("",),
    "__sizeof__": (),
    "__dir__": (),
    "__reduce_ex__": (2,),
    "__eq__": (2,),
    "__ne__": (2,),
    "__getattribute__": ("__class__",),
    "__getstate__": (),
    "__init_subclass__": (),
    "__subclasshook__": (int,),
    "__init__": (),
}


def outcome(fn: Any, *args: Any) -> str:
    try:
        return repr(fn(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", METHODS)
def test_objects_own_methods(name: str, kind: str) -> None:
    def through_object(x: torch.Tensor, value: Any) -> Any:
        return getattr(object, name)(value, *METHODS[name])

    def bound(x: torch.Tensor, value: Any) -> Any:
        return getattr(value, name)(*METHODS[name])

    for fn in (through_object, bound):
        if name in ("__reduce_ex__", "__sizeof__") and kind in ("parameters", "tensors", "modules"):
            continue  # they tell of addresses and of dictionaries
        compiled = compile_fn(fn)
        for value in VALUES[kind]:
            assert outcome(compiled, t(), value) == outcome(fn, t(), value)


def test_hashes_of_tensors_are_theirs() -> None:
    def fn(x: torch.Tensor, p: torch.Tensor) -> Any:
        hashes = [x.__hash__(), torch.Tensor.__hash__(x), object.__hash__(x), p.__hash__()]
        return x + 1, hashes[0] == hash(x) == hashes[1], hashes[2:]

    x, p = t(), nn.Parameter(t())
    got, wanted = compile_fn(fn)(x, p), fn(x, p)
    assert got[1:] == wanted[1:]


def test_tensors_are_written_to_through_object() -> None:
    def fn(x: torch.Tensor) -> Any:
        object.__setattr__(x, "tag", 3)
        x.__setattr__("other", 4)
        return x + 1, x.tag, object.__getattribute__(x, "other")  # type: ignore[attr-defined]

    check(fn, t(), graphs=1, breaks=0)


def test_parameters_say_what_they_are() -> None:
    def fn(p: Any) -> Any:
        return p + 1, p.__repr__(), p.__module__, p.__doc__ == nn.Parameter.__doc__, torch.Tensor.__module__

    check(fn, nn.Parameter(t()), skips=None)


def test_unequal_is_not_equal_by_the_class() -> None:
    class Length:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            if not isinstance(other, Length):
                return NotImplemented
            return bool(self.value == other.value)

        __hash__ = None  # type: ignore[assignment]

    class Noted(Length):
        def __ne__(self, other: object) -> bool:
            return super().__ne__(other)

    def fn(x: torch.Tensor, n: int) -> Any:
        a, b = Noted(n), Noted(3)
        return x + 1, a.__ne__(b), object.__ne__(a, b), object.__ne__(a, 3), a != b, a != a, object.__ne__(n, n)

    compiled = compile_fn(fn)
    for n in (2, 3, 4, 5):
        assert compiled(t(), n)[1:] == fn(t(), n)[1:]


def test_equality_of_c_classes_is_their_own() -> None:
    def fn(x: torch.Tensor, day: Any, row: Any) -> Any:
        return x + 1, day.__eq__(datetime.date(2020, 1, 2)), day.__ne__(day), (row.__eq__(2)).tolist()

    args = t(), datetime.date(2020, 1, 2), np.arange(3)
    assert compile_fn(fn)(*args)[1:] == fn(*args)[1:]


WRONG: dict[str, Any] = {
    "nothing to compare": lambda v: object.__eq__(v),
    "no name": lambda v: object.__getattribute__(v),
    "no value": lambda v: object.__setattr__(v, "tag"),
    "nothing to differ from": lambda v: v.__ne__(),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("kind", VALUES)
def test_wrong_numbers_of_arguments(name: str, kind: str) -> None:
    def fn(x: torch.Tensor, value: Any) -> Any:
        return WRONG[name](value)

    for value in VALUES[kind]:
        assert outcome(compile_fn(fn), t(), value) == outcome(fn, t(), value)
