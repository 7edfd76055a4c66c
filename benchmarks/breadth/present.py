"""The report: the tuned half row by row, both halves as totals, the worst rows with their causes, a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import report
from bar_chart import BARS, GREY, speed_chart
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from speed_table import MEAN

from .measure import EAGER, OURS, THEIRS
from .totals import BEHIND, FAR_BEHIND, RATIOS, Record, figures, part, problem, speed, status, worst

CAPTION = (
    "/ X: how many times faster than X, ratio of medians; t.c: torch.compile; graphs: both with mode=reduce-overhead; "
    "first, memory: first call's seconds and a step's peak, over torch.compile's; error: over eager's, from float64; "
    "*: other processes took part of the machine"
)


def row_table(records: Mapping[str, Record]) -> tuple[list[str], list[list[object]]]:
    """Heads and lines; columns of which nobody has a figure are left out."""
    lines = {name: figures(record) for name, record in records.items()}
    heads = [head for head in next(iter(lines.values()), {}) if any(line[head] is not None for line in lines.values())]
    return ["row", *heads], [[name, *(line[head] for head in heads)] for name, line in lines.items()]


def total_table(halves: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """One line for each figure, one column for each half."""
    plain = [key for key, value in next(iter(halves.values())).items() if not isinstance(value, Mapping)]
    lines: list[list[object]] = [[key, *(str(half[key]) for half in halves.values())] for key in plain]
    for name in RATIOS:
        lines.append([f"{name}, {MEAN}", *(half["means"][name] for half in halves.values())])
    for name in ("/ eager", "/ t.c", "graphs / t.c graphs"):
        for key, label in (("behind", f"below {BEHIND}"), ("far behind", f"below {FAR_BEHIND}")):
            lines.append([f"{name}, {label}", *(percent(half[name][key]) for half in halves.values())])
        lines.append([f"{name}, minimum", *(half[name]["least"] for half in halves.values())])
    return ["", *halves], [line for line in lines if any(value not in (None, "") for value in line[1:])]


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}%"


def show_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> None:
    """As narrow as can be: there are many columns."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", box=None, padding=(0, 1))
    for i, head in enumerate(heads):
        table.add_column(escape(head), justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*(escape(report.show(value)) for value in row))
    Console(width=max(report.console.width, 150)).print(table)
    report.console.print()


def failures(records: Mapping[str, Record]) -> list[str]:
    """One line for each front end that failed at a row, and for rows without figures."""
    lines = []
    for name, record in records.items():
        lines += [f"{name}: {tool}: {why}" for tool in record.get("front_ends", {}) if (why := problem(record, tool))]
        if "not_made" in record:
            lines.append(f"{name}: not made: {record['not_made']['error']}")
        elif "error" in record and not any(problem(record, tool) for tool in record.get("front_ends", {})):
            lines.append(f"{name}: {record['error']}")
    return lines


def causes(name: str, record: Record) -> list[str]:
    """Where a row's time goes, and what runs as a whole; some lines."""
    times = {tool: part(record, tool, "ms") for tool in (EAGER, OURS, THEIRS)}
    ms = [f"{tool} {report.show(time)} ms" for tool, time in times.items() if time is not None]
    lines = [f"{name}: {', '.join(ms)}; {part(record, OURS, 'kernels')} kernels, {part(record, OURS, 'whole')} whole"]
    where = record.get("where", {})
    if "error" in where:
        lines.append(f"    no profile: {where['error']}")
    parts = sorted(where.get("parts", {}).items(), key=lambda item: -item[1])
    lines += [f"    {percent(share):>6} {what}" for what, share in parts if share >= 0.02]
    sums = sorted(where.get("whole", {}).items(), key=lambda item: -item[1])[:6]
    lines += [f"    {percent(share):>6} {operator}, as a whole" for operator, share in sums if share >= 0.02]
    for kernel in where.get("top", [])[:4]:
        of = ", ".join(kernel["operators"]) or kernel["name"]
        speed_of = f", {kernel['gb_s']:.0f} GB/s" if kernel["gb_s"] else ""
        lines.append(
            f"    {percent(kernel['share']):>6} {kernel['ms']:.3g} ms{speed_of}: {kernel['graph']} {kernel['kind']} "
            f"{kernel['name']} = {of[:160]}" + (f" ({kernel['reason']})" if kernel["reason"] else "")
        )
    reasons = part(record, OURS, "reasons") or []
    lines += [f"    whole: {operator}: {reason}" for operator, reason in reasons[:8]]
    lines += [f"    left to eager: {reason}" for reason in (part(record, OURS, "left") or [])[:5]]
    return lines


def chart(records: Mapping[str, Record], means: Mapping[str, float | None], note: str) -> str:
    """Times faster than eager, jitney beside torch.compile, row by row."""
    groups: dict[str, dict[str, float | str | None]] = {
        name: {
            OURS: word(record, OURS, speed(record, EAGER)),
            THEIRS: word(record, THEIRS, speed(record, EAGER, THEIRS)),
        }
        for name, record in records.items()
        if status(record) not in ("not installed", "not made")
    }
    groups[MEAN] = {OURS: means["/ eager"], THEIRS: means["t.c / eager"]}
    short: dict[str, dict[str, float | str | None]] = {}
    for name, group in groups.items():
        label = name.partition("/")[2][:30] or name
        short[name if label in short else label] = group  # libraries have models of one name
    return speed_chart("Breadth: programs that nobody tuned for", note, {OURS: BARS[0], THEIRS: GREY}, short)


def word(record: Record, name: str, value: float | None) -> float | str | None:
    return value if value is not None else "failed" if problem(record, name) else None


def present(tuned: Mapping[str, Record], totals: Mapping[str, Mapping[str, Any]]) -> None:
    """All of it, on the console."""
    if tuned:
        show_table("Breadth: the tuned half", *row_table(tuned), CAPTION)
    show_table("Totals", *total_table(totals))
    lines = failures(tuned)
    if lines:
        report.console.print(f"{len(lines)} failures in the tuned half:")
    slowest = worst(tuned)
    for name in slowest:
        lines += causes(name, tuned[name])
    for line in lines:
        report.console.print(line, markup=False, highlight=False, soft_wrap=True)
