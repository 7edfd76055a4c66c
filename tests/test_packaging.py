"""What pip installs is what the tree holds."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import jitney
from jitney import events
from jitney.backends import Registry, registry
from jitney.errors import InvalidOption

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Released together: the core, what lies beside it, the plugins. Packages of contrib/ are as third parties make them.
RELEASED = [ROOT, *sorted(path.parent for glob in ("*", "plugins/*") for path in ROOT.glob(f"{glob}/pyproject.toml"))]
CONTRIB = sorted(path.parent for path in ROOT.glob("contrib/*/pyproject.toml"))
NAMES = {"jitney": "jitney"}  # import name -> distribution
NAMES |= {f"jitney_{folder.name}": f"jitney-{folder.name.replace('_', '-')}" for folder in RELEASED[1:]}


def each(folders):
    return pytest.mark.parametrize("folder", folders, ids=lambda folder: folder.relative_to(ROOT).as_posix())


def declared(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())


def package(folder):
    """Import name of a distribution, and where its modules are."""
    return ("jitney", ROOT / "core") if folder == ROOT else (name := f"jitney_{folder.name}", folder / name)


def requirements(project):
    """All that a distribution asks for, extras included."""
    extras = project.get("optional-dependencies", {}).values()
    return [Requirement(text) for text in [*project["dependencies"], *(text for extra in extras for text in extra)]]


def imported(place):
    """Top-level names of all that the modules of a package import, within functions too."""
    trees = [ast.parse(path.read_text()) for path in place.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def test_everything_is_released():
    assert {"jitney", "jitney_lowering", "jitney_tools", "jitney_testing", "jitney_eager"} <= set(NAMES)
    assert {declared(folder)["project"]["name"] for folder in RELEASED} == set(NAMES.values())
    assert "null" in {folder.name for folder in CONTRIB}


@each(RELEASED + CONTRIB)
def test_a_distribution_lists_its_packages_and_data(folder):
    """Whatever is no module, and is read at run time, too."""
    name, place = package(folder)
    settings = declared(folder)["tool"]["setuptools"]
    found = {path.parent.relative_to(place).parts for path in place.rglob("*.py")}
    assert {".".join([name, *parts]) for parts in found} == set(settings["packages"])
    files = {path for path in place.rglob("*") if path.is_file() and path.name != "README.md"}  # which are for readers
    data = {path for path in files if path.suffix not in (".py", ".pyc")}
    assert data == {path for pattern in settings["package-data"][name] for path in place.glob(pattern)}


@each(RELEASED + CONTRIB)
def test_a_distribution_is_described_like_the_core(folder):
    project, same = declared(folder)["project"], ("license", "license-files", "requires-python", "authors", "urls")
    assert {key: project[key] for key in same} == {key: PROJECT["project"][key] for key in same}
    assert project["classifiers"] == PROJECT["project"]["classifiers"]
    assert project["description"] and (folder / project["readme"]).is_file()
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@each(RELEASED)
def test_what_is_released_together_has_one_version(folder):
    project = declared(folder)["project"]
    assert project["version"] == PROJECT["project"]["version"]
    siblings = [requirement for requirement in requirements(project) if requirement.name in NAMES.values()]
    pins = {str(sibling.specifier) for sibling in siblings if sibling.name != project["name"]}
    assert pins <= {f"=={project['version']}"}
    if folder != ROOT:
        needed = {NAMES[name] for name in imported(package(folder)[1]) & set(NAMES)} - {project["name"]}
        assert needed <= {sibling.name for sibling in siblings}


@each(RELEASED + CONTRIB)
def test_all_packages_are_named(folder):
    """What a distribution does not name is in no wheel."""
    name, place = package(folder)
    parts = {module.parent.relative_to(place).parts for module in place.rglob("*.py")}
    found = {".".join((name, *inner)) for inner in parts if "__pycache__" not in inner}
    assert found == set(declared(folder)["tool"]["setuptools"]["packages"])


def test_the_core_imports_nothing_that_it_does_not_ask_for():
    asked = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert imported(ROOT / "core") - set(sys.stdlib_module_names) - set(NAMES) == asked


def test_the_extras_reach_everything():
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == {"cpu", "gpu", "numpy", "tools", "testing", "all", "docs", "dev"}
    (own,) = (requirement for text in extras["all"] if (requirement := Requirement(text)).name == "jitney")
    assert own.extras == {"cpu", "gpu", "numpy", "tools", "testing"}
    reached = [Requirement(text).name for extra in (*own.extras, "all") for text in extras[extra]]
    reached += [
        requirement.name for folder in RELEASED[1:] for requirement in requirements(declared(folder)["project"])
    ]
    assert set(NAMES.values()) <= set(reached)


def test_the_classifiers_name_the_pythons_that_are_required():
    required = SpecifierSet(PROJECT["project"]["requires-python"])
    versions = {f"3.{minor}" for minor in range(30) if f"3.{minor}" in required}
    said = {text.rpartition(" :: ")[2] for text in PROJECT["project"]["classifiers"] if "Python :: 3." in text}
    assert said == versions


@each([folder for folder in RELEASED + CONTRIB if folder.parent.name in ("plugins", "contrib")])
def test_a_plugin_is_named_after_its_folder(folder):
    plugin, name = declared(folder)["project"], folder.name
    assert plugin["name"] == f"jitney-{name.replace('_', '-')}"
    points = plugin["entry-points"]
    assert set(points) <= {"jitney.backends", "jitney.extensions", "torch_dynamo_backends"}
    own = {"torch_dynamo_backends": f"jitney_{name}"}  # torch's names are everybody's
    assert all(list(group) == [own.get(kind, name)] for kind, group in points.items())
    assert all(place.startswith(f"jitney_{name}") for group in points.values() for place in group.values())
    assert (folder / "tests").is_dir()


def test_constraints_are_within_what_is_declared():
    asked = {
        (name, requirement.name): requirement.specifier
        for name, project in ((folder.name, declared(folder)["project"]) for folder in RELEASED + CONTRIB)
        for requirement in requirements(project)
    }
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert {"torch", "transformers"} <= set(pins)
    for (folder, name), allowed in asked.items():
        assert pins.get(name) is None or pins[name] in allowed, (folder, name)


def test_the_eager_plugin_stays_an_example():
    source = (ROOT / "plugins/eager/jitney_eager/__init__.py").read_text()
    assert len(source.splitlines()) < 60


def readme_files():
    """The files of the README's backend: by name, each from the first line of its block."""
    section = (ROOT / "README.md").read_text().split("## Writing a backend")[1].split("\n## ")[0]
    blocks = re.findall(r"```\w+\n# (\S+)\n(.*?)```", section, re.DOTALL)
    return dict(blocks)


@pytest.fixture
def no_module_left():
    """The module of the README's backend leaves with the test: others see whether one of that name is there."""
    yield
    sys.modules.pop("jitney_mine", None)


def test_the_backend_of_the_readme_installs_and_runs(tmp_path, monkeypatch, no_module_left):
    files = readme_files()
    assert set(files) == {"pyproject.toml", "jitney_mine/__init__.py"}
    for name, text in files.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", tmp_path / "site", tmp_path / "source"]
    subprocess.run(command, check=True)
    registry.names()  # a process looks once: before this test's package is there
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
