"""Tables as plain lines: nothing is cut, however narrow the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines with columns beside each other. Those whose title begins with ``#`` are numbers, to the right."""
    titles = [title.removeprefix("#") for title in head]
    cells = [titles, *rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(head))]
    lines = []
    for row in cells:
        parts = (
            cell.rjust(width) if title.startswith("#") else cell.ljust(width)
            for cell, width, title in zip(row, widths, head, strict=True)
        )
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
