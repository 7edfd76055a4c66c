"""The arithmetic of the breadth benchmark: a row's figures, its status, and totals of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from speed_table import mean, over

from .measure import EAGER, OURS, RECORDED, THEIRS

BEHIND, FAR_BEHIND = 0.95, 0.85
Record = Mapping[str, Any]


def part(record: Record, name: str, key: str) -> Any:
    """A figure of one front end, or None."""
    return record.get("front_ends", {}).get(name, {}).get(key)


def problem(record: Record, name: str) -> str:
    """Why a front end failed at a row, "" if it did not; what kills the process counts for who was at work."""
    own = record.get("front_ends", {}).get(name, {})
    if found := own.get("error") or own.get("wrong"):
        return str(found)
    return str(record["error"]) if "error" in record and record.get("unfinished") == name else ""


def status(record: Record) -> str:
    """``ok``, ``not installed``, ``not made`` (eager cannot), ``failed`` (jitney's), ``no figures`` (another's)."""
    for key in ("not_installed", "not_made"):
        if key in record:
            return key.replace("_", " ")
    if any(problem(record, name) for name in (OURS, *(n for n, whose in RECORDED.items() if whose == OURS))):
        return "failed"
    return "ok" if speed(record, EAGER) is not None else "no figures"


def speed(record: Record, other: str, own: str = OURS) -> float | None:
    """How many times faster than another: the ratio of medians."""
    return over(part(record, other, "ms"), part(record, own, "ms"))


def figures(record: Record) -> dict[str, Any]:
    """A row's columns by name; None where there is no figure."""
    recorded = {whose: name for name, whose in RECORDED.items()}
    eagers = part(record, EAGER, "error_from_exact")
    return {
        "mode": record.get("mode"),
        "eager ms": part(record, EAGER, "ms"),
        "jitney ms": part(record, OURS, "ms"),
        "/ eager": speed(record, EAGER),
        "/ t.c": speed(record, THEIRS),
        "graphs / eager": speed(record, EAGER, recorded[OURS]),
        "graphs / t.c graphs": speed(record, recorded[THEIRS], recorded[OURS]),
        "t.c / eager": speed(record, EAGER, THEIRS),
        "first": over(part(record, OURS, "first_s"), part(record, THEIRS, "first_s")),
        "memory": over(part(record, OURS, "peak_bytes"), part(record, THEIRS, "peak_bytes") or None),
        "error": over(part(record, OURS, "error_from_exact"), eagers or None),
        "status": status(record) + (" *" if record.get("disturbed") else ""),
    }


RATIOS = ("/ eager", "/ t.c", "graphs / eager", "graphs / t.c graphs", "t.c / eager", "first", "memory", "error")


def totals(records: Iterable[Record], asked: int) -> dict[str, Any]:
    """Of many rows: means, shares of those behind, failures. No row is named.

    Args:
        records: those measured.
        asked: how many there are to measure.
    """
    all_ = list(records)
    rows = [figures(record) for record in all_]
    states = [status(record) for record in all_]
    found: dict[str, Any] = {"rows": asked, "measured": len(all_)}
    found |= {state: states.count(state) for state in ("ok", "failed", "no figures", "not made", "not installed")}
    found["torch.compile failed"] = sum(bool(problem(record, THEIRS)) for record in all_)
    found["disturbed"] = sum(bool(record.get("disturbed")) for record in all_)
    found["no reference"] = sum("no_reference" in record for record in all_)
    found["means"] = {name: mean(row[name] for row in rows) for name in RATIOS}
    for name in ("/ eager", "/ t.c", "graphs / t.c graphs"):
        known = [row[name] for row in rows if row[name] is not None]
        found[name] = {
            "rows": len(known),
            "behind": share(known, BEHIND),
            "far behind": share(known, FAR_BEHIND),
            "least": min(known, default=None),
        }
    return found


def share(values: list[float], limit: float) -> float | None:
    """Of the values, how many are below the limit."""
    return sum(value < limit for value in values) / len(values) if values else None


def worst(records: Mapping[str, Record], most: int = 10) -> list[str]:
    """Names of rows, those furthest behind torch.compile (or eager, where there is none) first."""

    def behind(name: str) -> float:
        row = figures(records[name])
        return min(v for v in (row["/ t.c"], row["/ eager"], float("inf")) if v is not None)

    return [name for name in sorted(records, key=behind) if behind(name) < 1][:most]
