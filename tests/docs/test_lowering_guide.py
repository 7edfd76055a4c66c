"""What docs/lowering-guide.md shows is what the toolkit prints, and what stands in the backend that it follows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

import jitney
from jitney import events

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lowering-guide.md").read_text(encoding="utf-8")


def blocks(*languages: str) -> list[str]:
    """The blocks of these languages."""
    return [text for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S) if language in languages]


@pytest.fixture(scope="module")
def shown() -> str:
    """All that the backend saves for the page's example."""
    (example,) = [text for text in blocks("") if text.startswith("lambda")]
    texts: list[str] = []
    listening = events.listen(lambda e: texts.append(e.text) if isinstance(e, events.Artefact) else None)
    with events.details(), listening:
        jitney.compile(eval(example, {"torch": torch}), backend="c_loops")(torch.ones(3, 4))
    return "\n".join(texts)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("block", blocks("text", "c"), ids=lambda text: text.splitlines()[0])
def test_the_texts_are_those_of_the_example(block: str, shown: str) -> None:
    assert block in shown


@pytest.mark.parametrize("block", blocks("py"), ids=lambda text: text.splitlines()[0])
def test_quotations_stand_in_the_backend(block: str) -> None:
    assert any(block in path.read_text(encoding="utf-8") for path in (ROOT / "contrib/c_loops").rglob("*.py"))


def test_there_is_something_to_check() -> None:
    assert len(blocks("text")) >= 3 and len(blocks("c")) >= 1 and len(blocks("py")) >= 6
