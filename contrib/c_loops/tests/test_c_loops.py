from __future__ import annotations

import pytest
import torch

import jitney
import jitney_c_loops
from jitney import events
from jitney.backends import HOOK_API_VERSION, registry
from jitney.errors import InvalidOption
from jitney_c_loops import library


def test_pip_made_it_known_by_name():
    assert registry.get("c_loops") is jitney_c_loops.backend
    assert jitney_c_loops.jitney_hook_api == HOOK_API_VERSION


def test_without_a_compiler_it_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert library.lacks() == ("there is no C compiler: none of cc, gcc, clang is on the PATH",)
    with pytest.raises(RuntimeError, match="there is no C compiler"):
        library.load("int nothing;", 0)


def test_what_the_compiler_says_is_told():
    with pytest.raises(RuntimeError, match="does not compile a kernel.*no_such_type"):
        library.load("no_such_type x;", 0)


def test_equal_kernels_are_one_function():
    texts = []
    compiled = jitney.compile(lambda x, y: torch.softmax(torch.softmax(x, 1) @ y, 1), backend="c_loops")
    listening = events.listen(lambda e: texts.append(e.text) if isinstance(e, events.Artefact) else None)
    with events.details(), listening:
        torch.testing.assert_close(compiled(torch.ones(3, 3), torch.ones(3, 3)), torch.full((3, 3), 1 / 3))
    (text,) = [text for text in texts if "void kernel0" in text]
    assert text.count("kernel0(") == 3 and "kernel1(" not in text  # two calls, one definition


def test_other_options_are_refused():
    with pytest.raises(InvalidOption, match="optimize is a level from 0 to 3"):
        jitney.compile(torch.sin, backend="c_loops", options={"optimize": 4})
