from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch

from jitney_llvm_cpu import symbols
from jitney_llvm_cpu import threads as threads_module
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.threads import Threads, ir, threads, trial

# The rows that thread k writes: begin, end, visits.
RUN = threads_module._TRIAL
NESTED = """
define internal void @outer(ptr %seen, i64 %begin, i64 %stop, i64 %thread) {
  %offset = mul i64 %thread, 12
  %mine = getelementptr i64, ptr %seen, i64 %offset
  call void @jitney_parallel(ptr @trial_body, ptr %mine, i64 100, i64 1, i64 4)
  ret void
}
define void @nested(ptr %seen, i64 %threads) {
  call void @jitney_parallel(ptr @outer, ptr %seen, i64 %threads, i64 1, i64 %threads)
  ret void
}
"""


@pytest.fixture(scope="module")
def engine():
    return Engine(Target.host())


@pytest.fixture
def found(engine):
    found = threads(engine)
    if not found.parallel:
        pytest.skip(found.problem)
    return found


@pytest.fixture
def team():
    """Sets how many threads torch has, and puts it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def runner(engine, text):
    library = engine.compile(text + RUN)
    function = library.function("trial", ctypes.c_void_p, *[ctypes.c_int64] * 3)

    def run(items, grain, count):
        seen = (ctypes.c_int64 * (3 * max(count, 1)))()
        function(seen, items, grain, count)
        return [tuple(seen[3 * k : 3 * k + 3]) for k in range(max(count, 1))]

    return run


def test_torch_on_linux_is_parallel_here(engine):
    if sys.platform == "linux" and "OpenMP" in torch.__config__.parallel_info():
        found = threads(engine)
        assert found.interface == "gomp" and found.problem == "" and "omp" in found.library


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("items", [0, 1, 2, 7, 100, 2**40 + 1])
@pytest.mark.parametrize("grain", [-1, 0, 1, 3, 50, 2**39])
def test_shares_are_contiguous_balanced_and_at_least_a_grain(engine, found, items, grain, count):
    rows = runner(engine, found.ir)(items, grain, count)
    grain = max(grain, 1)
    workers = 0 if items == 0 else 1 if items <= grain else min(count, -(-items // grain))
    assert [visits for _, _, visits in rows] == [1] * workers + [0] * (max(count, 1) - workers)
    begins = [begin for begin, _, _ in rows[:workers]]
    ends = [end for _, end, _ in rows[:workers]]
    assert begins == [0, *ends[:-1]][:workers] and ends[-1:] == [items][:workers]
    lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
    assert not lengths or max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("items", [0, 1, 100])
def test_the_serial_form_runs_once(engine, items):
    rows = runner(engine, Threads("none").ir)(items, 1, 3)
    assert rows == [(0, items, int(items > 0)), (0, 0, 0), (0, 0, 0)]


def test_a_loop_within_a_parallel_loop_is_serial(engine, found):
    library = engine.compile(found.ir + RUN + NESTED)
    seen = (ctypes.c_int64 * 48)()
    library.function("nested", ctypes.c_void_p, ctypes.c_int64)(seen, 4)
    inner = [0, 100, 1] + [0] * 9
    assert list(seen) == inner * 4


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts the threads of the process")
def test_it_is_torchs_own_pool(engine, found, team):
    code = """
        import os, torch
        from jitney_llvm_cpu import threads as threads_module
        from jitney_llvm_cpu.engine import Engine
        from jitney_llvm_cpu.target import Target
        import ctypes
        torch.set_num_threads(4)
        before = len(os.listdir("/proc/self/task"))
        torch.ones(1 << 20).add(1)
        pool = len(os.listdir("/proc/self/task"))
        engine = Engine(Target.host())
        found = threads_module.threads(engine)
        run = engine.compile(found.ir + threads_module._TRIAL).function("trial", ctypes.c_void_p, *[ctypes.c_int64] * 3)
        seen = (ctypes.c_int64 * 12)()
        run(seen, 100, 1, 4)
        torch.ones(1 << 20).add(1)
        assert seen[11] == 1, list(seen)
        assert pool - before == 3, (before, pool)
        assert len(os.listdir("/proc/self/task")) == pool
    """
    python(code)


def test_the_number_of_threads_may_change_between_calls(engine, found, team):
    run = runner(engine, found.ir)
    for count in (4, 1, 2, 3):
        team(count)
        assert [visits for _, _, visits in run(100, 1, torch.get_num_threads())] == [1] * count
        assert torch.ones(1 << 17).add(1).sum() == 2 << 17


def test_python_threads_may_run_loops_at_once(engine, found):
    run = runner(engine, found.ir)
    wrong = []

    def work():
        for k in range(200):
            rows = run(100 + k, 1, 2)
            if rows != [(0, (101 + k) // 2, 1), ((101 + k) // 2, 100 + k, 1)]:
                wrong.append(rows)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


FORK = """
import ctypes, os, torch
from jitney_llvm_cpu import symbols
from jitney_llvm_cpu import threads as threads_module
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.target import Target
torch.set_num_threads(2)
engine = Engine(Target.host())
NO_PAUSE
found = threads_module.threads(engine)
assert found.parallel, found
run = engine.compile(found.ir + threads_module._TRIAL).function("trial", ctypes.c_void_p, *[ctypes.c_int64] * 3)

