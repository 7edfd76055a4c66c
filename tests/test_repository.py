"""What the repository says to people and to services that run it: workflows, issue forms, and pages about itself."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
WORKFLOWS = {path.stem: path for path in (ROOT / ".github/workflows").glob("*.yml")}
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def load(path):
    return yaml.safe_load((ROOT / path).read_text())


def jobs(name):
    """The jobs of a workflow, and all that its steps run."""
    found = load(WORKFLOWS[name])["jobs"]
    return found, [step["run"] for job in found.values() for step in job["steps"] if "run" in step]


def test_continuous_integration_runs_every_python_that_is_supported():
    found, commands = jobs("ci")
    required = SpecifierSet(PROJECT["requires-python"])
    assert found["test"]["strategy"]["matrix"]["python"] == [f"3.{n}" for n in range(30) if f"3.{n}" in required]
    assert ".ci/run" in commands
    begins = load(WORKFLOWS["ci"])[True]  # YAML 1.1 takes the key "on" for a truth value
    assert "pull_request" in begins and begins["push"] == {"branches": ["main"]}


def test_fuzzing_begins_by_itself_and_keeps_what_it_finds():
    found, commands = jobs("fuzz")
    assert commands == ["make fuzz MINUTES=60"]
    assert load(WORKFLOWS["fuzz"])[True]["schedule"]
    (upload,) = (step for step in found["fuzz"]["steps"] if "upload-artifact" in step.get("uses", ""))
    assert upload["if"] == "always()" and upload["with"]["path"] == "build/fuzz"


def test_a_release_tries_the_wheels_and_publishes_without_a_token():
    found, commands = jobs("release")
    assert "make wheels" in commands and any("tests/test_wheels.py" in command for command in commands)
    assert found["publish"]["needs"] == "build" and found["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in WORKFLOWS["release"].read_text()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_only_read_and_ends(name):
    assert load(WORKFLOWS[name])["permissions"] == {"contents": "read"}
    found, commands = jobs(name)
    assert all("timeout-minutes" in job for job in found.values() if any("run" in step for step in job["steps"]))
    targets = {word for command in commands for word in re.findall(r"\bmake (\S+)", command)}
    assert targets <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_what_is_needed(path):
    form = load(path)
    assert {"name", "description", "body"} <= set(form) and len(FORMS) == 4
    identifiers = [part["id"] for part in form["body"]]
    assert len(set(identifiers)) == len(identifiers)
    assert any(part.get("validations", {}).get("required") for part in form["body"])
    said = set(re.findall(r"`jitney ([\w-]+)", path.read_text()))
    assert said <= {"backends", "bisect", "conformance", "doctor", "explain", "minify"}


def test_other_files_for_services_can_be_read():
    hooks = load(".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "lint"]
    assert load(".github/dependabot.yml")["updates"][0]["package-ecosystem"] == "github-actions"
    assert load(".github/ISSUE_TEMPLATE/config.yml")["contact_links"]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_files_that_a_page_names_are_there(page):
    named = re.findall(r"`([\w./-]+/[\w./-]*)`", (ROOT / page).read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_no_page_has_both_sides_of_a_merge():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(pages) > 10
    assert [page.name for page in pages if re.search(r"^(<{7}|>{7}) ", page.read_text(), re.M)] == []


def test_the_changelog_has_a_section_for_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## \[(.+?)\]", text, re.M)
    assert sections[0] == "Unreleased" and PROJECT["version"] in sections
    assert all(f"[{section}]: {PROJECT['urls']['Repository']}/" in text for section in sections)


def test_quick_tests_are_there():
    words = re.search(r"^QUICK := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.M)[1].replace("\\", "").split()
    assert len(words) > 10 and all((ROOT / word).exists() for word in words)
