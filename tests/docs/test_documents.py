"""Every example of the documentation runs and prints what is shown."""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitney.debug import reset_compile_times, set_logs

sys.path.insert(0, str(Path(__file__).parent))
from documents import Section, commands, same, sections  # noqa: E402

PAGES = ("faq.md",)
EXAMPLES = [(page, section) for page in PAGES for section in sections(page)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; what a section turns on is turned off after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JITNEY_VERIFY", "0")
    linecache.checkcache()
    reset_compile_times()
    yield tmp_path
    set_logs()


@pytest.mark.parametrize(("page", "section"), EXAMPLES, ids=[f"{page}-{section.name}" for page, section in EXAMPLES])
def test_the_examples_of_a_section(page: str, section: Section, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what users see once is no error of the page
        section.run(folder)


def test_other_output_is_a_failure() -> None:
    same("1 \n 2\n", "1 2\n")
    same("a long line\n", "a ... line\n")
    with pytest.raises(AssertionError):
        same("1\n", "2\n")


def test_an_example_that_prints_something_else_fails(folder: Path) -> None:
    wrong = Section("wrong", (("python", "print(1)\n"), ("text", "2\n")))
    with pytest.raises(AssertionError):
        wrong.run(folder)
    with pytest.raises(AssertionError, match="without a program"):
        Section("alone", (("text", "2\n"),)).run(folder)


def test_commands_have_their_output() -> None:
    assert list(commands("$ jitney a\nx\ny\n$ python b\n")) == [("jitney a", "x\ny\n"), ("python b", "")]
