"""Calls as torch's compilers had them get errors that name what to write."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import jitney
from jitney._util.old_spellings import named_in_errors

compile_any: Any = jitney.compile
explain_any: Any = jitney.explain


def fn(x: int, y: int = 0) -> int:
    return x + y


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: compile_any(fn, nopython=True),
            "jitney.compile: got an unexpected keyword argument 'nopython'; .*full",
        ),
        (lambda: compile_any(nopython=True), "fullgraph=True"),
        (lambda: compile_any("inductor"), "takes a function or a module, and backend= by keyword; this is a str"),
        (lambda: explain_any(fn, 1), r"jitney.explain: too many .*; .*explain\(fn\)\(\*args, \*\*kwargs\)"),
        (lambda: explain_any(fn, x=1), "unexpected keyword argument 'x'; .*come after"),
        (lambda: compile_any(fn, nonsense=True), "unexpected keyword argument 'nonsense'$"),
    ],
)
def test_the_error_names_the_new_spelling(call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call()


def test_the_signature_stays() -> None:
    checked = named_in_errors()(fn)
    assert inspect.signature(checked) == inspect.signature(fn) and checked(1, y=2) == 3
    with pytest.raises(TypeError, match=re.escape("jitney.fn: missing a required argument: 'x'")):
        checked()  # type: ignore[call-arg]
