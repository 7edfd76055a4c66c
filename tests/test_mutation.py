"""The driver of mutation testing itself; ``make mutants`` runs it."""

from __future__ import annotations

import ast
from pathlib import Path

import mutation
import pytest


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a < b", "a <= b"),
        ("a is not None", "a is None"),
        ("a and b", "a or b"),
        ("not a", "a"),
        ("a + 1", "a - 1"),
        ("3", "4"),
        ("True", "False"),
        ("min(a, b)", "max(a, b)"),
        ("a < b < c", None),
        ("'text' + b", None),
    ],
)
def test_a_mutant_is_a_little_wrong(right: str, wrong: str | None) -> None:
    node = ast.parse(right, mode="eval").body
    found = mutation.mutated(node)
    assert (None if found is None else ast.unparse(found)) == wrong
    assert ast.unparse(node) == right


def test_places_are_those_of_code_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    path = tmp_path / "sample.py"
    path.write_text("def f(x: list[1], y=2) -> 3:\n    return f'{x + 4}' if x else y > 5\n")
    found = mutation.sites(path)
    assert sorted(str(site) for site in found) == [
        "sample.py:1: 2 -> 3",
        "sample.py:2: 5 -> 6",
        "sample.py:2: y > 5 -> y >= 5",
    ]
    (comparison,) = (site for site in found if ">" in site.was)
    space: dict[str, object] = {}
    exec(mutation.rewritten("sample.py", {comparison.number: lambda node: mutation.mutated(node) or node}), space)
    assert space["f"]([], 5) is True  # type: ignore[operator]
