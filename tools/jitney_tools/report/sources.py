"""The user's source with what became of each line beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jitney_tools.report.html import escape, short_path
from jitney_tools.report.run import Run

AROUND = 4  # lines shown around each that is marked


@dataclass
class Marks:
    """What became of the lines of one file."""

    captured: dict[int, set[int]] = field(default_factory=dict)  # line -> numbers of the frames
    breaks: dict[int, dict[str, int]] = field(default_factory=dict)  # line -> reason and advice -> how often
    eager: dict[int, set[str]] = field(default_factory=dict)  # line -> why
    again: dict[int, dict[str, int]] = field(default_factory=dict)  # line -> guard -> how often

    @property
    def lines(self) -> set[int]:
        """All that are marked."""
        return {*self.captured, *self.breaks, *self.eager, *self.again}


def marks_of(run: Run) -> dict[str, Marks]:
    """By file."""
    found: dict[str, Marks] = {file: Marks() for file in run.sources}
    for frame in run.frames.values():
        for place in frame.captured.get("lines", ()):
            file, _, line = place.rpartition(":")
            if file in found:
                found[file].captured.setdefault(int(line), set()).add(frame.number)
        _mark_break(run, frame.stop, found)
        if frame.cause is not None:
            _mark_cause(frame.cause["user_line"], frame.cause["guard"], found)
    for own in run.skipped:
        if own["filename"] in found:
            found[own["filename"]].eager.setdefault(own["line"], set()).add(f"{own['name']}: {own['reason']}")
    return found


def _mark_break(run: Run, stop: dict[str, object] | None, found: dict[str, Marks]) -> None:
    stack = stop["user_stack"] if stop is not None else []
    place = run.place(stack) if isinstance(stack, list) else None
    if stop is None or place is None:
        return
    advice = f"; try: {stop['hint']}" if stop["hint"] else ""
    reasons = found[place[0]].breaks.setdefault(place[1], {})
    text = f"{stop['reason']}{advice}"
    reasons[text] = reasons.get(text, 0) + 1


def _mark_cause(place: str, guard: str, found: dict[str, Marks]) -> None:
    file, _, line = place.rpartition(":")
    if file in found and line.isdigit():
        guards = found[file].again.setdefault(int(line), {})
        guards[guard] = guards.get(guard, 0) + 1


def sources(run: Run) -> str:
    """Every file that has a mark, those that nobody has installed first: the marked lines and some around them."""
    found = sorted(marks_of(run).items(), key=lambda item: ("site-packages" in item[0], item[0]))
    return "".join(_file(file, run.sources[file], marks) for file, marks in found if marks.lines)


def _file(file: str, text: str, marks: Marks) -> str:
    lines = text.splitlines()
    shown = sorted({n for line in marks.lines for n in range(line - AROUND, line + AROUND + 1) if 0 < n <= len(lines)})
    rows, last = [], 0
    for number in shown:
        if number > last + 1:
            rows.append(_skipped(number - last - 1))
        rows.append(_line(number, lines[number - 1], marks))
        last = number
    if last < len(lines):
        rows.append(_skipped(len(lines) - last))
    counts = f"{_lines(len(marks.captured))} captured, {len(marks.breaks) or 'none'} with breaks"
    installed = "site-packages" in file and not (marks.breaks or marks.eager)
    return (
        f"<details{'' if installed else ' open'}><summary>{short_path(file)} <small>{counts}</small></summary>"
        f'<div class="scroll"><table class="source">{"".join(rows)}</table></div></details>'
    )


def _skipped(count: int) -> str:
    return f'<tr class="skip"><td>⋯</td><td>{_lines(count)}</td></tr>'


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _line(number: int, text: str, marks: Marks) -> str:
    kind = "captured" if number in marks.captured else ""
    kind = "eager" if number in marks.eager else kind
    kind = "break" if number in marks.breaks else kind
    frames = marks.captured.get(number, set())
    told = f' title="captured in {_named(frames)}"' if frames else ""
    notes = [_note("graph break", *item) for item in marks.breaks.get(number, {}).items()]
    notes += [_note("left eager", reason, 1) for reason in sorted(marks.eager.get(number, ()))]
    notes += [_note("compiled again", *item) for item in marks.again.get(number, {}).items()]
    row = f'<tr class="{kind}"{told}><td>{number}</td><td><code>{escape(text) or " "}</code>{"".join(notes)}</td></tr>'
    return row


def _named(frames: Iterable[int]) -> str:
    listed = sorted(frames)
    return ", ".join(f"#{n}" for n in listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")


def _note(kind: str, text: str, count: int) -> str:
    times = f" <small>{count} times</small>" if count > 1 else ""
    return f'<div class="note {kind.split(" ")[-1]}"><b>{kind}</b> {escape(text)}{times}</div>'
