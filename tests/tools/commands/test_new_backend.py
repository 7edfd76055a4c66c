"""``jitney new-backend``: what it writes works as it is."""

import importlib
import os
import subprocess
import sys
import tomllib

import pytest
import torch

from jitney.backends import registry
from jitney.cli import main
from jitney.errors import JitneyError
from jitney_testing import run_conformance
from jitney_tools.commands import new_backend


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package of a backend ``made_here``, on the path with the metadata that pip would write."""
    assert main(["new-backend", "made_here", "--dir", str(tmp_path)]) == 0
    folder = tmp_path / "jitney-made-here"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / "jitney_made_here-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [[f"[{group}]", *(f"{n} = {p}" for n, p in own.items())] for group, own in project["entry-points"].items()]
    (info / "entry_points.txt").write_text("\n".join(line for lines in points for line in lines))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(registry, "_points", {})  # read the metadata once more
    yield folder
    registry._loaded.pop("made_here", None)
    for name in [name for name in sys.modules if name.startswith("jitney_made_here")]:
        del sys.modules[name]


def test_the_package_is_a_backend_that_passes_its_own_tests_and_the_suite(package, capsys):
    assert main(["backends"]) == 0
    assert "jitney-made-here" in capsys.readouterr().out
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", str(package), "-c", "pyproject.toml"]
    before = os.getcwd()
    os.chdir(package)
    try:
        assert pytest.main([*quiet, "tests/test_backend.py"]) == 0
    finally:
        os.chdir(before)
    report = run_conformance("made_here", only="contract|numbers.dtypes")
    assert report.tried > 15 and not report.findings, report.findings
    with pytest.raises(JitneyError, match="an installed backend has it"):
        new_backend.write("made_here", package.parent / "again")
    point = tomllib.loads((package / "pyproject.toml").read_text())["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, name = point["jitney_made_here"].partition(":")
    compiled = getattr(importlib.import_module(module), name)
    assert compiled.__name__ == "jitney_made_here"


@pytest.mark.parametrize("name", ["a", "x" * 20 + "_" + "y" * 19])
def test_the_package_is_clean_whatever_its_name(name, tmp_path):
    folder = new_backend.write(name, tmp_path)
    for arguments in (["check"], ["format", "--check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *arguments, "--no-cache", folder], capture_output=True)
        assert done.returncode == 0, done.stdout.decode()
    assert "@@" not in "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_every_template_is_written_and_none_is_left_out():
    found = {path.name.removesuffix(".tmpl") for path in new_backend.TEMPLATES.iterdir()}
    assert found == set(new_backend.FILES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MyBackend", "did you mean 'my_backend'?"),
        ("my-backend", "did you mean 'my_backend'?"),
        ("2fast", "did you mean 'fast'?"),
        ("my__backend_", "did you mean 'my_backend'?"),
        ("class", "did you mean 'class_backend'?"),
        ("x" * 41, f"did you mean '{'x' * 40}'?"),
        ("é", "a letter first, at most 40"),
        ("../away", "did you mean 'away'?"),
        ("", "'' cannot be the name of a new backend"),
        ("auto", "in order of preference"),
        ("eager", "an installed backend has it"),
        ("ddp_bucketing", "a package of this project has it"),
    ],
)
def test_a_name_that_cannot_be_had_is_refused_with_one_near_it(name, message, tmp_path, capsys):
    assert main(["new-backend", "--dir", str(tmp_path), "--", name]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_name_whose_module_somebody_has_is_refused(tmp_path, monkeypatch):
    (tmp_path / "jitney_taken.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(JitneyError, match="an installed package has a module jitney_taken"):
        new_backend.write("taken", tmp_path / "new")


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_exists_is_not_written_over(kind, tmp_path, capsys):
    place = tmp_path / "jitney-mine"
    if kind == "folder":
        place.mkdir()
        (place / "precious").write_text("mine")
    elif kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "nowhere")
    assert main(["new-backend", "mine", "--dir", str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["jitney-mine"]
    assert kind != "folder" or (place / "precious").read_text() == "mine"


def test_it_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def stopped(text, name):
        raise KeyboardInterrupt

    monkeypatch.setattr(new_backend, "filled", stopped)
    with pytest.raises(KeyboardInterrupt):
        new_backend.write("mine", tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    with pytest.raises(JitneyError, match="cannot be written: Not a directory|cannot be written: File exists"):
        new_backend.write("mine", tmp_path / "file")


def test_a_boxed_call_lets_go_of_its_inputs(package):
    compiler = importlib.import_module("jitney_made_here.compiler")
    program = compiler.Program((compiler.Step(torch.add, (compiler.Slot(0), 1), {}, 1, (0, 1)),), {}, [None, 3])
    inputs = [torch.ones(2)]
    assert program.boxed(inputs) == [None, 3] and inputs == []
