"""The arithmetic of speed_cpu.py's figures, and the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from front_ends import PEER, REFERENCE
from meters import QUIET

MIB = 2**20
MEAN = "geometric mean"
MODES = ("dynamic", "automatic")
DISTURBED = " *"  # after the name of a workload whose measures shared the machine
SHARED = f";{DISTURBED}: other processes took part of the machine"

Row = list[object]
Table = tuple[str, list[str], list[Row], str]  # title, heads, rows, caption


def ratios(times: Mapping[str, Sequence[float]], name: str) -> dict[str, float]:
    """How many times faster `name` is than each of the others, and itself: medians over the rounds."""
    own = times[name]
    return {other: median(a / b for a, b in zip(seconds, own, strict=True)) for other, seconds in times.items()}


def mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are known; None if none is."""
    known = [v for v in values if v is not None and v > 0]
    return geometric_mean(known) if known else None


def middle(samples: Sequence[float] | None) -> float | None:
    return median(samples) if samples else None


def figure(workload: Mapping[str, Any], name: str, *path: str) -> Any:
    """A figure of one front end, or None where there is none."""
    value: Any = workload.get("front_ends", {}).get(name)
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def seconds(workload: Mapping[str, Any], name: str, kind: str) -> float | None:
    """Seconds of a first call: `cold_s`, `warm_s` (medians) or `first_s`."""
    value = figure(workload, name, kind)
    return middle(value) if isinstance(value, list) else value


def compiling(workload: Mapping[str, Any], name: str, kind: str) -> float | None:
    """Seconds of a `cold` or `warm` first call, without those of loading the front end and its backend."""
    whole, loading = seconds(workload, name, f"{kind}_s"), seconds(workload, name, f"{kind}_loading_s")
    return whole - loading if whole is not None and loading is not None else None


