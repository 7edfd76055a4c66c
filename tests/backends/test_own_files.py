"""Processes that run at once do not write over each other's programs for the minifier."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork_server import run_python

from jitney.backends.failure_files import LAUNCHER, have_written, own_file
from jitney.config import config


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with config.patch(base_dir=str(tmp_path)):
        yield tmp_path


def test_one_process_has_the_plain_name(folder: Path) -> None:
    assert own_file(LAUNCHER) == folder / "minifier_launcher.py"


def test_ranks_have_their_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert own_file(LAUNCHER) == folder / "minifier_launcher_rank3.py"
    assert own_file(LAUNCHER) == folder / "minifier_launcher_rank3.py"


def test_a_single_rank_is_one_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert own_file(LAUNCHER) == folder / "minifier_launcher.py"


def test_a_file_that_another_process_has_just_written_is_left_alone(folder: Path) -> None:
    (folder / LAUNCHER).write_text("")
    os.utime(folder / LAUNCHER, (time.time() + 10,) * 2)
    assert own_file(LAUNCHER) == folder / f"minifier_launcher_{os.getpid()}.py"


def test_a_file_of_an_earlier_program_is_written_over(folder: Path) -> None:
    (folder / LAUNCHER).write_text("")
    os.utime(folder / LAUNCHER, (1, 1))
    assert own_file(LAUNCHER) == folder / LAUNCHER
    (folder / LAUNCHER).write_text("ours")  # what was said stays true
    assert own_file(LAUNCHER) == folder / LAUNCHER


def test_a_file_that_this_process_has_written_is_its_own(folder: Path) -> None:
    (folder / LAUNCHER).write_text("")
    os.utime(folder / LAUNCHER, (time.time() + 10,) * 2)
    have_written(folder / LAUNCHER)
    assert own_file(LAUNCHER) == folder / LAUNCHER


def test_a_worker_of_multiprocessing_has_its_number(folder: Path) -> None:
    program = folder / "workers.py"
    program.write_text(
        "import multiprocessing, os\n"
        "def say():\n"
        "    from jitney.backends.failure_files import own_file\n"
        "    print(own_file('repro.py').name == f'repro_{os.getpid()}.py')\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('fork').Process(target=say)\n"
        "    worker.start(); worker.join()\n"
    )
    done = run_python(program, check=True)
    assert done.stdout == "True\n"
