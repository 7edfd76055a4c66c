"""Files named on a command line: what they import, when they are imported and later."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from jitney.cli import main

LAZY = """
import torch

def example_inputs():
    return torch.ones(3)

def step(x):
    import {name}
    return {name}.scaled(x)
"""


def test_a_function_may_import_its_neighbours_when_it_is_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lazy_target.py").write_text(LAZY.format(name="lazy_neighbour"))
    (tmp_path / "lazy_neighbour.py").write_text("def scaled(x):\n    return x.sin() * 2\n")
    assert main(["bisect", f"{tmp_path}/lazy_target.py:step", "--backend", "eager"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_a_backend_may_import_its_neighbours_when_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lazy_program.py").write_text("import torch\ndef step():\n    return torch.ones(2).sin()\n")
    (tmp_path / "lazy_backend.py").write_text(
        "def make(graph, inputs):\n    import lazy_part\n    return graph.forward\n"
    )
    (tmp_path / "lazy_part.py").write_text("")
    assert main(["bisect", "lazy_program.py:step", "--backend", "lazy_backend:make"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_a_file_with_the_name_of_a_module_does_not_replace_it(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("import torch\ndef step():\n    return torch.ones(2).sin()\n")
    assert main(["explain", f"{tmp_path}/random.py:step"]) == 0
    assert sys.modules["random"] is random
