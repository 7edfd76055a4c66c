"""``jitney backends --json``: what programs read."""

import importlib.metadata
import json
import platform
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from jitney.backends import Backend, Listing, hookimpl, registry
from jitney.cli import main
from jitney.commands.backends import option_rows, plain

ROW = {"name", "package", "version", "status", "error", "entry_points", "options"}


def printed(capsys):
    assert main(["backends", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def row_of(found, name):
    return next(row for row in found["backends"] if row["name"] == name)


def test_the_schema_is_what_programs_were_promised(capsys):
    """A key may come; one that goes or means something else raises ``schema``."""
    found = printed(capsys)
    lists = ["options", "backends", "extensions", "handlers"]
    assert list(found) == ["schema", "hook_api", "jitney", "torch", "python", *lists]
    assert [(row["name"], row["package"], row["status"]) for row in found["handlers"]] == [
        ("numpy", "jitney-numpy", "loaded")
    ]
    assert (found["schema"], found["hook_api"]) == (1, 1)
    versions = importlib.metadata.version("jitney"), torch.__version__, platform.python_version()
    assert (found["jitney"], found["torch"], found["python"]) == versions
    assert [option["name"] for option in found["options"]] == ["crosscheck", "freeze", "drop_grads"]
    assert found["backends"] and all(set(row) == ROW | {"level", "device_types", "lacks"} for row in found["backends"])
    assert all(set(row) == ROW for row in found["extensions"])
    (option,) = row_of(found, "eager")["options"]
    assert option.pop("meaning").startswith("show the code")
    assert option == {"name": "save_code", "type": "bool", "default": False}


def test_a_loaded_backend_with_all_that_it_says_of_itself(capsys):
    row = row_of(printed(capsys), "aot_eager")
    row["options"] = [option["type"] for option in row["options"]]
    assert row == {
        "name": "aot_eager",
        "package": "jitney-aot-eager",
        "version": "0.1.0",
        "status": "loaded",
        "error": "",
        "entry_points": ["jitney_aot_eager:backend"],
        "level": "aten",
        "device_types": [],
        "options": ["'none' | 'core'", "bool"],
        "lacks": [],
    }


def test_a_broken_plugin_has_its_traceback_and_no_facts(capsys, monkeypatch):
    broken = Listing("bad", "badpkg", "1.0", "broken", "Traceback: no module", ("badpkg:backend",))
    monkeypatch.setattr(registry, "listings", lambda load: [broken])
    row = row_of(printed(capsys), "bad")
    assert (row["status"], row["error"], row["entry_points"]) == ("broken", "Traceback: no module", ["badpkg:backend"])
    assert [row[key] for key in ("level", "device_types", "options", "lacks")] == [None] * 4


def raising():
    raise RuntimeError("asked too much")


@pytest.mark.parametrize(("lacks", "says"), [(lambda: ("no fuel",), ["no fuel"]), (raising, None)])
def test_what_a_backend_lacks_and_one_that_raises_when_it_is_asked(capsys, lacks, says):
    registry.register_backend(Backend("odd", lambda graph, inputs, request: graph.forward, lacks=lacks))
    try:
        found = printed(capsys)
    finally:
        registry.unregister_backend("odd")
    row = row_of(found, "odd")
    assert (row["status"], row["package"], row["lacks"]) == ("in-process", "(this process)", says)
    assert ("asked too much" in row["error"]) == (says is None)
    assert row_of(found, "eager")["error"] == ""


def test_an_extensions_options_and_one_that_fails(capsys, monkeypatch):
    @dataclass(frozen=True)
    class Own:
        depth: int = 2

    good = SimpleNamespace(jitney_options=hookimpl(lambda: Own))
    bad = SimpleNamespace(jitney_options=hookimpl(lambda: 3))
    idle = SimpleNamespace(jitney_observe=hookimpl(lambda event: None))
    rows = [Listing(name, "p", "1.0", "loaded") for name in ("good", "bad", "idle")]
    monkeypatch.setattr(registry, "extension_listings", lambda load: rows)
    for name, extension in (("good", good), ("bad", bad), ("idle", idle)):
        registry.register_extension(extension, name)
    try:
        first, second, third = printed(capsys)["extensions"]
    finally:
        for extension in (good, bad, idle):
            registry.unregister_extension(extension)
    assert first["options"] == [{"name": "depth", "type": "int", "default": 2, "meaning": ""}] and first["error"] == ""
    assert second["options"] is None and "is a dataclass, got 3" in second["error"]
    assert third["options"] == [] and third["error"] == ""


def test_defaults_that_json_has_not_are_text():
    @dataclass
    class Options:
        """Options.

        Args:
            dtype: of
                results.
            sizes: of tiles.
        """

        dtype: torch.dtype = torch.float32
        sizes: tuple[int, ...] = (1, 2)
        made: dict[str, float] = field(default_factory=lambda: {"a": float("inf")})
        hidden: int = field(default=1, init=False)

    first, second, third = option_rows(Options)
    assert first == {"name": "dtype", "type": "dtype", "default": "torch.float32", "meaning": "of results."}
    assert (second["default"], third["default"]) == ([1, 2], {"a": "inf"})
    assert plain({1: 2}) == "{1: 2}"
    assert json.loads(json.dumps(plain([None, True, 1.5, {"k": [object]}])))[:3] == [None, True, 1.5]
