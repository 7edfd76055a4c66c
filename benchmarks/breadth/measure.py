"""What is measured of a row, in a process of its own; the answer goes through JSON."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import warnings
from collections.abc import Callable, Mapping
from statistics import median
from time import monotonic
from typing import Any

import speed_child
import speed_gpu
import torch
from front_ends import FrontEnd, Jitney, Torch
from meters import forget_peak, peak_of_process
from speed_child import failure, start_up

from . import accuracy, job, rows
from .exclusive import Exclusive
from .row import Place, Row
from .where import where_time_goes
from .zoo import NotInstalled

EAGER, OURS, THEIRS = "eager", "jitney", "torch.compile"
RECORDED = {"jitney graphs": OURS, "torch.compile graphs": THEIRS}  # mode="reduce-overhead", and whose
FRONT_ENDS: dict[str, FrontEnd] = {
    EAGER: FrontEnd(EAGER),
    OURS: Jitney(OURS, "auto"),
    THEIRS: Torch(THEIRS, "inductor"),
    "jitney graphs": Jitney("jitney graphs", "auto", "reduce-overhead"),
    "torch.compile graphs": Torch("torch.compile graphs", "inductor", "reduce-overhead"),
}
MOST_ROUNDS = 25
SLOW = 0.95  # of torch.compile's or eager's speed: below it the tuned half's rows tell where their time goes

Turns = dict[str, Callable[[], Any]]
Note = Callable[[Mapping[str, Any]], None]


def front_ends_on(device: str) -> list[str]:
    """Those compared; CUDA graphs only where there are some."""
    return [name for name in FRONT_ENDS if device == "cuda" or name not in RECORDED]


def measure(task: Mapping[str, Any], note: Note = lambda draft: None) -> dict[str, Any]:
    """First calls, errors, memory and times of a row.

    Args:
        task: ``row`` (a name), ``device``, ``threads`` (0: torch's default), ``budget`` in seconds of timing,
            ``lock`` (a file's path: who holds it may measure time; or ""), ``cores`` (of those who measure, and of
            the others; missing: any).
        note: gets the answer so far; its ``unfinished`` is the front end that is at work.
    """
    warnings.simplefilter("ignore")
    alone = Exclusive(task["lock"], *task.get("cores", ()))
    alone.give_way()
    if task["threads"]:
        torch.set_num_threads(task["threads"])
    place = Place(task["device"])
    try:
        row = rows.named(task["row"], place.device)
        pristine = job.make(row, place)
    except NotInstalled as error:
        return {"not_installed": str(error)}
    except Exception as error:
        return {"not_made": failure(error)}
    return measured(row, pristine, place, task, alone, note)


def measured(
    row: Row, pristine: job.Job, place: Place, task: Mapping[str, Any], alone: Exclusive, note: Note
) -> dict[str, Any]:
    """The answer about a row that could be made."""
    records: dict[str, dict[str, Any]] = {name: {} for name in task.get("front_ends") or front_ends_on(place.device)}
    answer: dict[str, Any] = {"front_ends": records}
    note(answer | {"unfinished": EAGER})
    turns: Turns = {}
    exact: list[torch.Tensor] | None = None
    expected: list[list[torch.Tensor]] = []
    for name, record in records.items():
        note(answer | {"unfinished": name})
        try:
            own = job.copied(pristine, place)
            found, turn = first_calls(name, own, record, alone)
        except Exception as error:  # whatever a compiler raises is a row of the table
            if name == EAGER:
                return {"not_made": failure(error)}
            record |= failure(error)
            continue
        if name == EAGER:
            expected = found
            try:
                exact = job.exact(pristine, place)
            except Exception as error:
                answer["no_reference"] = failure(error)["error"]
        judge(record, found, expected, exact, row.autocast or row.dtype)
        if "wrong" not in record:
            turns[name] = turn
        del found, own
        release()
    expected.clear()
    exact = None
    for name, turn in turns.items():
        if name not in RECORDED:
            record_peak(records[name], turn, place)
    note(answer | {"unfinished": "timing"})
    with alone.held():
        times, answer["disturbed"] = timed(turns, place, task["budget"])
    for name, seconds in times.items():
        records[name] |= {"ms": 1e3 * median(seconds), "rounds": len(seconds)}
    if row.tuned and OURS in turns and slow(records):
        note(answer | {"unfinished": "profile"})
        try:
            own = job.copied(pristine, place)
            answer["where"] = where_time_goes(own, turns[OURS], alone.held)
        except Exception as error:
            answer["where"] = failure(error)
    return answer


def first_calls(
    name: str, own: job.Job, record: dict[str, Any], alone: Exclusive
) -> tuple[list[list[torch.Tensor]], Callable[[], Any]]:
    """Compile, and three calls: results of the first and of the third, and what makes another call."""
    tool = FRONT_ENDS[name]
    if name not in RECORDED:
        start_up(tool, own.device)
    with tool.watch() as work:
        synchronize(own.device)
        begin = monotonic()
        compiled = tool.compile(own.target)
        first = own.outcome(compiled)
        synchronize(own.device)
        end = monotonic()
        record["first_s"] = end - begin - alone.stopped(begin, end)
        if name in RECORDED:
            plain = compiled
            compiled = marked(plain)
        own.outcome(compiled)
        third = own.outcome(compiled)
    record |= {"graphs": work.graphs, "kernels": work.kernels, "whole": work.whole}
    record |= {"left": work.left[:20], "reasons": sorted(set(map(tuple, work.reasons)))[:40]}
    return [first, third], lambda: own.step(compiled)


def marked(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """With a mark where a step begins: what the last one returned in a recorded graph's memory may be overwritten."""

    def step(*args: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*args)

    return step


def judge(
    record: dict[str, Any],
    found: list[list[torch.Tensor]],
    expected: list[list[torch.Tensor]],
    exact: list[torch.Tensor] | None,
    dtype: torch.dtype,
) -> None:
    """Errors, and what is wrong, into the record; the third call is compared with eager's third."""
    first, third = found
    if wrong := accuracy.misshapen(expected[0], first) or accuracy.misshapen(expected[1], third):
        record["wrong"] = wrong
        return
    record["from_eager"] = max(map(accuracy.error, expected, found))
    eagers = None
    if exact is not None:
        record["error_from_exact"] = ours = accuracy.error(exact, first)
        eagers = ours if found is expected else accuracy.error(exact, expected[0])
        if found is not expected and (wrong := accuracy.verdict(ours, eagers, dtype)):
            record["wrong"] = wrong
            return
    again = accuracy.error(expected[1], third)
    if wrong := accuracy.verdict(again, None if eagers is None else 2 * eagers, dtype):
        record["wrong"] = f"third call: {wrong}" if exact is not None else wrong


def slow(records: Mapping[str, Mapping[str, Any]]) -> bool:
    """Is jitney slower than another?"""
    own = records[OURS].get("ms")
    return any(own and other.get("ms", own) < SLOW * own for other in records.values())


def timed(turns: Turns, place: Place, budget: float) -> tuple[dict[str, list[float]], bool]:
    """Seconds of steps, in turns; did other processes disturb (on a CPU)?"""
    if place.device == "cuda":
        return speed_gpu.rounds(turns, MOST_ROUNDS, budget), False
    times, _, disturbed = speed_child.rounds(turns, MOST_ROUNDS, budget, 2 * budget)
    return times, disturbed


def record_peak(record: dict[str, Any], turn: Callable[[], Any], place: Place) -> None:
    """Bytes at the peak of a step beyond those before it; none where the system does not tell."""
    if place.device == "cuda":
        record["peak_bytes"] = speed_gpu.peak(turn)
        return
    turn()
    release()
    if not forget_peak():
        return
    before = peak_of_process()
    turn()
    record["peak_bytes"] = peak_of_process() - before


def release() -> None:
    """Give free memory back to the system and the device, where libc can."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
