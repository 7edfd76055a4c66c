"""Deliberately faulty backends: the ladder names each, and its fault becomes a program of at most three operations.

The programs run alone, all of them in one fresh process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faulty_backends
import pytest
import torch
from fork_server import run_python

from jitney.backends import registry
from jitney.config import config
from jitney_tools.bisect import Bisection, bisect
from jitney_tools.minifier import minify, write_case


class Net(torch.nn.Module):
    """Something of everything that some backend is wrong about."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 10, dtype=dtype)
        self.second = torch.nn.Linear(10, 6, dtype=dtype)

    def forward(self, x: torch.Tensor) -> Any:
        y = torch.relu(self.first(x * 2 + 1))
        z = torch.tanh(self.second(y)) + x
        return (torch.exp(z) / 2).sum(-1), z.t().sin().clone()


# name: (kind of the fault, its place, the dtype, how the error ends)
FAULTS: dict[str, tuple[str, str, torch.dtype, str]] = {
    "crashes_on_relu": ("raises", "results", torch.float32, "NotImplementedError: there is no kernel for relu"),
    "crashes_when_it_runs": ("raises", "results", torch.float32, "ArithmeticError: a kernel for"),
    "off_by_a_percent": ("numbers", "results", torch.float32, "wrong numbers (results): result 0"),
    "wrong_backward": ("numbers", "gradients", torch.float32, "wrong numbers (gradients): gradient 0"),
    "crashes_in_backward": ("raises", "gradients", torch.float32, "KeyError: 'tanh_backward'"),
    "wrong_for_bfloat16": ("numbers", "results", torch.bfloat16, "wrong numbers (results): result 0"),
    "wrong_for_strides": ("numbers", "results", torch.float32, "wrong numbers (results): result 0"),
    "hangs": ("hangs", "results", torch.float32, "TimeLimit: it took longer than 3 s"),
    "leaks": ("leaks", "results", torch.float32, "memory leaks (results): each call leaves"),
    "returns_its_input": ("shares", "results", torch.float32, "result 0 shares the memory of input 0"),
    "writes_to_its_input": ("writes", "inputs", torch.float32, "an input is written to (inputs): input 0"),
    "aten_crashes_on_relu": ("raises", "results", torch.float32, "NotImplementedError: there is no kernel for relu"),
    "aten_leaks": ("leaks", "results", torch.float32, "memory leaks (results): each call leaves"),
    "aten_returns_its_input": ("shares", "results", torch.float32, "result 0 shares the memory of input 0"),
    "aten_writes_to_its_input": ("writes", "inputs", torch.float32, "an input is written to (inputs): input 0"),
    "aten_wrong_for_strides": ("numbers", "results", torch.float32, "wrong numbers (results): result 0"),
    "returns_doubles": ("facts", "results", torch.float32, "another kind of result (results): result 0 is float64"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the programs go, while the named backends are there."""
    found = tmp_path_factory.mktemp("minified")
    names = importlib.import_module("faulty_aten_backends").NAMES
    with config.patch(base_dir=str(found)):
        yield found
    for name in names:
        registry.unregister_backend(name)
    del sys.modules["faulty_aten_backends"]


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a time limit within a callback
def test_the_ladder_names_the_backend_and_the_fault_becomes_small(name: str, folder: Path) -> None:
    find_and_minify(name, folder)


def find_and_minify(name: str, folder: Path) -> None:
    """Bisect a program with one of the backends, and write the minified graph into the folder."""
    kind, _, dtype, _ = FAULTS[name]
    faulty_backends.kept.clear()
    x = torch.linspace(-1, 1, 18).reshape(3, 6).to(dtype)
    net = Net(dtype)
    # Of a graph's own values only the graph knows: these two are seen where inputs are.
    direct = {
        "writes_to_its_input": lambda x: torch.relu(x).exp() + 1,
        "returns_its_input": lambda x: (x.clone(), net(x)[0]),
    }
    program = direct.get(name.removeprefix("aten_"), net)
    # The default is long enough for compilation on a busy machine, and would be waited for by a graph that hangs.
    with config.patch(minifier_try_seconds=1.5 if kind == "hangs" else config.minifier_try_seconds):
        found = bisect(program, (x,), backend=getattr(faulty_backends, name, name))
        minify_into(folder / f"{name}.py", found, name)


def minify_into(path: Path, found: Bisection, name: str) -> None:
    """Minify what the ladder has found, and write it."""
    kind, place, _, _ = FAULTS[name]
    guilty = found.guilty
    assert guilty is not None and guilty.case is not None and guilty.fault is not None, str(found)
    assert found.phase == f"backend {name}"
    assert (guilty.fault.kind, guilty.fault.place) == (kind, place), str(found)
    small = minify(guilty.case, guilty.fault)
    assert small.case.op_count <= 3, small.case.graph
    assert guilty.fault.like(small.fault) and not small.stopped
    assert sum(t.numel() for t in small.case.values if isinstance(t, torch.Tensor)) <= 40
    write_case(small.case, small.fault, path, before=small.before)


RUN = """
import json, runpy, sys, warnings
from pathlib import Path
from jitney_tools.compare.verdict import cause_of
ended = {}
for path in sorted(Path(sys.argv[1]).glob("*.py")):
    try:
        runpy.run_path(str(path), run_name="__main__")
        ended[path.stem] = "nothing"
    except Exception as error:
        cause = cause_of(error)
        ended[path.stem] = f"{type(cause).__name__}: {cause}"
    except BaseException as error:
        ended[path.stem] = f"{type(error).__name__}: {error}"
print(json.dumps(ended))
"""


def test_each_program_ends_in_the_same_error_in_a_fresh_process(folder: Path) -> None:
    for name in FAULTS:
        if not (folder / f"{name}.py").exists():  # its test has run in another process
            find_and_minify(name, folder)
    for path in folder.glob("minifier_launcher.*"):
        path.unlink()
    environment = os.environ | {"JITNEY_MINIFIER_TRY_SECONDS": "3"}
    done = run_python("-c", RUN, folder, env=environment, check=True)
    ended = json.loads(done.stdout.splitlines()[-1])
    assert ended.keys() == FAULTS.keys()
    for name, said in ended.items():
        assert FAULTS[name][3] in said, (name, said)


def test_a_backend_without_fault_is_not_blamed(folder: Path) -> None:
    found = bisect(Net(), (torch.linspace(-1, 1, 18).reshape(3, 6),), backend="aot_eager")
    assert found.guilty is None and found.phase == ""
    assert [rung.phase for rung in found.rungs] == ["program", "capture", "aot", "decompositions"]
    assert str(found).endswith("nothing is wrong: results, gradients and writes are eager's on every rung")