def over(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def means(workloads: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Geometric means over the workloads, by front end: of speeds, and of ratios of seconds."""
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        if name == REFERENCE:
            continue

        def of(function: Any, some: Iterable[Any] = workloads.values()) -> float | None:
            return mean(function(w) for w in some)

        versus = [other for other in (REFERENCE, PEER) if other in names and other != name]
        quiet = [w for w in workloads.values() if not w.get("disturbed")]
        speeds = {o: of(lambda w, n=name, o=o: figure(w, n, "speed", o)) for o in versus}
        undisturbed = {o: of(lambda w, n=name, o=o: figure(w, n, "speed", o), quiet) for o in versus}
        kinds = ("cold_s", "first_s", "warm_s")
        compile_ratio = {}
        if PEER in versus:
            compile_ratio = {
                kind: of(lambda w, n=name, k=kind: over(seconds(w, n, k), seconds(w, PEER, k))) for kind in kinds
            }
        found[name] = {
            "workloads": sum(figure(w, name, "speed") is not None for w in workloads.values()),
            "speed": speeds,
            "speed_undisturbed": undisturbed,
            "copy_share": of(lambda w, n=name: figure(w, n, "copy_share")),
            f"seconds_over_{PEER}": compile_ratio,
            "warm_over_cold": {
                "in all": of(lambda w, n=name: over(seconds(w, n, "warm_s"), seconds(w, n, "cold_s"))),
                "after loading": of(lambda w, n=name: over(compiling(w, n, "warm"), compiling(w, n, "cold"))),
            },
        }
    return found


# --- rows ----------------------------------------------------------------------------------------------------------


def label(name: str, workload: Mapping[str, Any]) -> str:
    return name + (DISTURBED if workload.get("disturbed") else "")


def loaded(workload: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Did any of the first calls share the machine?"""
    found: list[float] = []
    for name in names:
        record = workload.get("front_ends", {}).get(name, {})
        found += [record.get("first_load", 0.0), *record.get("cold_load", []), *record.get("warm_load", [])]
    return any(load >= QUIET for load in found)


def word(workload: Mapping[str, Any], name: str, value: object) -> object:
    """The figure, or why there is none."""
    record = workload.get("front_ends", {}).get(name, {})
    return value if value is not None else next((kind for kind in ("wrong", "error") if kind in record), None)


def speed_table(workloads: Mapping[str, Any], names: Sequence[str], title: str = "Speed on the CPU") -> Table:
    """Milliseconds of each, then speeds relative to eager and to torch.compile, then shares of the copy."""
    others = [name for name in names if name != REFERENCE]
    pairs = [(name, other) for other in (REFERENCE, PEER) if other in names for name in others if name != other]
    head = ["workload", *(f"{name} ms" for name in names), *(f"{name} / {other}" for name, other in pairs)]
    head += [f"{name} copy %" for name in names]
    rows: list[Row] = []
    for name_of_row, w in workloads.items():
        row: Row = [label(name_of_row, w)]
        row += [word(w, name, figure(w, name, "ms")) for name in names]
        row += [figure(w, name, "speed", other) for name, other in pairs]
        row += [percent(figure(w, name, "copy_share")) for name in names]
        rows.append(row)
    every = means(workloads, names)
    groups = [(MEAN, "speed")]
    if 0 < sum(bool(w.get("disturbed")) for w in workloads.values()) < len(workloads):
        groups.append((f"{MEAN}, without {DISTURBED.strip()}", "speed_undisturbed"))
    for name_of_row, key in groups:
        found = [every[name][key][other] for name, other in pairs]
        rows.append([name_of_row, *[None] * len(names), *found, *[None] * len(names)])
    caption = "A / B: how many times faster than B, median over rounds; copy %: share of the speed of torch's copy"
    if any(w.get("disturbed") for w in workloads.values()):
        caption += SHARED
    return title, head, rows, caption


def start_table(workloads: Mapping[str, Any], names: Sequence[str]) -> Table:
    """Seconds of first calls: cold, after another compile, and in a second process."""
    others = [name for name in names if name != REFERENCE]
    kinds = {"cold_s": "cold", "first_s": "again", "warm_s": "second"}
    head = ["workload", *(f"{name} {short}" for short in kinds.values() for name in others)]
    rows: list[Row] = []
    for title, w in workloads.items():
        row: Row = [title + (DISTURBED if loaded(w, others) else "")]
        rows.append(row + [word(w, name, seconds(w, name, kind)) for kind in kinds for name in others])
    columns = [[seconds(w, name, kind) for w in workloads.values()] for kind in kinds for name in others]
    rows.append([MEAN, *map(mean, columns)])
    caption = (
        "cold: new process, empty caches, imports included; again: empty caches, but the process has compiled "
        "something; second: new process, caches of the cold one"
    )
    if any(loaded(w, others) for w in workloads.values()):
        caption += SHARED
    return "Seconds of the first call", head, rows, caption


def memory_table(found: Mapping[str, Any], names: Sequence[str]) -> Table:
    """MiB of training steps, and their ratio to torch.compile's."""
    kinds = {"process": "process", "steps": "steps", "own": "own"}
    head = ["workload", *(f"{name} {short}" for short in kinds.values() for name in names)]
    versus = [name for name in names if name not in (REFERENCE, PEER)] if PEER in names else []
    head += [f"{name} / {PEER} {short}" for name in versus for short in ("process", "steps", "own")]
    rows: list[Row] = []
    for title, by_name in found.items():
        held = {name: with_own(by_name.get(name, {})) for name in names}
        row: Row = [title]
        for kind in kinds:
            row += ["error" if "error" in held[n] else over(held[n].get(kind), MIB) for n in names]
        row += [over(held[n].get(kind), held[PEER].get(kind)) for n in versus for kind in kinds]
        rows.append(row)
    caption = (
        "MiB at the peak. process: ever, compiling included; steps: while training, after three steps; own: of that, "
        "beyond a process that has only compiled something trivial"
    )
    return "Peak memory of training", head, rows, caption


def with_own(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record, with the bytes of the steps beyond those before the workload was made."""
    steps, before = record.get("steps"), record.get("before")
    return {**record, "own": steps - before if steps is not None and before is not None else None}


def batch_table(found: Mapping[str, Any], names: Sequence[str], sizes: Sequence[int]) -> Table:
    """Graphs compiled for all batch sizes."""
    head = ["model", "front end", "dynamic=True graphs", "s", "default graphs", "s", "wrong"]
    rows: list[Row] = []
    for title, by_name in found.items():
        for name in names:
            if name == REFERENCE or name not in by_name:
                continue
            record = by_name[name]
            if "error" in record:
                rows.append([title, name, "error", None, None, None, None])
                continue
            modes = record["dynamic"], record["automatic"]
            counts = [value for mode in modes for value in (mode["graphs"], mode["seconds"])]
            rows.append([title, name, *counts, sum(len(mode["wrong"]) for mode in modes)])
    caption = f"batch sizes {', '.join(map(str, sizes))}, inference; s: all of these calls, compiling included"
    return "One compile for many batch sizes", head, rows, caption


def percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.0f}"


def failures(summary: Mapping[str, Any]) -> list[str]:
    """One line for each wrong answer and each error; empty if all is well."""
    lines: list[str] = []
    for title, w in summary["workloads"].items():
        if "error" in w:
            lines.append(f"{title}: {w['error']}")
        for name, record in w.get("front_ends", {}).items():
            lines += [f"{title}: {name}, {kind}: {record[kind]}" for kind in ("wrong", "error") if kind in record]
            lines += [f"{title}: {name}, {text}" for text in record.get("start_errors", [])]
    for part, found in (("memory", summary["memory"]), ("batch sizes", summary["batches"]["models"])):
        for title, by_name in found.items():
            for name, record in by_name.items():
                if "error" in record:
                    lines.append(f"{part} of {title}: {name}, error: {record['error']}")
                for mode in MODES:
                    wrong = record.get(mode, {}).get("wrong", [])
                    lines += [f"{part} of {title}: {name}, wrong: {text}" for text in wrong]
    return lines


def left_to_eager(summary: Mapping[str, Any]) -> list[str]:
    """One line for each graph break and each piece that a front end ran eagerly: no speed of its own."""
    lines: dict[str, None] = {}
    for title, w in summary["workloads"].items():
        for name, record in w.get("front_ends", {}).items():
            lines |= dict.fromkeys(f"{title}: {name} left to eager: {reason}" for reason in record.get("left", []))
    for title, by_name in summary["batches"]["models"].items():
        for name, record in by_name.items():
            left = [reason for mode in MODES for reason in record.get(mode, {}).get("left", [])]
            lines |= dict.fromkeys(f"batch sizes of {title}: {name} left to eager: {reason}" for reason in left)
    return list(lines)
