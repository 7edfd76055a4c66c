"""The measures of speed_cpu.py, each run in a process of its own; what they return goes through JSON."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter, sleep
from typing import Any

import torch
from answers import compare, frozen
from front_ends import REFERENCE, FrontEnd, front_end
from meters import QUIET, Stopwatch, forget_peak, peak_of_process
from speed_table import MODES, ratios
from workloads_cpu import BATCHED, BATCHES, WORKLOADS, Job, bytes_of, tensors_in

COPY = "copy"  # the turn of torch's own copy, among those of the front ends
TURN_SECONDS = 0.05
LEAST_ROUNDS = 7
MEMORY_STEPS = 3

Turns = dict[str, Callable[[], Any]]


def failure(error: Exception) -> dict[str, Any]:
    """What a report says of a front end that raised."""
    first = (str(error).strip().splitlines() or [""])[0]
    return {"error": f"{type(error).__name__}: {first}", "traceback": "".join(traceback.format_exception(error))}


def start_up(tool: FrontEnd, device: str = "cpu") -> None:
    """Compile something trivial, forward and backward: imports and all that happens once in a process."""
    x = torch.ones(8, requires_grad=True, device=device)
    tool.compile(lambda x: x.exp() + 1)(x).sum().backward()


# --- speed ---------------------------------------------------------------------------------------------------------


def speed(task: Mapping[str, Any]) -> dict[str, Any]:
    """All front ends on one workload, in turn, each with its own copy of the data; eager is the first.

    `task`: workload, front_ends, rounds, budget and patience in seconds.
    """
    workload = WORKLOADS[task["workload"]]
    records: dict[str, dict[str, Any]] = {name: {} for name in task["front_ends"]}
    turns: Turns = {}
    expected: list[list[torch.Tensor]] = []
    moved = 0
    for name, record in records.items():
        try:
            start_up(front_end(name))
            job = workload.job()
            found = first_steps(front_end(name), job, expected, record)
        except Exception as error:  # whatever a compiler raises is a row of the table
            if name == REFERENCE:
                raise
            record.update(failure(error))
            continue
        if name == REFERENCE:
            expected = found
            moved = bytes_of(job.inputs) + bytes_of(found[0])
        if "wrong" not in record:  # a wrong answer gets no speed
            turns[name] = step_of(job, record.pop("compiled"))
        record.pop("compiled", None)
        del found, job
    expected.clear()
    gc.collect()
    if workload.bandwidth:
        turns[COPY] = copy_of(moved)
    times, load, disturbed = rounds(turns, task["rounds"], task["budget"], task["patience"])
    result = {"disturbed": disturbed, "other_load": load, "bytes": moved if workload.bandwidth else None}
    for name, seconds in times.items():
        record = records.setdefault(name, {})
        record |= {"ms": 1e3 * median(seconds), "rounds": len(seconds), "speed": ratios(times, name)}
    if COPY in times:
        result["copy_gb_s"] = moved / median(times[COPY]) / 1e9
        for record in records.values():
            record["copy_share"] = record.get("speed", {}).get(COPY)
        del records[COPY]
    return result | {"front_ends": records}


def first_steps(
    tool: FrontEnd, job: Job, expected: list[list[torch.Tensor]], record: dict[str, Any]
) -> list[list[torch.Tensor]]:
    """Compile; two steps, each compared with eager's. Fills `record`; returns the results of both."""
    with tool.watch() as work:
        watch = Stopwatch()
        compiled = tool.compile(job.target)
        result = job.step(compiled)
        record["first_s"], record["first_load"] = watch.read()
        found = [frozen(result)]
        del result
        found.append(frozen(job.step(compiled)))
    record |= {"graphs": work.graphs, "kernels": work.kernels, "whole": work.whole, "left": work.left}
    record["compiled"] = compiled
    worst = 0.0
    for count, (wanted, got) in enumerate(zip(expected, found, strict=False), 1):
        off, wrong = compare(wanted, got)
        if wrong:
            record["wrong"] = f"step {count}, {wrong}"
            break
        worst = max(worst, off)
    record["largest_difference"] = worst
    return found if tool.name == REFERENCE else []


