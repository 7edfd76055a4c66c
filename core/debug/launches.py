"""Kernels and operators as text: what each computes, and how many bytes it moves."""

from __future__ import annotations

from jitney import events

UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """``1.5 MB``: bytes for people, in powers of 1000."""
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {UNITS[-1]}"


def describe_launch(launch: events.Launch) -> str:
    """One line."""
    what = ", ".join(launch.operators) or "copies"
    moved = f"reads {size(launch.read)}, writes {size(launch.written)}"
    why = f" ({launch.reason})" if launch.reason else ""
    kind = "kernel" if launch.kind == "kernel" else "as a whole"
    where = f" from {', '.join(launch.places)}" if launch.places else ""
    return f"{launch.name.split(' ')[0]}. {kind}{why}: {what}; {moved}{where}"


def describe_counts(event: events.Scheduled) -> str:
    """``2 kernels of 7 operators, 1 operator as a whole``."""
    kernels = [launch for launch in event.launches if launch.kind == "kernel"]
    whole = len(event.launches) - len(kernels)
    fused = sum(len(launch.operators) for launch in kernels)
    return f"{len(kernels)} kernels of {fused} kinds of operators, {whole} operators as a whole"
