"""Failures that are known, in one file, each with its reason."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from jitney.errors import InvalidOption
from jitney_testing.opinfo.case import Outcome

# What fails with every backend that takes ATen graphs, since the core decides it.
EVERYWHERE = Path(__file__).with_name("known_cases.toml")
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Known:
    """One entry of the file. Every pattern is a regular expression.

    Args:
        op: for the operator's whole name.
        reason: why it fails, and why that stays so.
        dtype: for the dtype's whole name.
        variant: for the variant's whole name.
        failure: to be found in ``stage kind: detail``.
    """

    op: str
    reason: str
    dtype: str = ".*"
    variant: str = ".*"
    failure: str = ""

    def covers(self, outcome: Outcome) -> bool:
        """Is this the case, and the way in which it fails?"""
        case, failure = outcome.case, outcome.failure
        if failure is None or not self._about(case.op, case.dtype, case.variant):
            return False
        return re.search(self.failure, f"{failure.stage} {failure.kind}: {failure.detail}") is not None

    def tried(self, outcomes: Iterable[Outcome]) -> bool:
        """Is one of its cases among these?"""
        return any(self._about(o.case.op, o.case.dtype, o.case.variant) for o in outcomes)

    def _about(self, *names: str) -> bool:
        patterns = (self.op, self.dtype, self.variant)
        return all(re.fullmatch(pattern, name) for pattern, name in zip(patterns, names, strict=True))


def read_known(path: Path) -> list[Known]:
    """The entries of a TOML file with an array of tables ``known``.

    Raises:
        InvalidOption: as for ``read_entries``.
    """
    return read_entries(path, Known)


def read_entries(path: Path, kind: type[Entry]) -> list[Entry]:
    """The tables of the array ``known`` of a TOML file, each a dataclass whose fields are text.

    Raises:
        InvalidOption: an entry lacks a field without a default, has a key that means nothing, or a value that is no
            text.
    """
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("known", [])
    needed = {f.name for f in fields(kind) if f.default is MISSING}  # type: ignore[arg-type]
    for entry in entries:
        unknown = set(entry) - {f.name for f in fields(kind)}  # type: ignore[arg-type]
        if unknown or needed - set(entry) or not all(isinstance(value, str) and value for value in entry.values()):
            wanted = " and ".join(sorted(needed))
            raise InvalidOption(f"{path.name}: an entry with {wanted}, all text, was expected: {entry}")
    return [kind(**entry) for entry in entries]


def unexpected(outcomes: Iterable[Outcome], known: Iterable[Known]) -> list[Outcome]:
    """The failures that no entry covers."""
    entries = list(known)
    return [o for o in outcomes if o.failure is not None and not any(entry.covers(o) for entry in entries)]


def stale(outcomes: Iterable[Outcome], known: Iterable[Known]) -> list[Known]:
    """The entries whose cases were tried and none of which failed so: expected failures that pass."""
    tried = list(outcomes)
    return [entry for entry in known if entry.tried(tried) and not any(map(entry.covers, tried))]
