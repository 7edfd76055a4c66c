"""What pip installs is what the tree holds."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import jitney
from jitney import events
from jitney.backends import Registry
from jitney.errors import InvalidOption

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PLUGINS = sorted(path for folder in ("plugins", "contrib") for path in (ROOT / folder).glob("*/pyproject.toml"))


def packages(folder, name):
    """Import names of the folders with Python files, the folder itself as ``name``."""
    found = {path.parent.relative_to(folder) for path in folder.rglob("*.py")}
    return {".".join([name, *path.parts]) for path in found}


def test_data_files_of_core_are_listed():
    """Whatever is no module, and is read at run time."""
    core, listed = ROOT / "core", PROJECT["tool"]["setuptools"]["package-data"]["jitney"]
    found = {path for path in core.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert found == {path for pattern in listed for path in core.glob(pattern)}


def test_every_package_of_core_is_listed():
    assert packages(ROOT / "core", "jitney") == set(PROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.parent.name)
def test_a_plugin_is_named_after_its_folder_and_lists_its_packages(path):
    plugin = tomllib.loads(path.read_text())
    name = path.parent.name
    assert plugin["project"]["name"] == f"jitney-{name.replace('_', '-')}"
    points = plugin["project"]["entry-points"]
    assert set(points) <= {"jitney.backends", "jitney.extensions", "torch_dynamo_backends"}
    own = {"torch_dynamo_backends": f"jitney_{name}"}  # torch's names are everybody's
    assert all(list(group) == [own.get(kind, name)] for kind, group in points.items())
    assert all(place.startswith(f"jitney_{name}") for group in points.values() for place in group.values())
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


def readme_files():
    """The files of the README's backend: by name, each from the first line of its block."""
    section = (ROOT / "README.md").read_text().split("## Writing a backend")[1].split("\n## ")[0]
    blocks = re.findall(r"```\w+\n# (\S+)\n(.*?)```", section, re.DOTALL)
    return dict(blocks)


def test_the_backend_of_the_readme_installs_and_runs(tmp_path, monkeypatch):
    files = readme_files()
    assert set(files) == {"pyproject.toml", "jitney_mine/__init__.py"}
    for name, text in files.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", tmp_path / "site", tmp_path / "source"]
    subprocess.run(command, check=True)
    monkeypatch.syspath_prepend(tmp_path / "site")
    fresh = Registry()
    monkeypatch.setattr(importlib.import_module("jitney.backends.resolve"), "registry", fresh)
    (row,) = (row for row in fresh.listings(load=True) if row.name == "mine")
    assert (row.package, row.version, row.status, row.error) == ("jitney-mine", "0.1.0", "loaded", "")
    seen = []
    with events.listen(seen.append):
        run = jitney.compile(lambda x: x.sin() + 1, backend="mine", options={"threads": 4})
        assert torch.equal(run(torch.ones(3)), torch.ones(3).sin() + 1)
    assert any(isinstance(event, events.Artefact) and "sin" in event.text for event in seen)
    with pytest.raises(InvalidOption, match="threads: int = 1"):
        jitney.compile(torch.sin, backend="mine", options={"thread": 4})
    monkeypatch.delitem(sys.modules, "jitney_mine")
