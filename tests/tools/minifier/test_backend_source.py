"""Backends of the running script go into the minifier's programs as text; where they cannot, no file is named."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from fork_server import run_python

from jitney.backends.failure_files import have_not_written, have_written, is_missing
from jitney.errors import BackendFailed
from jitney_tools.minifier.backend_source import written_out
from jitney_tools.minifier.case import NotMinified

MODULE = """
from collections.abc import Callable
import operator as op
import torch

LIMIT = {"sin": 1}
STATE = [object()]
inputs = 3


class Rule:
    def holds(self, node: "Callable") -> bool:
        return kind(node) in LIMIT


def kind(node: Callable): return "sin" if "sin" in str(node.target) else str(op.add(1, 1))


def refuses(graph: torch.fx.GraphModule, inputs: Callable) -> Callable:
    rule = Rule()
    if any(rule.holds(node) for node in graph.graph.nodes):
        raise RuntimeError("no sin")
    return graph.forward


def clashes(graph, given):
    return inputs


def holds_state(graph, given):
    return STATE


def made(held):
    def inner(graph, given):
        return held
    return inner


closure = made(3)
unnamed = lambda graph, given: graph.forward
"""
RUN = """
if __name__ == "__main__":
    import jitney
    jitney.compile(lambda x: (x + 1).sin() * 2, backend={backend})(torch.randn(3))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "own_backends.py"
    path.write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    yield importlib.import_module("own_backends")
    sys.modules.pop("own_backends")


def test_the_source_has_what_the_backend_uses(module: Any) -> None:
    lines = written_out(module.refuses)
    space: dict[str, Any] = {}
    exec("from __future__ import annotations\nimport torch\n" + "\n".join(lines), space)
    assert space["LIMIT"] == {"sin": 1} and "Callable" not in space and "STATE" not in space
    node = types.SimpleNamespace(target="sin")
    graph = types.SimpleNamespace(graph=types.SimpleNamespace(nodes=[node]))
    with pytest.raises(RuntimeError, match="no sin"):
        space["backend"](graph, [])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("clashes", "uses inputs, a name that the program for the minifier has"),
        ("holds_state", "STATE, which another process cannot import"),
        ("closure", "no plain function"),
        ("unnamed", "no plain function"),
    ],
)
def test_what_no_text_says_is_refused(module: Any, name: str, reason: str) -> None:
    with pytest.raises(NotMinified, match=reason):
        written_out(getattr(module, name))


def run(path: Path, *command: str) -> str:
    settings = {"JITNEY_REPRO_AFTER": "capture", "JITNEY_CACHE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = run_python(*command, cwd=path, env={**os.environ, **settings}, timeout=120)
    return done.stdout + done.stderr


def test_a_script_with_its_backend_is_minified(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(MODULE + RUN.format(backend="refuses"))
    assert "minify: jitney minify jitney_compile_debug" in run(tmp_path, "script.py")
    launcher = tmp_path / "jitney_compile_debug" / "minifier_launcher.py"
    assert "no sin" in run(tmp_path, str(launcher))
    smaller = (launcher.parent / "repro.py").read_text()
    assert "def refuses(" in smaller and "mul" not in smaller
    assert "no sin" in run(tmp_path, str(launcher.parent / "repro.py"))


@pytest.mark.parametrize("backend", ["made(3)", "lambda graph, given: 1 / 0"])
def test_a_file_that_is_not_written_is_not_named(tmp_path: Path, backend: str) -> None:
    (tmp_path / "script.py").write_text(MODULE + RUN.format(backend=backend))
    said = run(tmp_path, "script.py")
    assert "BackendFailed" in said and "is defined in the program that runs" in said
    assert "minify:" not in said and not (tmp_path / "jitney_compile_debug").exists()


def test_files_are_missing_until_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    have_not_written(path)
    assert is_missing(path)
    have_written(path)
    assert not is_missing(path)
    error = BackendFailed("it fails", command="jitney minify x.py")
    error.drop_command()
    assert str(error) == "backend: it fails"
