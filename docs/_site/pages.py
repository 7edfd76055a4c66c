"""What the site is made of beside docs/: pages from elsewhere in the repository, and how links between them go.

A page is named by its place in the site (``plugins/eager.md``) and by its file in the repository
(``plugins/eager/README.md``). Links are written for readers of the repository; ``relinked`` makes them links of the
site.
"""

from __future__ import annotations

import ast
import functools
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = "docs"

# The site's pages that are files outside of docs/; the packages' READMEs come along by themselves.
OUTSIDE = {
    "index.md": "README.md",
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/README.md",
}
# Sections of packages, each with a page that lists them: title, and what is said there.
PACKAGES = {
    "inside": ("Rooms", "The folders of the core, and the distributions that are released with it: what is where."),
    "plugins": (
        "Plugins",
        "What this project publishes beside the core. All come in by entry points, as anybody's would.",
    ),
    "contrib": ("Contributed", "Packages as third parties would ship them, each chosen by name only."),
}
# Where the READMEs of a section's packages are.
READMES = {
    "inside": ("core/*/README.md", "lowering/README.md", "numpy/README.md", "tools/README.md", "testing/README.md"),
    "plugins": ("plugins/*/README.md",),
    "contrib": ("contrib/*/README.md",),
}
# Modules whose public names are documented from their docstrings, and what is said above.
MODULES = {
    "jitney": "",
    "jitney.config": "",
    "jitney.errors": "",
    "jitney.events": "",
    "jitney.backends": "How they go together: [the guide](../backend-authors.md). What each is: [hooks](../hooks.md).",
    "jitney_lowering": "How it is used: [the guide to kernel backends](../lowering-guide.md).",
    "jitney_lowering.index": "",
    "jitney_lowering.ir": "",
    "jitney_lowering.ir.index_width": "",
    "jitney_lowering.philox": "",
    "jitney_testing": "[The conformance suite](../conformance.md) is made of it.",
}

ROOT_HEADING = ("    options:", "      show_root_heading: true", "      show_root_full_path: false")
CODE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)\s*$|`[^`\n]+`", re.M | re.S)
LINK = re.compile(r"(\]\()([^()\s]+)(\))")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.M)


def sources() -> dict[str, str]:
    """Every page that is a file of the repository: place in the site -> file."""
    own = {path.relative_to(ROOT / DOCS).as_posix() for path in (ROOT / DOCS).glob("*.md")}
    found = {name: f"{DOCS}/{name}" for name in sorted(own)}
    for section, patterns in READMES.items():
        for readme in (path for pattern in patterns for path in sorted(ROOT.glob(pattern))):
            found[f"{section}/{readme.parent.name}.md"] = readme.relative_to(ROOT).as_posix()
    return found | OUTSIDE


def places() -> dict[str, str]:
    """Where a file or folder of the repository is in the site."""
    found = {file: place for place, file in sources().items()}
    found |= {posixpath.dirname(file): place for file, place in found.items() if file.endswith("/README.md")}
    return found | {folder: f"{folder}/index.md" for folder in PACKAGES}


def links(text: str) -> Iterator[str]:
    """The targets of all links and images of a page, those in code left out."""
    code = [match.span() for match in CODE.finditer(text)]
    for match in LINK.finditer(text):
        if not any(begin <= match.start() < end for begin, end in code):
            yield match[2]


def target(file: str, link: str) -> str:
    """The file or folder of the repository that a link on the page ``file`` is about, without the anchor."""
    path = link.partition("#")[0]
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), path)) if path else file


def is_internal(link: str) -> bool:
    """Does the link stay in the repository?"""
    return not re.match(r"[a-z]+:", link)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    bare = CODE.sub(lambda match: "" if match[0].startswith(("```", "~~~")) else match[0], text)
    found: set[str] = set()
    for title in HEADING.findall(bare):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-")
        number = next(n for n in range(len(found) + 1) if (f"{slug}-{n}" if n else slug) not in found)
        found.add(f"{slug}-{number}" if number else slug)
    return found


def unescaped(text: str) -> str:
    """Code in tables without the backslashes before ``|``: GitHub wants them there, the site would show them."""
    row = re.compile(r"^\|.*$", re.M)
    return row.sub(lambda found: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), found[0]), text)


def relinked(text: str, place: str, file: str, known: Mapping[str, str]) -> str:
    """The text of a page with links that hold in the site.

    Args:
        text: as it is in the repository.
        place: of the page, in the site.
        file: of the page, in the repository.
        known: from ``places``; what is not there is taken along under its own path.
    """
    code = [match.span() for match in CODE.finditer(text)]

    def replace(match: re.Match[str]) -> str:
        link = match[2]
        if not is_internal(link) or link.startswith("#") or any(b <= match.start() < e for b, e in code):
            return match[0]
        path, hash_, anchor = link.partition("#")
        found = target(file, path)
        there = known.get(found) or found.removeprefix(f"{DOCS}/")
        return f"{match[1]}{posixpath.relpath(there, posixpath.dirname(place) or '.')}{hash_}{anchor}{match[3]}"

    return LINK.sub(replace, text)


