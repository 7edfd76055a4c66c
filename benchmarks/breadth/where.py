"""Where the time of jitney's step goes: its most expensive kernels, and operators that run as a whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .job import Job

CALLS = 5
TOP = 8
OPERATORS = 12


def where_time_goes(
    job: Job, bare: Callable[[], Any], alone: Callable[[], AbstractContextManager[None]]
) -> dict[str, Any]:
    """Compile once more, with a clock around each kernel; JSON's kinds of values.

    Milliseconds of a step, shares of its ``parts``, of its ``top`` kernels, and of operators that run as a ``whole``.

    Args:
        job: the row with data of its own.
        bare: a step as it is, compiled already.
        alone: a block in which nobody else measures.
    """
    import jitney
    from jitney import events
    from jitney.torch_compat import markers
    from jitney_tools.call_profile import bytes_told, measure

    moved: dict[tuple[int, str, str], int] = {}
    launches: dict[tuple[int, str, str], events.Launch] = {}

    def collect(event: Any) -> None:
        if isinstance(event, events.Scheduled):
            for launch in event.launches:
                launches[events.subject(), event.kind, launch.name] = launch

    with events.listen(bytes_told(moved)), events.listen(collect), events.details():
        compiled = jitney.compile(job.target)
        with markers.collecting():  # or its code gets no clocks
            job.outcome(compiled)
        with alone():
            profile = measure(bare, lambda: job.step(compiled), CALLS, moved)
    whole = sum(profile.parts.values()) or 1.0
    top = []
    for row in profile.rows[:TOP]:
        launch = launches.get((row.number, row.graph, row.name))
        top.append(
            {
                "name": row.name,
                "kind": row.kind,
                "graph": row.graph,
                "ms": 1e3 * row.seconds * row.runs,
                "share": row.seconds * row.runs / whole,
                "gb_s": row.bandwidth / 1e9,
                "operators": list(launch.operators[:OPERATORS]) if launch else [],
                "places": list(launch.places[:3]) if launch else [],
                "reason": launch.reason if launch else "",
            }
        )
    sums: dict[str, float] = {}
    for row in profile.rows:
        launch = launches.get((row.number, row.graph, row.name))
        if row.kind == "extern" and launch:
            name = ", ".join(launch.operators)
            sums[name] = sums.get(name, 0.0) + row.seconds * row.runs / whole
    parts = {name: seconds / whole for name, seconds in profile.parts.items()}
    return {"ms": 1e3 * profile.seconds, "marked_ms": 1e3 * profile.marked, "parts": parts, "top": top, "whole": sums}
