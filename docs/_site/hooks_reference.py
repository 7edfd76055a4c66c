"""The reference of all that a plugin implements and is given, written from the docstrings: docs/hooks.md.

    python docs/_site/hooks_reference.py > docs/hooks.md

Nothing may be undocumented: an argument or field without a line in its docstring is ``Undocumented``, and so is a line
about one that does not exist. tests/docs/test_hooks_reference.py holds that the file is what is written now.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

from jitney import backends, events
from jitney.backends.backend import Argument, Backend, CompileRequest, ExtensionOptions, SerializedGraph
from jitney.backends.common_options import OwnOptions
from jitney.backends.hookspecs import HOOK_API_VERSION, PROJECT, Hooks, TrainingRun
from jitney.commands.docstrings import Described, taken_apart

# In the order of the page.
OBJECTS = (Backend, CompileRequest, SerializedGraph, Argument, ExtensionOptions, TrainingRun, OwnOptions)

_MARKUP = re.compile(r"``(.+?)``")

_HEAD = """\
# Hooks reference

Written by `python docs/_site/hooks_reference.py` from the docstrings in `core/`; do not edit it here.
[backend-authors.md](backend-authors.md) is the guide.

A plugin is a package with entry points. Names are read from metadata; a backend's module is imported when the
backend is asked for, extensions are all imported at the first compile.

| entry-point group | an entry point names | its name is |
| --- | --- | --- |
| `jitney.backends` | a `Backend` | what users write in `backend=`; equal to `Backend.name` |
| `jitney.extensions` | a module or object with hook implementations | what `JITNEY_PLUGINS_DISABLED` takes |
| `torch_dynamo_backends` | `jitney.torch_compile.backend_for(NAME)` | `jitney_NAME`, for users of `torch.compile` |
"""

_POLICY = """\
## Version and deprecation

This is hook API version **{version}** (`jitney.backends.HOOK_API_VERSION`). A plugin's module, or the object that
its entry point names, says which version it was written for: `jitney_hook_api = {version}`; or several, for all of
which it works: `jitney_hook_api = ({version}, {next})`. A plugin that names none, or only others, is refused:
`jitney backends` lists it as broken, and asking for it raises `PluginError` with package, entry point and both
versions. No other plugin is harmed.

What does not raise the version: a new hook, a new argument of a hook (an implementation takes those that it names,
so older ones go on), a new field of `Backend` or `CompileRequest` (each has a default), a new event or field of
one. A plugin that needs something new requires the release of jitney that brought it (`dependencies =
["jitney>=0.2"]`); one that can do without marks a hook that older releases lack `@hookimpl(optionalhook=True)`.

What is to go away is deprecated for at least one minor release before, and works until then. Using it is a
`DeprecationWarning` that says what to use instead, and points at the plugin's own line: for a hook or an argument
of one when the extension is loaded, for a field of `Backend` when it is made, for a property of `CompileRequest`
when it is read. Here it is marked **deprecated**. Python shows these warnings in tests, and elsewhere with `python
-W default`. Taking it away raises the version, as does a change of what something means; each is in CHANGELOG.md.
"""


class Undocumented(Exception):
    """An argument or field that its docstring says nothing about, or the other way round."""


def described(what: str, documented: Any, names: Iterable[str]) -> Described:
    """The docstring of a function or class that has these arguments or fields.

    Raises:
        Undocumented: there is no text, or ``Args:`` does not name each of ``names`` once and nothing else.
    """
    found = taken_apart(documented)
    if not found.text:
        raise Undocumented(f"{what} has no docstring")
    wanted = list(names)
    lacking = [name for name in wanted if not found.rows.get(name)]
    strange = [name for name in found.rows if name not in wanted]
    if lacking or strange:
        raise Undocumented(f"{what} says nothing about {lacking}, and describes {strange}, which it has not")
    return found


def page() -> str:
    """The whole reference, as Markdown.

    Raises:
        Undocumented: something has no documentation.
    """
    parts = [_HEAD, _POLICY.format(version=HOOK_API_VERSION, next=HOOK_API_VERSION + 1)]
    parts.append("## Hooks of extensions\n\n" + _prose(inspect.getdoc(inspect.getmodule(Hooks)) or ""))
    parts += [_hook(getattr(Hooks, name)) for name in vars(Hooks) if name.startswith("jitney_")]
    parts.append(
        "## Objects\n\nAll are in `jitney.backends`, but for `OwnOptions`, which users fill and no plugin sees."
    )
    parts += [_object(kind) for kind in OBJECTS]
    parts += [_old_names()]
    parts.append("## Events\n\nWhat `jitney_observe` is called with: classes of `jitney.events`.")
    parts += [_event(kind) for kind in (*get_args(events.Event), events.Launch)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def hook_arguments(hook: Callable[..., Any]) -> list[str]:
    """The names of a hook's arguments."""
    return [name for name in inspect.signature(hook).parameters if name != "self"]