def of_site(text: str, place: str, file: str, known: Mapping[str, str]) -> str:
    """A page as the site has it; arguments as of ``relinked``."""
    return unescaped(relinked(text, place, file, known))


def taken_along(text: str, file: str, known: Mapping[str, str]) -> Iterator[str]:
    """The files outside of docs/ that a page shows or links to and that are no pages, such as charts."""
    for link in links(text):
        found = target(file, link)
        if is_internal(link) and found not in known and not found.startswith(f"{DOCS}/") and (ROOT / found).is_file():
            yield found


# ------------------------------------------------------------------ pages that are made


def generated() -> dict[str, str]:
    """The pages that are no files of the repository: place in the site -> text."""
    found = {f"{folder}/index.md": _packages(folder, *said) for folder, said in PACKAGES.items()}
    for module, said in MODULES.items():
        found[f"reference/{module}.md"] = (_settings if module == "jitney.config" else _module)(module, said)
    return found


def nav_of(section: str) -> list[str]:
    """The pages of a section that mkdocs.yml only names."""
    if section == "reference":
        return [f"reference/{module}.md" for module in MODULES]
    return [f"{section}/index.md", *(place for place in sources() if place.startswith(f"{section}/"))]


def _packages(folder: str, title: str, said: str) -> str:
    rows = []
    for place, file in sources().items():
        if place.startswith(f"{folder}/"):
            name, first = _beginning((ROOT / file).read_text(encoding="utf-8"))
            rows.append(f"| [{name}]({posixpath.basename(place)}) | {first} |")
    return "\n".join([f"# {title}", "", said, "", "| package | what it is |", "| --- | --- |", *rows, ""])


def _beginning(text: str) -> tuple[str, str]:
    """The title of a README, and the first sentence after it, without links."""
    title, _, rest = text.partition("\n")
    paragraph = " ".join(rest.strip().split("\n\n")[0].split())
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph)
    return title.lstrip("# "), re.split(r"(?<=\.) ", plain)[0]


def _module(module: str, said: str) -> str:
    """A page that mkdocstrings fills: all public names, or, in a module without ``__all__``, classes and functions."""
    head, names = [f"# `{module}`", ""], exported(module)
    if not names:
        return "\n".join([*head, said, "", f"::: {module}", "    options:", "      show_root_toc_entry: false", ""])
    parts = [part for name in names for part in (f"::: {'.'.join(origin(module, name))}", *ROOT_HEADING, "")]
    return "\n".join([*head, _docstring(module), "", said, "", *parts])


def _settings(module: str, said: str) -> str:
    """The table of settings, from the source of ``Config``, and the methods."""
    rows = ["| field | type | default | what it is |", "| --- | --- | --- | --- |"]
    for field in _body(module, "Config"):
        if isinstance(field, ast.AnnAssign) and isinstance(field.value, ast.Call):
            default, doc, *limits = field.value.args
            meaning = ast.literal_eval(doc) + (_range(*ast.literal_eval(limits[0])) if limits else "")
            cells = (ast.unparse(field.annotation), ast.unparse(default), meaning)
            kind, begin, meaning = cells
            rows.append(f"| `{ast.unparse(field.target)}` | `{kind}` | `{begin}` | {meaning} |")
    members = "".join(f"        - {name}\n" for name in ("patch", "trace", "load_environment"))
    methods = f"::: {module}.Config\n    options:\n      members:\n{members}"
    return "\n".join([f"# `{module}`", "", _docstring(module), said, "", *rows, "", "## Methods", "", methods])


def _range(low: float, high: float | None) -> str:
    return f" (at least {low})" if high is None else f" ({low} to {high})"


def _docstring(module: str) -> str:
    return ast.get_docstring(_tree(module)) or ""


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(source_of(module).read_text(encoding="utf-8"))


def _body(module: str, name: str) -> list[ast.stmt]:
    """The statements of a class of a module, from its source."""
    tree = _tree(module)
    return next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def source_of(module: str) -> Path:
    """The file of a module of the core, or of a distribution released with it."""
    root, *rest = module.split(".")
    home = "core" if root == "jitney" else f"{root.removeprefix('jitney_')}/{root}"
    path = ROOT.joinpath(home, *rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def exported(module: str) -> list[str]:
    """The names in a module's ``__all__`` that are not modules or instances with a page of their own."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if f"{module}.{name}" not in MODULES]
    return []


def origin(module: str, name: str) -> tuple[str, str]:
    """The module in which a name that another one has imported is defined, and its name there.

    A package may have a function and a module of one name; by the module that defines it the function is found.
    """
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("jitney"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return origin(node.module, alias.name)
    return module, name
