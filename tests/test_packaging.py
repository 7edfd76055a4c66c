"""What pip installs is what the tree holds."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PLUGINS = sorted((ROOT / "plugins").glob("*/pyproject.toml"))


def packages(folder, name):
    """Import names of the folders with Python files, the folder itself as ``name``."""
    found = {path.parent.relative_to(folder) for path in folder.rglob("*.py")}
    return {".".join([name, *path.parts]) for path in found}


def test_every_package_of_core_is_listed():
    assert packages(ROOT / "core", "jitney") == set(PROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.parent.name)
def test_a_plugin_is_named_after_its_folder_and_lists_its_packages(path):
    plugin = tomllib.loads(path.read_text())
    name = path.parent.name
    assert plugin["project"]["name"] == f"jitney-{name.replace('_', '-')}"
    points = plugin["project"]["entry-points"]
    assert set(points) <= {"jitney.backends", "jitney.extensions"}
    assert all(list(group) == [name] and group[name].startswith(f"jitney_{name}") for group in points.values())
    listed = set(plugin["tool"]["setuptools"]["packages"])
    assert packages(path.parent / f"jitney_{name}", f"jitney_{name}") == listed
    assert plugin["project"]["requires-python"] == PROJECT["project"]["requires-python"]
    assert (path.parent / "README.md").is_file() and (path.parent / "tests").is_dir()


def test_constraints_are_within_what_is_declared():
    declared = {}
    for text in [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"]]:
        requirement = Requirement(text)
        declared[requirement.name] = requirement.specifier
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert {"torch", "transformers"} <= set(pins)
    for name in set(pins) & set(declared):
        assert pins[name] in declared[name], name


def test_the_eager_plugin_stays_an_example():
    source = (ROOT / "plugins/eager/jitney_eager/__init__.py").read_text()
    assert len(source.splitlines()) < 60