def step_of(job: Job, compiled: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: job.step(compiled)


def copy_of(moved: int) -> Callable[[], Any]:
    """torch's copy of so much memory that reading and writing it moves `moved` bytes."""
    source = torch.randn(max(1, moved // 8))
    copied = torch.empty_like(source)
    return lambda: copied.copy_(source)


def rounds(turns: Turns, most: int, budget: float, patience: float) -> tuple[dict[str, list[float]], float, bool]:
    """Seconds of a step, for each turn of each round kept; the others' median load; whether they disturbed.

    Rounds with other load on the machine are dropped, and waited for until `patience` seconds are over. Too few quiet
    ones by then: all are kept, and they were disturbed.
    """
    steps = max(1, round(TURN_SECONDS / min(map(fastest, turns.values()))))
    start = perf_counter()
    seen: list[tuple[float, dict[str, float]]] = []
    quiet = 0
    while len(seen) < 10 * most:
        watch = Stopwatch()
        times = {name: timed(turn, steps) for name, turn in turns.items()}
        load = watch.read()[1]
        seen.append((load, times))
        quiet += load < QUIET
        spent = perf_counter() - start
        if quiet >= most or spent > max(patience, budget) or (spent > budget and quiet >= min(LEAST_ROUNDS, most)):
            break
        if load >= QUIET:
            sleep(0.2)
    disturbed = quiet < min(LEAST_ROUNDS, most)
    kept = seen if disturbed else [(load, times) for load, times in seen if load < QUIET]
    return {name: [t[name] for _, t in kept] for name in turns}, median(load for load, _ in kept), disturbed


def fastest(turn: Callable[[], Any]) -> float:
    """Seconds of the best of three steps, after one to warm up."""
    turn()
    return max(1e-7, min(timed(turn, 1) for _ in range(3)))


def timed(turn: Callable[[], Any], steps: int) -> float:
    """Seconds of one of `steps` steps in a row."""
    start = perf_counter()
    for _ in range(steps):
        turn()
    return (perf_counter() - start) / steps


# --- the first call, memory, batch sizes ---------------------------------------------------------------------------


def start(task: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of the first call in this process, all that it imports included; torch itself is there already.

    `task`: workload, front_end. `loading` is the part of them that passes before the compiled function is called.
    """
    tool, job = front_end(task["front_end"]), WORKLOADS[task["workload"]].job()
    watch = Stopwatch()
    compiled = tool.compile(job.target)
    loading = watch.read()[0]
    job.step(compiled)
    seconds, load = watch.read()
    return {"s": seconds, "loading_s": loading, "load": load}


def memory(task: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes in memory: the process's most, that of steps after the first three, and before the workload was made.

    `task`: workload, front_end.
    """
    tool = front_end(task["front_end"])
    start_up(tool)
    gc.collect()
    whole = peak_of_process()
    resettable = forget_peak()
    before = peak_of_process()
    job = WORKLOADS[task["workload"]].job()
    step = step_of(job, tool.compile(job.target))
    for _ in range(MEMORY_STEPS):
        step()
    gc.collect()
    whole = max(whole, peak_of_process())
    if not resettable or not forget_peak():
        return {"process": whole, "steps": None, "before": None}
    for _ in range(MEMORY_STEPS):
        step()
    peak = peak_of_process()
    return {"process": max(whole, peak), "steps": peak, "before": before}


def batches(task: Mapping[str, Any]) -> dict[str, Any]:
    """One compiled module called with many batch sizes: graphs compiled for them, seconds of all calls.

    `task`: model, front_end. By mode: every size `dynamic`, and `automatic`, as the front end does by itself.
    """
    tool = front_end(task["front_end"])
    start_up(tool)
    found: dict[str, Any] = {}
    for mode, dynamic in zip(MODES, (True, None), strict=True):
        torch.manual_seed(0)
        model, argument = BATCHED[task["model"]]()
        compiled, wrong = tool.compile(model, dynamic=dynamic), []
        given = [argument(size) for size in BATCHES]
        with torch.no_grad():
            expected = [model(x) for x in given]
            with tool.watch() as work:
                begin = perf_counter()
                got = [compiled(x) for x in given]
                seconds = perf_counter() - begin
        for size, a, b in zip(BATCHES, expected, got, strict=True):
            if problem := compare(tensors_in(a), tensors_in(b))[1]:
                wrong.append(f"batch size {size}: {problem}")
        found[mode] = {"graphs": work.graphs, "seconds": seconds, "wrong": wrong, "left": work.left}
        tool.reset()
    return found


MEASURES: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "speed": speed,
    "start": start,
    "memory": memory,
    "batches": batches,
}


def measure(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run the measure that `task` names, on its number of threads (0: torch's default)."""
    if task["threads"]:
        torch.set_num_threads(task["threads"])
    try:
        return MEASURES[task["measure"]](task)
    except Exception as error:  # a row of the report; a crash of the process is one too
        return failure(error)
