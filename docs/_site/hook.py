"""mkdocs' hooks: they bring the pages of ``pages.py`` into the site; see mkdocs.yml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import pages

# The theme takes this from the net, for the search of pages that are opened as files; worker.js is in its place.
SHIM = "https://unpkg.com/iframe-worker/shim"
OWN = ("worker.js", "style.css")
# Pages that are a section each: no list of its pages at their left.
ALONE = ("index.md", "getting-started.md")

_known = pages.places()
_sources = pages.sources()


def on_config(config: Any) -> Any:
    """Sections of the navigation that mkdocs.yml only names get their pages."""
    config.nav = [_filled(item) for item in config.nav]
    return config


def _filled(item: dict[str, Any]) -> dict[str, Any]:
    return {title: pages.nav_of(below) if below in _sections() else below for title, below in item.items()}


def _sections() -> tuple[Any, ...]:
    return (*pages.PACKAGES, "reference")


def on_files(files: Any, config: Any) -> Any:
    """Add what is not below docs/: pages, and the charts that they show."""
    from mkdocs.structure.files import File

    texts = {place: (pages.ROOT / file).read_text(encoding="utf-8") for place, file in _sources.items()}
    for place, text in texts.items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=text))
        for path in pages.taken_along(text, _sources[place], _known):
            if files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(pages.ROOT / path)))
    for name in OWN:
        files.append(File.generated(config, name, abs_src_path=str(Path(__file__).with_name(name))))
    for place, text in pages.generated().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links of the repository become links of the site."""
    place = page.file.src_uri
    if place in ALONE:
        page.meta["hide"] = ["navigation"]
    file = _sources.get(place)
    return markdown if file is None else pages.of_site(markdown, place, file, _known)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The page asks the net for nothing."""
    return output.replace(SHIM, f"{'../' * page.url.count('/')}{OWN[0]}")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same for pages that are none of ours, such as 404.html."""
    return output_content.replace(SHIM, f"/{OWN[0]}")
