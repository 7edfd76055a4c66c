"""Every Python block of the README and of docs/ runs: those of some pages as programs that print what is shown
(test_pages.py), the rest here, each after a few lines that define what it takes for granted."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from console import BLOCK, BY_QUESTION, WHOLE

import jitney
from jitney.backends import Backend, register_backend, registry

ROOT = Path(__file__).parents[2]
MODEL = "import jitney, torch\nmodel = torch.nn.Linear(3, 2)\ninputs = torch.randn(4, 3)\n"

NUMPY = "import jitney, numpy as np\na = b = np.ones((2, 3))\n"

# By page and first line of the block: what comes before it.
BEFORE = {
    ("README.md", "import torch"): "",
    ("README.md", "print(jitney.explain(fn)(*args))"): MODEL + "fn, args = model, (inputs,)\n",
    ("ddp.md", "ddp = jitney.compile("): MODEL
    + "from torch.nn.parallel import DistributedDataParallel\nimport torch.distributed as dist\n"
    + "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n",
    ("numpy.md", "pairs = jitney.compile("): NUMPY,
    ("conformance.md", "from jitney_testing import conformance_tests"): "",
    ("conformance.md", "from jitney_testing import Program, assert_same"): "",
    ("hooks.md", "from jitney.backends import hookimpl"): "",
}
# What comes after a block, to use what it has made.
AFTER = {
    "import torch": "assert model[0].weight.grad is not None\n",
    "ddp = jitney.compile(": "ddp(inputs).sum().backward()\nassert model.weight.grad is not None\n",
    "pairs = jitney.compile(": "assert pairs(a, b).shape == (2,)\n",
    "from jitney_testing import conformance_tests": "assert callable(test_conformance)\n",
}
# The README's backend, which tests/test_packaging.py installs and runs; signatures of hooks, which
# tests/backends/test_reference.py compares with the source.
ELSEWHERE = ("# jitney_mine/__init__.py", "def jitney_")


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """First line and text of each Python block."""
    for _, language, body in BLOCK.findall(page):
        if language == "python":
            yield body.splitlines()[0], body


def pages() -> dict[str, str]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {path.name: path.read_text(encoding="utf-8") for path in found if path.name not in (*WHOLE, *BY_QUESTION)}


def first_line(name: str, line: str) -> str:
    """The key of a block: where its first line is long, the beginning of it."""
    return next((key for page, key in BEFORE if page == name and line.startswith(key)), line)


FOUND = {(name, first_line(name, line)): text for name, page in pages().items() for line, text in blocks(page)}


def test_no_block_is_forgotten():
    assert {key for key in FOUND if not key[1].startswith(ELSEWHERE)} == set(BEFORE)


@pytest.fixture
def backend() -> Iterator[None]:
    """The backend that the pages call ``mybackend``."""
    register_backend(Backend("mybackend", lambda graph, inputs, request: graph.forward))
    yield
    registry.unregister_backend("mybackend")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("page", "line"), BEFORE, ids=lambda text: re.sub(r"\W+", "-", text)[:30])
def test_a_block_runs(page, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "block.py"
    path.write_text(BEFORE[page, line] + FOUND[page, line] + AFTER.get(line, ""))
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "block"})


def test_the_extension_of_the_hooks_page_is_told_of_events(capsys):
    space: dict[str, object] = {}
    exec(FOUND["hooks.md", "from jitney.backends import hookimpl"], space)
    extension = type("extension", (), {"jitney_observe": staticmethod(space["jitney_observe"])})
    registry.register_extension(extension, "example")
    try:
        jitney.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    finally:
        registry.unregister_extension(extension)
    assert "FrameCaptured(" in capsys.readouterr().out