def visits():
    seen = (ctypes.c_int64 * 6)()
    run(seen, 10, 1, 2)
    return [seen[2], seen[5]]

torch.ones(1 << 20).add(1)
assert visits() == [1, 1]
child = os.fork()
if child == 0:
    os._exit(0 if visits() == IN_CHILD and TORCH_TOO and visits() == IN_CHILD else 1)
assert os.waitpid(child, 0)[1] == 0
assert visits() == [1, 1] and torch.ones(1 << 20).add(1).sum() == 2 << 20
"""


def python(code, timeout=120):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], timeout=timeout, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_after_a_fork_loops_run_in_parallel_on_both_sides(found):
    if symbols.find("omp_pause_resource_all") is None:
        pytest.skip("this OpenMP library cannot give its pool back")
    code = FORK.replace("NO_PAUSE", "").replace("IN_CHILD", "[1, 1]")
    python(code.replace("TORCH_TOO", "torch.ones(1 << 20).add(1).sum() == 2 << 20"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_after_a_fork_that_could_not_be_prepared_loops_run_serially_in_the_child(found):
    hide = "find = symbols.find\nsymbols.find = lambda name: None if 'pause' in name else find(name)"
    code = FORK.replace("NO_PAUSE", hide).replace("IN_CHILD", "[1, 0]")
    python(code.replace("TORCH_TOO", "True"))


@pytest.fixture
def pretend(monkeypatch):
    """Replaces functions of the OpenMP library."""
    kept = []

    def replace(**functions):
        for name, (prototype, function) in functions.items():
            kept.append(prototype(function))
            monkeypatch.setitem(symbols._registered, name, ctypes.cast(kept[-1], ctypes.c_void_p).value)

    yield replace
    monkeypatch.undo()
    threads.cache_clear()


INT = ctypes.CFUNCTYPE(ctypes.c_int)
GOMP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_pool_that_does_otherwise_is_caught_and_loops_run_serially(engine, found, pretend, calls):
    def fork(body, data, count, flags):
        for _ in range(calls):
            BODY(body)(data)

    pretend(GOMP_parallel=(GOMP, fork))
    threads.cache_clear()
    caught = threads(engine)
    assert not caught.parallel and "ran wrong" in caught.problem
    assert runner(engine, caught.ir)(10, 1, 2) == [(0, 10, 1), (0, 0, 0)]


def test_another_openmp_than_torchs_is_not_used(engine, found, pretend):
    pretend(omp_get_max_threads=(INT, lambda: torch.get_num_threads() + 1))
    threads.cache_clear()
    assert "not the one that torch uses" in threads(engine).problem


@pytest.mark.parametrize("missing", ["omp_in_parallel", "GOMP_parallel"])
def test_without_the_functions_loops_run_serially(engine, monkeypatch, missing):
    find = symbols.find
    monkeypatch.setattr(symbols, "find", lambda name: None if name.startswith((missing, "__kmpc")) else find(name))
    threads.cache_clear()
    problem = threads(engine).problem
    threads.cache_clear()
    assert ("no OpenMP library" if missing == "omp_in_parallel" else "neither GOMP_parallel nor") in problem


def test_a_torch_without_openmp_is_serial(engine, monkeypatch):
    monkeypatch.setattr(torch.__config__, "parallel_info", lambda: "ATen parallel backend: native thread pool")
    threads.cache_clear()
    assert "without OpenMP" in threads(engine).problem
    threads.cache_clear()


class Team:
    """An OpenMP library of LLVM's kind, in Python: its threads run one after another."""

    def __init__(self):
        self.wanted = self.number = 0
        self.inside = False

    def functions(self):
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        return {
            "omp_get_thread_num": (INT, lambda: self.number),
            "omp_get_num_threads": (INT, lambda: self.wanted if self.inside else 1),
            "omp_in_parallel": (INT, lambda: int(self.inside)),
            "__kmpc_global_thread_num": (ctypes.CFUNCTYPE(integer, pointer), lambda place: 7),
            "__kmpc_push_num_threads": (ctypes.CFUNCTYPE(None, pointer, integer, integer), self.push),
            "__kmpc_fork_call": (ctypes.CFUNCTYPE(None, pointer, integer, pointer, pointer), self.fork),
        }

    def push(self, place, number, count):
        assert number == 7
        self.wanted = count

    def fork(self, place, count, body, region):
        assert count == 1
        self.inside = True
        for self.number in range(self.wanted):
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(body)(None, None, region)
        self.inside = False


def test_the_entry_points_of_llvms_openmp(engine, found, pretend):
    pretend(**Team().functions())
    assert trial(engine, "kmp") == ""
    assert "__kmpc_fork_call" in ir("kmp") and "GOMP" not in ir("kmp")
