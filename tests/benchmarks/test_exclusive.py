"""Who measures has cores of its own, and the machine; no figure of time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cores
import pytest
from breadth import exclusive
from breadth.exclusive import Exclusive

BENCHMARKS = str(Path(exclusive.__file__).parents[1])
WORK = """
import sys, time
sys.path.insert(0, sys.argv[2])
from breadth.exclusive import Exclusive
alone = Exclusive(sys.argv[1])
begin = time.monotonic()
while True:
    now = time.monotonic()
    print(now, alone.stopped(begin, now), flush=True)
    time.sleep(0.01)
"""
MEASURE = """
import sys, time
sys.path.insert(0, sys.argv[2])
from breadth.exclusive import Exclusive
alone = Exclusive(sys.argv[1])
with alone.held():
    print(time.monotonic(), flush=True)
    sys.stdin.readline()
    print(time.monotonic(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be bound to cores")
@pytest.mark.parametrize(
    ("threads", "found"),
    [(1, ([0], [2, 3, 4, 5])), (2, ([0, 2], [4, 5])), (3, ([], [])), (8, ([], [])), (0, ([], []))],
)
def test_who_measures_has_physical_cores_alone(
    threads: int, found: tuple[list[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)))
    monkeypatch.setattr(cores, "siblings", lambda at: frozenset({at - at % 2, at - at % 2 + 1}))
    assert cores.division(threads) == found


def test_one_holds_the_processors_of_those_who_measure(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[object] = []
    monkeypatch.setattr("breadth.exclusive.bind", bound.append)
    monkeypatch.setattr("breadth.exclusive.renice", bound.append)
    alone = Exclusive(f"{tmp_path}/lock", [0], [1])
    alone.give_way()
    with alone.held():
        assert bound == [10, [1], 0, [0]]
    assert bound[4:] == [10, [1]]
    with Exclusive("").held():
        assert len(bound) == 6


def process(script: str, lock: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, lock, BENCHMARKS]
    return subprocess.Popen(command, stdin=-1, stdout=-1, text=True, start_new_session=True)


def test_others_stand_still_while_one_measures_and_their_clocks_leave_it_out(tmp_path: Path) -> None:
    working = process(WORK, str(tmp_path / "lock"))
    assert working.stdout is not None
    working.stdout.readline()
    measuring = process(MEASURE, str(tmp_path / "lock"))
    assert measuring.stdin is not None and measuring.stdout is not None
    try:
        begin = float(measuring.stdout.readline())
        time.sleep(0.3)
        measuring.stdin.write("\n")
        measuring.stdin.flush()
        end = float(measuring.stdout.readline())
        last = [0.0, 0.0]
        while last[0] < end + 0.05:
            last = [float(number) for number in working.stdout.readline().split()]
            assert not begin + 0.05 < last[0] < end, "the other worked while one measured"
        assert end - begin <= last[1] < end - begin + 1
    finally:
        for each in (working, measuring):
            each.kill()
            each.communicate()


def test_others_go_on_when_the_one_that_measured_was_killed(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    working = process(WORK, lock)
    assert working.stdout is not None
    working.stdout.readline()
    measuring = process(MEASURE, lock)
    assert measuring.stdout is not None
    try:
        measuring.stdout.readline()
        exclusive.release(lock)  # it measures still: nothing happens
        measuring.send_signal(signal.SIGKILL)
        measuring.wait()
        exclusive.release(lock)
        now = time.monotonic()
        while float(working.stdout.readline().split()[0]) < now + 0.1:
            pass
    finally:
        for each in (working, measuring):
            each.kill()
            each.communicate()
