"""Each distribution names all of its packages: what it does not name is in no wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("*/pyproject.toml")), *sorted(ROOT.glob("*/*/pyproject.toml"))]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda p: str(p.parent.relative_to(ROOT)))
def test_all_packages_are_named(project: Path) -> None:
    settings = tomllib.loads(project.read_text())["tool"]["setuptools"]
    named, folders = set(settings["packages"]), settings.get("package-dir", {})
    tops = {name.partition(".")[0] for name in named}
    found = set()
    for top in tops:
        folder = project.parent / folders.get(top, top)
        for module in folder.rglob("*.py"):
            parts = module.parent.relative_to(folder).parts
            if "__pycache__" not in parts:
                found.add(".".join((top, *parts)))
    assert found and found == named
