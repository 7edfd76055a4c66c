"""Where compile time went: each phase's calls and seconds since the process started."""

from __future__ import annotations

from dataclasses import dataclass

from jitney import events


@dataclass
class PhaseTime:
    """What one phase cost so far; a phase inside another counts in both."""

    calls: int = 0
    seconds: float = 0.0


_times: dict[str, PhaseTime] = {}


def _collect(event: events.Event) -> None:
    if isinstance(event, events.Phase):
        entry = _times.setdefault(event.name, PhaseTime())
        entry.calls += 1
        entry.seconds += event.seconds


events.subscribe(_collect)


def compile_times() -> str:
    """A table of phases, the most expensive first: name, calls, seconds in all."""
    rows = sorted(_times.items(), key=lambda item: -item[1].seconds)
    if not rows:
        return "nothing was compiled yet"
    width = max(len("phase"), *(len(name) for name, _ in rows))
    lines = [f"{'phase':<{width}}  {'calls':>7}  {'seconds':>9}"]
    lines += [f"{name:<{width}}  {time.calls:>7}  {time.seconds:>9.4f}" for name, time in rows]
    return "\n".join(lines)


def reset_compile_times() -> None:
    """Forget the times collected so far."""
    _times.clear()
