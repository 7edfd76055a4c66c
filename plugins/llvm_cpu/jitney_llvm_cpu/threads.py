"""Parallel loops on the OpenMP pool that torch itself uses: no pool of our own, no more threads than torch was given.

The functions are those of the library that torch's CPU library is linked to (libgomp, or LLVM's and Intel's libomp).
What is assumed of them is tried once in each process, by small parallel loops; if anything is unlike what it should be,
loops run serially and ``Threads.problem`` says why. A loop costs some 2 us more in two threads than in one.

A team has always all the threads, as in torch, even if a loop is too short for all of them: libgomp ends the threads
that a smaller team has no use for, and a larger one starts them again (600 us for going from two to three and back).

Forking. A child inherits OpenMP's record of a pool whose threads stayed with the parent, and waits for them forever:
torch's own operators hang there too. So the pool is given back before a fork (``omp_pause_resource_all``, 1 ms; the
next loop starts it again), after which loops, torch's included, run in parallel on both sides. Where that is not
possible, ours run serially in the child.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from typing import Literal

import torch

from jitney_llvm_cpu import symbols
from jitney_llvm_cpu.engine import Engine

Interface = Literal["gomp", "kmp", "none"]

_FORKED = "jitney_forked"
_PAUSE_SOFT = 1
# Read by compiled code: not 0 in a child whose OpenMP library still counts on the parent's threads.
_forked = ctypes.c_int64(0)

_QUERIES = ("omp_get_thread_num", "omp_get_num_threads", "omp_in_parallel", "omp_get_max_threads")
_FORKS = {
    "gomp": ("GOMP_parallel",),
    "kmp": ("__kmpc_fork_call", "__kmpc_global_thread_num", "__kmpc_push_num_threads"),
}

_SERIAL = """
define internal void @jitney_parallel(ptr %body, ptr %context, i64 %items, i64 %grain, i64 %threads) {
  %some = icmp sgt i64 %items, 0
  br i1 %some, label %run, label %end
run:
  call void %body(ptr %context, i64 0, i64 %items, i64 0)
  br label %end
end:
  ret void
}
"""

_PARALLEL = """
%jitney.region = type { ptr, ptr, i64, i64 }

@jitney_forked = external global i64
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_in_parallel()

define internal void @jitney_share(ptr %region) {
  %body.p = getelementptr %jitney.region, ptr %region, i32 0, i32 0
  %context.p = getelementptr %jitney.region, ptr %region, i32 0, i32 1
  %items.p = getelementptr %jitney.region, ptr %region, i32 0, i32 2
  %workers.p = getelementptr %jitney.region, ptr %region, i32 0, i32 3
  %body = load ptr, ptr %body.p
  %context = load ptr, ptr %context.p
  %items = load i64, ptr %items.p
  %wanted = load i64, ptr %workers.p
  %thread.32 = call i32 @omp_get_thread_num()
  %team.32 = call i32 @omp_get_num_threads()
  %thread = zext i32 %thread.32 to i64
  %team = zext i32 %team.32 to i64
  %workers = call i64 @llvm.umin.i64(i64 %wanted, i64 %team)
  %works = icmp ult i64 %thread, %workers
  br i1 %works, label %run, label %end
run:
  %each = udiv i64 %items, %workers
  %rest = urem i64 %items, %workers
  %before = mul i64 %thread, %each
  %extra = call i64 @llvm.umin.i64(i64 %thread, i64 %rest)
  %begin = add i64 %before, %extra
  %one.more = icmp ult i64 %thread, %rest
  %one = zext i1 %one.more to i64
  %length = add i64 %each, %one
  %stop = add i64 %begin, %length
  call void %body(ptr %context, i64 %begin, i64 %stop, i64 %thread)
  br label %end
end:
  ret void
}

