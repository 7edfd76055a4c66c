"""The pages of the documentation find each other: in the repository, and in the site that `make docs` makes of them."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / f"docs/_site/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = load("pages")


def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def wrong_links(file: str, text: str) -> list[str]:
    """The links of a page to files, folders or headings that are not there."""
    wrong = []
    for link in filter(pages.is_internal, pages.links(text)):
        found, anchor = ROOT / pages.target(file, link), link.partition("#")[2]
        if not found.exists() or (anchor and anchor not in pages.anchors(found.read_text(encoding="utf-8"))):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("file", pages.sources().values())
def test_the_links_of_a_page_lead_somewhere(file):
    assert wrong_links(file, text_of(file)) == []


def test_a_link_that_leads_nowhere_is_found():
    text = "# One two\n[a](#one-two) [b](#two) [c](docs/hooks.md#hooks-reference) [d](docs/hooks.md#no) [e](no.md)\n"
    text += "[f](https://example.org/no.md) `[g](no.md)`\n```text\n[h](no.md)\n```\n![i](docs/report.png) [j](plugins)"
    assert wrong_links("README.md", text.replace("#one-two", "README.md#two-commands")) == [
        "#two",
        "docs/hooks.md#no",
        "no.md",
    ]


def test_anchors_are_githubs():
    text = "# `a.b`: what, *now*?\n## Same\n## Same\n```\n# no\n```\n### A [link](x.md) - here\n"
    assert pages.anchors(text) == {"ab-what-now", "same", "same-1", "a-link---here"}


def nav() -> list[str]:
    """What the navigation of mkdocs.yml has: pages, and sections that the hook fills."""
    section = text_of("mkdocs.yml").split("\nnav:\n")[1].split("\n\n")[0]
    return re.findall(r": (\S+)$", section, re.M)


def test_the_navigation_has_every_page():
    listed = nav()
    for section in ("inside", "plugins", "contrib", "reference"):
        assert section in listed
        listed.remove(section)
        listed += pages.nav_of(section)
    assert sorted(listed) == sorted({*pages.sources(), *pages.generated()})


def test_every_package_and_page_is_in_the_site():
    sources = pages.sources()
    assert sources["plugins/eager.md"] == "plugins/eager/README.md"
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(sources)
    for folder in ("plugins", "contrib"):
        for project in ROOT.glob(f"{folder}/*/pyproject.toml"):
            assert f"{folder}/{project.parent.name}.md" in sources


def test_links_between_pages_hold_in_the_site():
    known = pages.places()
    text = (
        "[a](../../README.md#names) [b](../../docs/limits.md) ![c](../../docs/report.png) [d](../eager) [e](#own) "
        "[f](../../contrib) [g](../../benchmarks/results/speed_cpu.svg) `[h](../eager)` [i](https://example.org)"
    )
    assert pages.relinked(text, "plugins/null.md", "plugins/null/README.md", known) == (
        "[a](../index.md#names) [b](../limits.md) ![c](../report.png) [d](eager.md) [e](#own) "
        "[f](../contrib/index.md) [g](../benchmarks/results/speed_cpu.svg) `[h](../eager)` [i](https://example.org)"
    )
    assert list(pages.taken_along(text, "plugins/null/README.md", known)) == ["benchmarks/results/speed_cpu.svg"]


def test_code_in_tables_is_shown_as_it_is():
    text = "a `\\|` b\n| `int \\| None` | a \\| b |\n"
    assert pages.of_site(text, "index.md", "README.md", {}) == "a `\\|` b\n| `int | None` | a \\| b |\n"


@pytest.mark.parametrize("module", pages.MODULES)
def test_the_reference_has_every_public_name(module):
    page, found = pages.generated()[f"reference/{module}.md"], importlib.import_module(module)
    for name in getattr(found, "__all__", ()):
        if f"{module}.{name}" not in pages.MODULES:
            there, own = pages.origin(module, name)
            assert f"::: {there}.{own}\n" in page
            assert getattr(importlib.import_module(there), own) is getattr(found, name)


def test_the_reference_has_every_setting():
    from dataclasses import fields

    from jitney.config import Config

    page = pages.generated()["reference/jitney.config.md"]
    for field in fields(Config):
        assert f"| `{field.name}` |" in page and str(field.metadata["doc"]) in page
