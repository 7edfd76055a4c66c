"""Real second processes: what they skip, and folders that are damaged, read-only, full, or written by several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from fork_server import Program, run_python

from jitney.cache import frames
from jitney.cache.store import DiskCache

PROGRAM = """
    import json, os, sys, warnings
    import torch
    import jitney
    from jitney import events

    BACKEND = os.environ.get("PROGRAM_BACKEND", "auto")
    torch.manual_seed(0)
    steps = []
    events.subscribe(lambda event: steps.append(type(event).__name__))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
            self.norm = torch.nn.LayerNorm(8)

        def forward(self, x, scale=2.0):
            for layer in self.layers:
                x = torch.nn.functional.gelu(layer(x))
            return self.norm(x) * scale

    def broken(x):
        y = torch.sin(x)
        print("a graph break")
        return torch.cos(y) if y.sum() > 0 else y

    net, x = Net().eval(), torch.randn(9, 8)  # more numbers than those of which branches are computed ahead
    compiled = jitney.compile(net, backend=BACKEND)
    compiled_broken = jitney.compile(broken, backend=BACKEND)
    with torch.no_grad():
        difference = (compiled(x) - net(x)).abs().max().item()
        difference = max(difference, (compiled(x, scale=3.0) - net(x, scale=3.0)).abs().max().item())
        difference = max(difference, (compiled_broken(x) - broken(x)).abs().max().item())
    heavy = [name for name in ("sympy", "networkx", "torch._dynamo", "jitney.runtime.compile_frame",
                               "jitney.capture.interpreter.loop",
                               "jitney_lowering", "jitney.aot.compiler") if name in sys.modules]
    print(json.dumps({"difference": difference, "steps": steps, "heavy": heavy}))
"""


def tell(folder: Path, script: Path, **environment: str) -> dict[str, Any]:
    """Run the program; what it printed."""
    settings = {"JITNEY_CACHE": "1", "JITNEY_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1", **environment}
    if "PYTHONHASHSEED" in environment:  # which an interpreter reads as it starts
        command = [sys.executable, "-W", "error", str(script)]
        done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=120)
    else:
        done = run_python("-W", "error", script, env={**os.environ, **settings}, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["difference"] < 1e-5
    return found


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


@pytest.mark.parametrize("backend", ["auto", "aot_eager"])
def test_a_second_process_imports_and_runs_nothing_that_captures_or_compiles(
    folder: Path, script: Path, backend: str
) -> None:
    first = tell(folder, script, PROGRAM_BACKEND=backend)
    assert first["steps"].count("FrameStored") == first["steps"].count("FrameCaptured") == 5
    second = tell(folder, script, PROGRAM_BACKEND=backend)
    assert second["heavy"] == []
    assert second["steps"].count("FrameLoaded") == 5
    assert not {"FrameCaptured", "FrameRefused", "FrameStored", "AtenGraph"} & set(second["steps"])
    script.write_text(script.read_text().replace("self.norm(x) * scale", "self.norm(x) / scale"))
    assert "FrameCaptured" in tell(folder, script, PROGRAM_BACKEND=backend)["steps"]


@pytest.mark.slow
def test_other_hashes_of_text_do_not_matter(folder: Path, script: Path) -> None:
    tell(folder, script, PYTHONHASHSEED="1")
    assert "FrameCaptured" not in tell(folder, script, PYTHONHASHSEED="2")["steps"]


@pytest.mark.slow
def test_the_switch_is_a_variable(folder: Path, script: Path) -> None:
    found = tell(folder, script, JITNEY_CACHE="0", PROGRAM_BACKEND="aot_eager")
    assert "FrameStored" not in found["steps"] and not (folder / frames.FOLDER).exists()


def test_damaged_files_are_made_again(folder: Path, script: Path) -> None:
    tell(folder, script, PROGRAM_BACKEND="aot_eager")
    files = sorted((folder / frames.FOLDER).iterdir())
    assert len(files) == 9  # five frames, and the lists of two functions and of two rests after graph breaks
    for path in files:
        path.write_bytes(path.read_bytes()[:-3])
    assert "FrameStored" in tell(folder, script, PROGRAM_BACKEND="aot_eager")["steps"]
    assert "FrameCaptured" not in tell(folder, script, PROGRAM_BACKEND="aot_eager")["steps"]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_no_more_than_an_event(folder: Path, script: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file in the place of the folder")
    settings = {"JITNEY_CACHE": "1", "JITNEY_CACHE_DIR": str(folder), "PROGRAM_BACKEND": "aot_eager"}
    settings["JITNEY_LOGS"] = "cache"
    done = run_python("-W", "error", script, env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    assert "is not kept: compiled code is not kept: " in done.stderr


@pytest.mark.slow
def test_processes_that_write_at_once_do_no_harm(folder: Path, script: Path) -> None:
    settings = {"JITNEY_CACHE": "1", "JITNEY_CACHE_DIR": str(folder), "PROGRAM_BACKEND": "aot_eager"}
    settings |= {"OMP_NUM_THREADS": "1"}  # as in ``tell``: another number of threads is another program
    running = [Program("-W", "error", script, env={**os.environ, **settings}) for _ in range(3)]
    assert [process.wait(180) for process in running] == [0, 0, 0]
    assert "FrameCaptured" not in tell(folder, script, PROGRAM_BACKEND="aot_eager")["steps"]


def test_no_byte_of_an_entry_can_be_another_one(folder: Path) -> None:
    kept = DiskCache(folder / "frames")
    frames.store(kept, "ab" * 20, b"a frame")
    for path in (folder / "frames").iterdir():
        whole = path.read_bytes()
        for at in range(len(whole)):
            for other in (whole[at] ^ 1, whole[at] ^ 255):
                path.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
                assert list(frames.stored(kept, "ab" * 20)) == []
        path.write_bytes(whole)
    assert [content for _, content in frames.stored(kept, "ab" * 20)] == [b"a frame"]