define internal void @jitney_parallel(ptr %body, ptr %context, i64 %items, i64 %grain.given, i64 %threads) {
entry:
  %some = icmp sgt i64 %items, 0
  br i1 %some, label %size, label %end
size:
  %grain = call i64 @llvm.smax.i64(i64 %grain.given, i64 1)
  %long = icmp sgt i64 %items, %grain
  %several = icmp sgt i64 %threads, 1
  %worth = and i1 %long, %several
  br i1 %worth, label %state, label %serial
state:
  %forked = load i64, ptr @jitney_forked
  %inside.32 = call i32 @omp_in_parallel()
  %inside = zext i32 %inside.32 to i64
  %either = or i64 %forked, %inside
  %free = icmp eq i64 %either, 0
  br i1 %free, label %parallel, label %serial
serial:
  call void %body(ptr %context, i64 0, i64 %items, i64 0)
  br label %end
parallel:
  %below = sub i64 %items, 1
  %full = udiv i64 %below, %grain
  %chunks = add i64 %full, 1
  %workers = call i64 @llvm.umin.i64(i64 %chunks, i64 %threads)
  %region = alloca %jitney.region
  %body.p = getelementptr %jitney.region, ptr %region, i32 0, i32 0
  %context.p = getelementptr %jitney.region, ptr %region, i32 0, i32 1
  %items.p = getelementptr %jitney.region, ptr %region, i32 0, i32 2
  %workers.p = getelementptr %jitney.region, ptr %region, i32 0, i32 3
  store ptr %body, ptr %body.p
  store ptr %context, ptr %context.p
  store i64 %items, ptr %items.p
  store i64 %workers, ptr %workers.p
  %team = trunc i64 %threads to i32
  FORK
  br label %end
end:
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""

_GOMP_FORK = "call void @GOMP_parallel(ptr @jitney_share, ptr %region, i32 %team, i32 0)"
_GOMP = "declare void @GOMP_parallel(ptr, ptr, i32, i32)\n"

_KMP_FORK = """%number = call i32 @__kmpc_global_thread_num(ptr @jitney.place)
  call void @__kmpc_push_num_threads(ptr @jitney.place, i32 %number, i32 %team)
  call void (ptr, i32, ptr, ...) @__kmpc_fork_call(ptr @jitney.place, i32 1, ptr @jitney_share_kmp, ptr %region)"""
_KMP = """
@jitney.place.text = private constant [23 x i8] c";unknown;unknown;0;0;;\\00"
@jitney.place = private constant { i32, i32, i32, i32, ptr } { i32 0, i32 2, i32 0, i32 0, ptr @jitney.place.text }
declare i32 @__kmpc_global_thread_num(ptr)
declare void @__kmpc_push_num_threads(ptr, i32, i32)
declare void @__kmpc_fork_call(ptr, i32, ptr, ...)

define internal void @jitney_share_kmp(ptr %global, ptr %local, ptr %region) {
  call void @jitney_share(ptr %region)
  ret void
}
"""

# Thread k writes where its share begins and ends, and counts its visits.
_TRIAL = """
define internal void @trial_body(ptr %seen, i64 %begin, i64 %stop, i64 %thread) {
  %at = mul i64 %thread, 3
  %p = getelementptr i64, ptr %seen, i64 %at
  %q = getelementptr i64, ptr %p, i64 1
  %r = getelementptr i64, ptr %p, i64 2
  %visits = load i64, ptr %r
  %more = add i64 %visits, 1
  store i64 %begin, ptr %p
  store i64 %stop, ptr %q
  store i64 %more, ptr %r
  ret void
}
define void @trial(ptr %seen, i64 %items, i64 %grain, i64 %threads) {
  call void @jitney_parallel(ptr @trial_body, ptr %seen, i64 %items, i64 %grain, i64 %threads)
  ret void
}
"""


@dataclass(frozen=True)
class Threads:
    """How loops run in parallel here.

    Args:
        interface: the family of entry points in use; ``none``: loops run serially.
        library: the file that they come from, as far as it is known.
        problem: why loops run serially; empty if they do not.
    """

    interface: Interface
    library: str = ""
    problem: str = ""

    @property
    def parallel(self) -> bool:
        """May a loop use several threads?"""
        return self.interface != "none"

    @property
    def ir(self) -> str:
        """LLVM IR of ``void @jitney_parallel(ptr body, ptr context, i64 items, i64 grain, i64 threads)``.

        To be put into each module that has parallel loops. It calls ``void body(ptr context, i64 begin, i64 end, i64
        thread)``: once for all items if there are at most ``grain`` of them, if ``threads`` is 1, or if the caller is
        in a parallel loop already; else in ``min(threads, ceil(items / grain))`` threads, numbered from 0, each with
        one contiguous share; shares differ by one item at most. ``threads`` is what ``torch.get_num_threads()`` says
        at that call.
        """
        return ir(self.interface)


def ir(interface: Interface) -> str:
    """The text of ``Threads.ir`` for one family of entry points."""
    if interface == "none":
        return _SERIAL
    fork, needs = (_GOMP_FORK, _GOMP) if interface == "gomp" else (_KMP_FORK, _KMP)
    return needs + _PARALLEL.replace("FORK", fork)


@functools.cache
def threads(engine: Engine) -> Threads:
    """What torch's OpenMP library offers, after the trial; the answer is kept for the process."""
    symbols.register(_FORKED, ctypes.addressof(_forked))
    problem = _unsuitable()
    if problem:
        return Threads("none", problem=problem)
    interface: Interface = "gomp" if _has(_FORKS["gomp"]) else "kmp"
    library = _file_of("omp_get_thread_num")
    problem = trial(engine, interface)
    if problem:
        return Threads("none", library, problem)
    _hold_forks()
    return Threads(interface, library)


def _unsuitable() -> str:
    if "backend: OpenMP" not in torch.__config__.parallel_info():
        return "this torch was built without OpenMP"
    if not _has(_QUERIES):
        return "no OpenMP library is loaded with torch's CPU library"
    if not any(map(_has, _FORKS.values())):
        return "the OpenMP library has neither GOMP_parallel nor __kmpc_fork_call"
    if _query("omp_get_max_threads") != torch.get_num_threads():
        return "the OpenMP library that was found is not the one that torch uses: their numbers of threads differ"
    return ""


def trial(engine: Engine, interface: Interface) -> str:
    """Run small parallel loops; what is wrong with them, or an empty string."""
    count = max(2, torch.get_num_threads())
    library = engine.compile(ir(interface) + _TRIAL)
    run = library.function("trial", ctypes.c_void_p, *[ctypes.c_int64] * 3)
    for items, grain, threads, workers in (
        (7 * count + 1, 1, count, count),
        (count - 1, 1, count, count - 1),
        (2 * count, count, count, 2),
        (count, count, count, 1),
        (9, 1, 1, 1),
        (0, 1, count, 0),
    ):
        seen = (ctypes.c_int64 * (3 * count))()
        run(seen, items, grain, threads)
        if list(seen) != _expected(items, workers, count):
            return f"a loop of {items} items ran wrong in {workers} threads: begin, end, visits were {list(seen)}"
    return ""


def _expected(items: int, workers: int, count: int) -> list[int]:
    rows = []
    begin = 0
    for thread in range(workers):
        end = begin + items // workers + (thread < items % workers)
        rows += [begin, end, 1]
        begin = end
    return rows + [0] * (3 * (count - workers))


def _has(names: tuple[str, ...]) -> bool:
    return all(symbols.find(name) is not None for name in names)


def _query(name: str) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(symbols.find(name) or 0)())


@functools.cache
def _hold_forks() -> None:
    """Give the pool back before each fork; if it cannot be given back, note that in the child."""
    if not hasattr(os, "register_at_fork"):
        return
    address = symbols.find("omp_pause_resource_all")
    pause = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address) if address else None
    clean = False

    def before() -> None:
        nonlocal clean
        clean = pause is not None and pause(_PAUSE_SOFT) == 0

    def in_child() -> None:
        if not clean:
            _forked.value = 1

    os.register_at_fork(before=before, after_in_child=in_child)


def _file_of(name: str) -> str:
    """The file whose mapping holds a function; empty where the system does not say."""
    address = symbols.find(name) or 0
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                fields = line.split(maxsplit=5)
                low, high = (int(limit, 16) for limit in fields[0].split("-"))
                if low <= address < high and len(fields) == 6:
                    return fields[5].strip()
    except OSError:  # not Linux
        pass
    return ""
