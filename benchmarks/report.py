"""What the benchmarks share: front ends by name, medians and ratios, tables, JSON files, SVG bar charts."""

from __future__ import annotations

import importlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils._pytree import tree_leaves

RESULTS = Path(__file__).parent / "results"
FRONTENDS = ("dynamo", "jitney")
COLORS = {"eager": "#d5dbe1", "dynamo": "#9aa5b1", "torch": "#9aa5b1", "jitney": "#2f6fde"}
console = Console()

Compile = Callable[..., Callable[..., Any]]


def front_end(name: str) -> tuple[Compile, Callable[[], None]]:
    """The pair (compile, reset) of one front end; compile takes a callable or module, and ``backend=``."""
    if name == "dynamo":
        return torch.compile, torch._dynamo.reset
    if name == "jitney":
        jitney: Any = importlib.import_module("jitney")
        return jitney.compile, jitney.reset
    raise ValueError(f"unknown front end {name!r}: one of {', '.join(FRONTENDS)}")


def choice(value: str, allowed: Sequence[str]) -> list[str]:
    """An argparse value: a comma-separated choice of `allowed`."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    if unknown := [name for name in names if name not in allowed]:
        raise ValueError(f"unknown: {', '.join(unknown)}; one of {', '.join(allowed)}")
    return list(dict.fromkeys(names))


def same(expected: object, got: object) -> bool:
    """Do two results hold the same tensors, numbers and strings? Other objects in them are not looked at."""

    def leaves(value: object) -> list[object]:
        found = tree_leaves(dict(value) if isinstance(value, dict) else value)  # a transformers ModelOutput is a dict
        return [leaf for leaf in found if isinstance(leaf, (torch.Tensor, int, float, str))]

    def equal(a: object, b: object) -> bool:
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-4, atol=1e-5)
        return type(a) is type(b) and a == b

    left, right = leaves(expected), leaves(got)
    return len(left) == len(right) and all(map(equal, left, right))


def tensors(result: Any) -> list[torch.Tensor]:
    """The tensors in a result, each once."""
    found = tree_leaves(dict(result) if isinstance(result, dict) else result)
    return list({id(t): t for t in found if isinstance(t, torch.Tensor)}.values())


def ratio(values: Mapping[str, float | None]) -> float | None:
    """The figure of jitney over that of TorchDynamo, where both are known."""
    ours, theirs = values.get("jitney"), values.get("dynamo")
    return ours / theirs if ours is not None and theirs else None


def about() -> dict[str, Any]:
    """Where and when the figures were taken."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else str(value)


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> None:
    table = Table(title=title, caption=caption or None, title_justify="left", caption_justify="left")
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*map(show, row))
    console.print(table)


def save(folder: Path, name: str, data: Mapping[str, Any], svg: str) -> None:
    """Write NAME.json and NAME.svg into `folder`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in ((folder / f"{name}.json", json.dumps(data, indent=1) + "\n"), (folder / f"{name}.svg", svg)):
        draft = path.with_suffix(path.suffix + ".tmp")
        draft.write_text(text)
        draft.replace(path)
        console.print(f"wrote {path}")


def bar_chart(title: str, note: str, groups: Mapping[str, Mapping[str, float | None]]) -> str:
    """Horizontal bars, one group per case and one bar per front end, as the text of an SVG file."""
    left, wide, bar, gap = 150, 460, 15, 12
    largest = max((v for group in groups.values() for v in group.values() if v is not None), default=1.0) or 1.0
    parts, y = [], 62
    for name, group in groups.items():
        parts.append(text(left - 8, y + bar * len(group) / 2 + 4, name, 'text-anchor="end"'))
        for key, value in group.items():
            if value is not None:
                width = max(1.0, wide * value / largest)
                parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{bar - 2}" fill="{COLORS[key]}"/>')
            parts.append(text(left + (width + 5 if value is not None else 5), y + 11, show(value) or "no figure"))
            y += bar
        y += gap
    keys = list(dict.fromkeys(key for group in groups.values() for key in group))
    for i, key in enumerate(keys):
        parts.append(f'<rect x="{left + 90 * i}" y="42" width="11" height="11" fill="{COLORS[key]}"/>')
        parts.append(text(left + 90 * i + 16, 52, key))
    size = (left + wide + 70, y)
    head = [text(12, 20, title, 'font-size="15" font-weight="bold"'), text(12, 36, note, 'fill="#666"')]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
            f'viewBox="0 0 {size[0]} {size[1]}" font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            *head,
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, content: str, attributes: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" {attributes}>{escape(content)}</text>'
