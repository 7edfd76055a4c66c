"""Results as lines of JSON, one file for each half: what was measured stays, whatever ends the run."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HALVES = ("tuned", "untouched")


class Journal:
    """The files ``NAME_tuned.jsonl`` and ``NAME_untouched.jsonl`` of a folder; for several threads.

    Args:
        folder: made if need be.
        name: of the run.
        resume: keep what is there, or begin with nothing.
    """

    def __init__(self, folder: Path, name: str, resume: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.files = {half: folder / f"{name}_{half}.jsonl" for half in HALVES}
        self._one = threading.Lock()
        self._resume = resume

    def begin(self, halves: tuple[str, ...]) -> None:
        """Forget these halves unless the run is resumed; a line cut short by a crash is dropped."""
        for half in halves:
            lines = [json.dumps(record) + "\n" for record in self.read(half).values()] if self._resume else []
            self.files[half].write_text("".join(lines))

    def add(self, half: str, record: Mapping[str, Any]) -> None:
        """Append what was found about a row: its ``row`` is the name."""
        with self._one, self.files[half].open("a") as file:
            file.write(json.dumps(record) + "\n")

    def read(self, half: str) -> dict[str, dict[str, Any]]:
        """By row; of several lines about one, the last."""
        found: dict[str, dict[str, Any]] = {}
        if not self.files[half].exists():
            return found
        for line in self.files[half].read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            found[record["row"]] = record
        return found
