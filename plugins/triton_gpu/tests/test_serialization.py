"""Compiled graphs that a later process loads from disk: without Triton, where machine code was kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cache.again import begin, run

import jitney
from jitney.cache import frames
from jitney.cache.recipes import Stale
from jitney.config import config
from jitney.runtime import frame_cache
from jitney_triton_gpu import serialization

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache that is used, whoever edits files of ours meanwhile."""
    monkeypatch.setattr(frame_cache, "edited", lambda package: False)
    frames._cache.cache_clear()
    with config.patch(cache=True, cache_dir=str(tmp_path)):
        yield
    jitney.reset()


PROGRAMS = {
    "softmax": """
        def fn(x): return torch.softmax(x * 2, -1)
        def arguments(): return [torch.arange(60.).view(6, 10).to(DEVICE)]
    """,
    "a column sum": """
        def fn(x): return (x * x).sum(0) + 1
        def arguments(): return [torch.arange(600.).view(60, 10).to(DEVICE)]
    """,
    "a kernel beside operators": """
        def fn(x): return (x @ x.t()).relu().cumsum(0), x.sin()
        def arguments(): return [torch.arange(60.).view(6, 10).to(DEVICE)]
    """,
    "a number of the program's": """
        def fn(x, n): return x * n
        def arguments(): return [torch.arange(6.).to(DEVICE), 3]
    """,
    "an argument that is written": """
        def fn(x):
            x.mul_(2)
            return x + 1
        def arguments(): return [torch.arange(6.).to(DEVICE)]
    """,
}


def program(name: str) -> str:
    return PROGRAMS[name].replace("DEVICE", repr(DEVICE))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_begins_again_loads_its_kernels(name: str) -> None:
    for wanted in ("stored", "loaded", "loaded"):
        found, expected, story = run(program(name), backend="triton_gpu")
        torch.testing.assert_close(found, expected)
        assert story.steps[-1] == wanted, story.steps


def test_training_loads_both_halves() -> None:
    text = """
        torch.manual_seed(0)
        fn = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()).to(DEVICE)
        def arguments(): return [torch.arange(32.).view(4, 8).to(DEVICE).requires_grad_()]
    """.replace("DEVICE", repr(DEVICE))
    gradients = []
    loaded: list[object] = []
    for _ in range(2):
        module = begin(text)
        compiled = jitney.compile(module.fn, backend="triton_gpu")
        with jitney.events.listen(lambda e: loaded.append(e) if isinstance(e, jitney.events.FrameLoaded) else None):
            (x,) = module.arguments()
            compiled(x).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in module.fn.parameters())])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert len(loaded) == 1


def test_code_for_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run(program("softmax"), backend="triton_gpu")
    monkeypatch.setattr(serialization, "machine", lambda device: "another")
    found, expected, story = run(program("softmax"), backend="triton_gpu")
    torch.testing.assert_close(found, expected)
    assert any("the GPU, or CUDA, is another one" in step for step in story.steps)
    assert not story.loaded


@pytest.mark.skipif(not torch.cuda.is_available(), reason="loads machine code")
def test_loading_needs_no_triton(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import sys, torch, jitney\n"
        "def fn(x): return torch.softmax(x * 2, -1)\n"
        "x = torch.randn(64, 100, device='cuda')\n"
        "for options in ({}, {'cudagraphs': True}):\n"
        "    compiled = jitney.compile(fn, backend='triton_gpu', options=options)\n"
        "    for _ in range(6): torch.testing.assert_close(compiled(x), fn(x))\n"
        "print('jitney_triton_gpu.launch' in sys.modules)\n"
        "y = torch.randn(6401, device='cuda')[1:].view(64, 100)\n"
        "torch.testing.assert_close(jitney.compile(fn, backend='triton_gpu')(y), fn(y))\n"
    )
    environment = {"JITNEY_CACHE": "1", "JITNEY_CACHE_DIR": str(tmp_path / "kept")}
    answers = []
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, str(file)], env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
        answers.append(ran.stdout.split()[-1])
    assert answers == ["True", "False"]


def test_a_device_that_is_not_there_is_refused() -> None:
    data = {"device": "cuda:63", "machine": "any"}
    with pytest.raises(Stale, match="there is no cuda:63"):
        serialization.load(jitney.backends.SerializedGraph(data), None)  # type: ignore[arg-type]
