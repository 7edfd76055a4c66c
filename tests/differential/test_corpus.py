"""What once went wrong, on every installed backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from differential.backends import installed

from jitney_testing import Program, assert_same

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.py"))
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("backend", installed())
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_once_went_wrong(path: Path, backend: str) -> None:
    assert_same(Program.read(path), backends=[backend])


def test_there_is_a_corpus() -> None:
    assert CORPUS and all(path.read_text().startswith('"""') for path in CORPUS)