def _hook(hook: Callable[..., Any]) -> str:
    names = hook_arguments(hook)
    what = described(hook.__name__, hook, names)
    opts = getattr(hook, f"{PROJECT}_spec")
    signature = inspect.signature(hook)
    shown = ", ".join(f"{name}: {signature.parameters[name].annotation}" for name in names)
    old = f"\n\n**deprecated**: {opts['warn_on_impl']}" if opts["warn_on_impl"] else ""
    old_arguments = {name: str(warning) for name, warning in (opts["warn_on_impl_args"] or {}).items()}
    rows = _table(("argument", "type"), _rows(what, _types(signature, names), old_arguments))
    returns = signature.return_annotation
    code = f"```python\ndef {hook.__name__}({shown}) -> {returns}\n```"
    return f"### `{hook.__name__}`\n\n{code}{old}\n\n{_prose(what.text)}{rows}"


def _object(kind: type) -> str:
    fields = [field for field in dataclasses.fields(kind) if field.init] if dataclasses.is_dataclass(kind) else []
    what = described(kind.__name__, kind, [field.name for field in fields])
    types = {field.name: f"{field.type}{_default(field)}" for field in fields}
    old: dict[str, str] = getattr(kind, "DEPRECATED", {})
    rows = _table(("field", "type"), _rows(what, types, old))
    return f"### `{kind.__name__}`\n\n{_prose(what.text)}{rows}" + "".join(_members(kind))


def _old_names() -> str:
    """The names of the module that are to go away."""
    rows = (f"- `{old}` **deprecated**: use `{new.__name__}`" for old, new in backends.DEPRECATED.items())
    return "### Old names\n\n" + "\n".join(rows)


def _members(kind: type) -> Iterator[str]:
    """Its methods and properties."""
    for name, value in vars(kind).items():
        function = value.fget if isinstance(value, property) else value
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        names = [argument for argument in signature.parameters if argument != "self"]
        own = re.sub(r"^\(self(, )?", "(", str(signature)).replace("'", "")
        title = name if isinstance(value, property) else name + own.partition(" -> ")[0]
        what = described(f"{kind.__name__}.{name}", function, names)
        old = getattr(function, "__deprecated__", "")
        mark = f"**deprecated**: {old}. " if old else ""
        yield f"\n\n`{title}` -> `{signature.return_annotation}`: {mark}{_prose(what.text)}"
        yield _table(("argument", "type"), _rows(what, _types(signature, names), {}))


def _event(kind: type) -> str:
    fields = dataclasses.fields(kind)
    documented = [field.name for field in fields] if "Args:" in (kind.__doc__ or "") else []
    what = described(kind.__name__, kind, documented)
    if documented:
        body = _table(("field", "type"), _rows(what, {field.name: str(field.type) for field in fields}, {}))
    else:
        body = "\n\n" + ", ".join(f"`{field.name}: {field.type}`" for field in fields)
    return f"### `{kind.__name__}`\n\n{_prose(what.text)}{body}"


def _types(signature: inspect.Signature, names: Iterable[str]) -> dict[str, str]:
    return {name: str(signature.parameters[name].annotation) for name in names}


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {field.default!r}"
    if field.default_factory is not dataclasses.MISSING:
        return f" = {getattr(field.default_factory, '__name__', 'made for each')}()"
    return ""


def _rows(what: Described, types: dict[str, str], old: dict[str, str]) -> list[tuple[str, str, str]]:
    marks = {name: f"**deprecated**: {says}. " for name, says in old.items()}
    return [(name, kind, marks.get(name, "") + what.rows[name]) for name, kind in types.items() if name in what.rows]


def _table(titles: tuple[str, str], rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    lines = [f"| {titles[0]} | {titles[1]} | meaning |", "| --- | --- | --- |"]
    for name, kind, says in rows:
        cells = f"`{name}`", f"`{kind}`", _MARKUP.sub(r"`\1`", says)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n\n" + "\n".join(lines)


def _prose(text: str) -> str:
    """A docstring's text as Markdown: its markup for code, its indented programs as blocks."""
    text = _MARKUP.sub(r"`\1`", text)
    blocks = re.sub(
        r"(?:^ {4}.*\n(?:\n+(?= {4}))?)+",
        lambda found: f"```python\n{textwrap.dedent(found[0]).rstrip()}\n```\n",
        text + "\n",
        flags=re.M,
    )
    return blocks.strip()


if __name__ == "__main__":
    print(page(), end="")
