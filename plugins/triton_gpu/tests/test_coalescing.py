"""Triton's coalescing pass is left out of functions that it would take too long for."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import torch
from fork_server import run_python
from machine_code import described
from triton._C.libtriton import passes

from jitney_lowering.index import index
from jitney_triton_gpu import coalescing
from jitney_triton_gpu.code import Function, Parameter


def function(name: str, lines: int) -> Function:
    """A chain of so many operations on each element."""
    body = ["x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)", "v0 = tl.load(a + x)"]
    body += [f"v{n + 1} = v{n} * 1.5 + {n}.0" for n in range(lines)]
    body.append(f"tl.store(b + x, v{lines})")
    parameters = tuple(Parameter(name, "buffer", name, torch.float32) for name in "ab")
    return Function(name, parameters, "".join(f"    {line}\n" for line in body), {"XBLOCK": 512}, index(100), 4)


def test_long_functions_load_one_element_at_a_time(tmp_path: Path) -> None:
    asked = tmp_path / "functions.json"
    asked.write_text(described([function("short", 5), function("long", 2300)]))
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    ran = run_python(Path(__file__).parent / "machine_code.py", asked, env=environment, check=True)
    short, long = json.loads(ran.stdout)
    assert "ld.global.v4" in short["ptx"]
    assert "ld.global.v4" not in long["ptx"] and long["ptx"].count("ld.global") == 4


def test_accesses_and_lines_count() -> None:
    assert not coalescing.takes_too_long(function("f", 2200).body)
    assert coalescing.takes_too_long(function("f", 2300).body)
    assert coalescing.takes_too_long("    v = tl.load(a + x)\n" * 300)


def test_only_one_thread_goes_without_the_pass() -> None:
    class Manager:
        """What the pass would be added to."""

    seen: list[str] = []

    def add() -> None:
        try:
            passes.ttgpuir.add_coalesce(Manager())
            seen.append("left out")
        except TypeError:  # Triton's own wants a manager of passes
            seen.append("added")

    add()
    with coalescing.left_out(True):
        add()
        other = threading.Thread(target=add)
        other.start()
        other.join()
        with coalescing.left_out(False):
            add()
    add()
    assert seen == ["added", "left out", "added", "added", "added"]
