"""Code objects: equal ones of two files stay apart."""

from __future__ import annotations

import traceback
from typing import Any

import torch
from helpers import compile_fn, t

from jitney import events

SOURCE = """
def fn(x, fail):
    y = x + 1
    print("woo")
    if fail:
        raise ValueError("mine")
    return helper(y) * 2

def helper(y):
    print("again")
    return y.sin()
"""


def made(filename: str) -> dict[str, Any]:
    """The same text, as two files hold it: Python calls the code objects equal."""
    space: dict[str, Any] = {}
    exec(compile(SOURCE, filename, "exec"), space)
    return space


def test_equal_functions_of_two_files_are_told_apart_in_messages() -> None:
    for name in ("one.py", "two.py"):
        called = compile_fn(made(name)["fn"])
        stops: list[Any] = []
        with events.listen(lambda event: stops.append(event) if isinstance(event, events.GraphBreak) else None):
            assert torch.equal(called(t(), False), (t() + 1).sin() * 2)
        assert [stop.user_stack[-1].filename for stop in stops] == [name, name]
        try:
            called(t(), True)
        except ValueError as error:
            assert [f.name for f in traceback.extract_tb(error.__traceback__) if f.filename == name] == ["fn"]
        else:
            raise AssertionError("it does not raise")
