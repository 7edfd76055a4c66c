"""Calls that differ in what guards ask about, each with the frames on disk that other calls have left."""

from __future__ import annotations

import gc
import itertools
import warnings
import weakref
from typing import Any

import pytest
import torch
from cache.again import run

o = torch.ones
CALLS: dict[str, tuple[str, list[Any]]] = {
    "one tensor or two": (
        "def fn(x,y):\n    x.add_(1)\n    return x+y*2+(10 if x is y else 0)",
        [
            lambda: (lambda a: (a, a))(o(2)),
            lambda: (o(2), o(2)),
        ],
    ),
    "views of one memory": (
        "def fn(x,y):\n    x.mul_(2)\n    return x+y",
        [
            lambda: (lambda a: (a[:2], a[1:]))(o(3)),
            lambda: (o(2), o(2)),
            lambda: (lambda a: (a, a.view(2)))(o(2)),
        ],
    ),
    "lists": (
        "def fn(l,k):\n    l.append(k)\n    return l[0]+len(l)",
        [
            lambda: ([o(2)], 3),
            lambda: ([o(2), o(2)], 3),
            lambda: ([o(2)], "s"),
        ],
    ),
    "dictionaries": (
        "def fn(d):\n    r=0\n    for k,v in d.items(): r=r*3+v\n    return r",
        [
            lambda: ({"a": o(1), "b": o(1) * 2},),
            lambda: ({"b": o(1) * 2, "a": o(1)},),
            lambda: ({"a": o(1)},),
        ],
    ),
    "numbers of several classes": (
        "def fn(x,k): return x*k",
        [
            lambda: (o(2), 2),
            lambda: (o(2), 2.0),
            lambda: (o(2), True),
            lambda: (o(2, dtype=torch.int64), 2.5),
            lambda: (o(2), 1),
            lambda: (o(2), float("nan")),
            lambda: (o(2), -0.0),
            lambda: (o(2), 0.0),
        ],
    ),
    "callables": (
        "def fn(x,f): return f(x)",
        [
            lambda: (o(2), torch.sin),
            lambda: (o(2), torch.cos),
            lambda: (o(2), lambda x: x + 1),
            lambda: (o(2), lambda x: x + 2),
            lambda: (o(2), torch.nn.ReLU()),
            lambda: (o(2) * -1, torch.nn.LeakyReLU(0.3)),
        ],
    ),
    "an optional tensor": (
        "def fn(x,m=None): return x if m is None else x*m",
        [
            lambda: (o(2),),
            lambda: (o(2), o(2) * 3),
            lambda: (o(2), None),
        ],
    ),
    "a counter in the globals": (
        "N=0\ndef fn(x):\n    global N\n    N+=1\n    return x+N",
        [
            lambda: (o(2),),
            lambda: (o(2),),
        ],
    ),
    "places to write to": (
        "def fn(x,i):\n    x[i]=5\n    return x",
        [
            lambda: (o(4), 1),
            lambda: (o(4), 2),
            lambda: (o(4), slice(1, 3)),
            lambda: (o(4), torch.tensor([0, 1])),
        ],
    ),
    "dtypes": (
        "def fn(x): return torch.zeros(2,dtype=x.dtype)+x.to(torch.float32)",
        [
            lambda: (o(2),),
            lambda: (o(2, dtype=torch.float16),),
            lambda: (o(2, dtype=torch.int8),),
            lambda: (o(2, dtype=torch.bool),),
        ],
    ),
    "an exception": (
        "def fn(x,k):\n    try:\n        return x[k]\n    except IndexError:\n        return x*0",
        [
            lambda: (o(2), 1),
            lambda: (o(2), 5),
        ],
    ),
    "text": (
        "def fn(x,s): return x*len(s)+(s=='ab')",
        [
            lambda: (o(2), "ab"),
            lambda: (o(2), "cd"),
            lambda: (o(2), "abc"),
            lambda: (o(2), b"ab"),
        ],
    ),
    "sets": (
        "def fn(x,s): return x+(3 in s)+len(s)",
        [
            lambda: (o(2), {1, 3}),
            lambda: (o(2), {1, 2}),
            lambda: (o(2), frozenset({3})),
        ],
    ),
}


def outcome(function: Any, arguments: Any) -> Any:
    try:
        return function(*arguments), arguments
    except Exception as error:
        return type(error).__name__


def compare(found: Any, expected: Any) -> None:
    assert type(found) is type(expected) or callable(found)
    if isinstance(found, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
    elif isinstance(found, (list, tuple)):
        for a, b in zip(found, expected, strict=True):
            compare(a, b)
    elif isinstance(found, dict):
        assert list(found) == list(expected)
        compare(list(found.values()), list(expected.values()))
    elif not callable(found):
        assert found == expected or found != found


@pytest.mark.parametrize("name", CALLS)
def test_each_call_finds_its_own_frame(name: str) -> None:
    text, makes = CALLS[name]
    loaded = 0
    for pair in itertools.permutations(range(len(makes)), 2):
        for order in (pair[:1], pair[::-1]):

            def call(function: Any, module: Any) -> Any:
                with torch.no_grad():
                    return [outcome(function, makes[i]()) for i in order]

            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*cache_size_limit.*")
                found, expected, story = run(text, call)
            compare(found, expected)
            loaded += "loaded" in story.steps
    assert loaded


def test_frames_that_do_not_fit_let_go_of_arguments_at_once() -> None:
    text = "class Box: pass\ndef fn(x, box): return x + 1 if box.kind == 'a' else x + 2\n"

    def call(function: Any, module: Any) -> Any:
        found = []
        for kind in kinds:
            box = module.Box()
            box.kind, reference = kind, weakref.ref(box)
            found.append(function(torch.ones(2), box))
            del box
            found.append(reference() is None)
        return found

    kinds = ["a", "b"]
    with torch.no_grad():
        run(text, call)
        gc.disable()
        try:
            found, _, story = run(text, call)  # the frame for "b" is tried first
        finally:
            gc.enable()
    assert story.loaded and found[1] and found[3]
