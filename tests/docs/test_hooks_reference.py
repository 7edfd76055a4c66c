"""docs/hooks.md is what the docstrings say, and they say all."""

import dataclasses
import importlib.util
from pathlib import Path

import pytest
from typing_extensions import deprecated

from jitney.backends.hookspecs import Hooks

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "hooks.md"
_spec = importlib.util.spec_from_file_location("hooks_reference", DOCS / "_site" / "hooks_reference.py")
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)
Undocumented, described = reference.Undocumented, reference.described


def test_the_page_in_docs_is_what_is_written_now():
    text = PAGE.read_text()
    assert text == reference.page(), "python docs/_site/hooks_reference.py > docs/hooks.md"


def test_every_hook_object_and_event_has_a_part():
    titles = {line.strip("# `") for line in PAGE.read_text().splitlines() if line.startswith("### ")}
    hooks = {name for name in dir(Hooks) if name.startswith("jitney_")}
    assert len(hooks) >= 8
    assert titles >= hooks | {
        "Backend",
        "CompileRequest",
        "SerializedGraph",
        "TrainingRun",
        "GraphBreak",
        "Told",
        "Launch",
    }


def documented(doc):
    def hook(self, graph, inputs): ...

    hook.__doc__ = doc
    return hook


GOOD = """Called with each graph.

        Args:
            graph: operators,
                as they were.
            inputs: shapes.

        Raises:
            graph: not a row.
        """


def test_a_docstring_is_taken_apart():
    found = described("hook", documented(GOOD), ["graph", "inputs"])
    assert found.text == "Called with each graph."
    assert found.rows == {"graph": "operators, as they were.", "inputs": "shapes."}


@pytest.mark.parametrize(
    ("doc", "message"),
    [
        (None, "hook has no docstring"),
        ("    Args:\n        graph: x\n        inputs: y", "hook has no docstring"),
        ("Called.", r"nothing about \['graph', 'inputs'\]"),
        (GOOD.replace("inputs: shapes.", ""), r"nothing about \['inputs'\]"),
        (GOOD.replace("inputs: shapes.", "inputs: "), r"nothing about \['inputs'\]"),
        (GOOD.replace("inputs", "input"), r"nothing about \['inputs'\], and describes \['input'\]"),
    ],
)
def test_what_is_undocumented_is_found(doc, message):
    with pytest.raises(Undocumented, match=message):
        described("hook", documented(doc), ["graph", "inputs"])


def test_a_new_argument_or_field_without_a_word_is_found(monkeypatch):
    monkeypatch.setattr(Hooks.jitney_observe, "__doc__", "Called with each event.")
    with pytest.raises(Undocumented, match=r"jitney_observe says nothing about \['event'\]"):
        reference.page()
    monkeypatch.undo()
    fields = [(f.name, f.type, dataclasses.field(default=None)) for f in dataclasses.fields(reference.Backend)]
    grown = dataclasses.make_dataclass("Backend", [*fields, ("colour", str, dataclasses.field(default="red"))])
    grown.__doc__ = reference.Backend.__doc__
    monkeypatch.setattr(reference, "OBJECTS", (grown,))
    with pytest.raises(Undocumented, match=r"Backend says nothing about \['colour'\]"):
        reference.page()


def test_what_is_deprecated_is_marked(monkeypatch):
    spec = {**Hooks.jitney_observe.jitney_spec, "warn_on_impl": DeprecationWarning("listen elsewhere")}
    spec["warn_on_impl_args"] = {"event": DeprecationWarning("look away")}
    monkeypatch.setattr(Hooks.jitney_observe, "jitney_spec", spec)
    monkeypatch.setattr(reference.Backend, "DEPRECATED", {"lacks": "nothing lacks"})
    request = reference.CompileRequest
    monkeypatch.setattr(request, "tell", deprecated("use save")(request.tell))
    text = reference.page()
    assert "**deprecated**: listen elsewhere\n" in text
    assert "| **deprecated**: look away. one of the classes" in text
    assert "| **deprecated**: nothing lacks. what is missing" in text
    assert "-> `None`: **deprecated**: use save. Lines for `explain`" in text
