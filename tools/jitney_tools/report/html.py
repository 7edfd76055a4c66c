"""Pieces of HTML, and what is only looked at when somebody opens it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["Later", "escape", "short_path", "table", "text_block"]


class Later:
    """Parts of the page that the browser builds when they are opened. Equal ones are kept once."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def details(self, summary: str, body: str, *, kind: str = "", find: str = "") -> str:
        """A closed part; ``find`` is the text by which the page's search finds it."""
        key = "d" + hashlib.sha256(body.encode()).hexdigest()[:16]
        self.texts[key] = body
        words = f' data-find="{escape(find.lower())}"' if find else ""
        name = f' class="{kind}"' if kind else ""
        return (
            f'<details{name} data-later="{key}"{words}><summary>{summary}</summary><div class="body"></div></details>'
        )

    def scripts(self) -> str:
        """All of them as data, for the end of the page."""
        return "".join(
            f'<script type="application/json" id="{key}">{_inert(text)}</script>\n' for key, text in self.texts.items()
        )


def _inert(text: str) -> str:
    """JSON that cannot end its script element."""
    return json.dumps(text).replace("<", "\\u003c")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "") -> str:
    """A table; cells are HTML. A column whose title begins with ``#`` has numbers."""
    right = [title.startswith("#") for title in head]
    titles = "".join(f"<th{_class(r)}>{escape(t.lstrip('#'))}</th>" for t, r in zip(head, right, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{_class(r)}>{cell}</td>' for cell, r in zip(row, right, strict=True))}</tr>" for row in rows
    )
    name = f' class="{kind}"' if kind else ""
    return f'<div class="scroll"><table{name}><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _class(right: bool) -> str:
    return ' class="n"' if right else ""


def text_block(text: str) -> str:
    """Code."""
    return f'<pre class="code">{escape(text.rstrip())}</pre>'


def short_path(path: str) -> str:
    """The last two parts of a path, the whole of it for who points at it."""
    parts = path.replace("\\", "/").split("/")
    return f'<span title="{escape(path)}">{escape("/".join(parts[-2:]))}</span>'
