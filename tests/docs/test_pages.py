"""The examples of the documentation show what happens."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from console import BY_QUESTION, WHOLE, Step, run_page, sections, steps

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", WHOLE)
def test_the_examples_of_a_page_are_true(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    assert len(list(steps((DOCS / name).read_text()))) > 5
    assert "\n".join(run_page((DOCS / name).read_text(), tmp_path)) == ""


QUESTIONS = {title: text for name in BY_QUESTION for title, text in sections((DOCS / name).read_text()).items()}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda title: re.sub(r"\W+", "-", title.lower()).strip("-"))
def test_the_answer_to_a_question_is_true(question, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    assert "\n".join(run_page(QUESTIONS[question], tmp_path)) == ""


def test_an_example_that_is_not_true_is_caught(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "`one.py`:\n\n```python\nprint(1)\n```\n\n```console\n$ python one.py\n1\n$ python one.py\n2\n"
        "$ jitney explain one.py:f\n...has no function 'f'...\n$ echo $?\n1\n```\n"
    )
    assert list(steps(page.read_text()))[0] == Step(file="one.py", text="print(1)\n")
    assert run_page(page.read_text(), tmp_path) == ["$ python one.py\n--- shown\n2\n--- happens\n1\n"]


def test_a_program_that_prints_something_else_is_caught(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nprint(2)\n```\n\n```text\n3\n```\n"
    assert run_page(page, tmp_path) == ["$ python example.py\n--- shown\n3\n--- happens\n2\n"]
    assert sections("# a\n## b\nno block\n## c\n" + page) == {"c": "\n" + page}


@pytest.mark.parametrize(
    ("program", "command", "told"),
    [
        ("1 / 0", "python example.py", "exit status 1, not 0"),
        ("import sys; sys.exit(3)", "python example.py", "exit status 3, not 0"),
        ("x = 1", "jitney explain example.py:f", "exit status 1, not 0"),
        ("x = 1", "jitney explain", "exit status 2, not 0"),
    ],
)
def test_a_command_that_fails_is_caught_whatever_it_shows(program, command, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = f"`example.py`:\n\n```python\n{program}\n```\n\n```console\n$ {command}\n...\n```\n"
    assert told in "\n".join(run_page(page, tmp_path))


def test_an_error_that_does_not_come_is_caught(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "`one.py`:\n\n```python\nx = 1\n```\n\n```console\n$ python one.py\n$ echo $?\n1\n```\n"
    assert "exit status 0, not 1" in "\n".join(run_page(page, tmp_path))
