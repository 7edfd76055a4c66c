import json
import sys
from pathlib import Path

import pytest

import jitney
from jitney.backends import Backend, Registry, list_backends, register_backend, registry
from jitney.config import config
from jitney.errors import BackendNotFound, PluginError

GOOD = """
from jitney.backends import Backend
jitney_hook_api = 1
backend = Backend("good", lambda graph, inputs, request: graph.forward)
"""
BROKEN = "import a_package_that_nobody_has"


def status(rows, name):
    return next(row.status for row in rows if row.name == name)


def test_the_eager_plugin_is_listed_with_its_package():
    row = next(row for row in list_backends() if row.name == "eager")
    assert (row.package, row.version) == ("jitney-eager", "0.1.0")


def test_listing_imports_nothing(install):
    install("goodpkg", GOOD, backends={"good": "goodpkg:backend"})
    rows = Registry().listings()
    assert status(rows, "good") == "installed"
    assert "goodpkg" not in sys.modules


def test_only_the_backend_asked_for_is_imported(install):
    install("goodpkg", GOOD, backends={"good": "goodpkg:backend"})
    install("otherpkg", GOOD.replace('"good"', '"other"'), backends={"other": "otherpkg:backend"})
    assert Registry().get("other").name == "other"
    assert "otherpkg" in sys.modules and "goodpkg" not in sys.modules


def test_a_loaded_backend_is_listed_as_loaded_and_is_the_same_object(install):
    install("goodpkg", GOOD, backends={"good": "goodpkg:backend"})
    found = Registry()
    assert found.get("good") is found.get("good")
    assert status(found.listings(), "good") == "loaded"


def test_a_broken_plugin_is_listed_with_its_traceback_and_harms_no_other(install):
    install("brokenpkg", BROKEN, backends={"bad": "brokenpkg:backend"})
    install("goodpkg", GOOD, backends={"good": "goodpkg:backend"})
    rows = Registry().listings(load=True)
    row = next(row for row in rows if row.name == "bad")
    assert row.status == "broken"
    assert "Traceback" in row.error and "a_package_that_nobody_has" in row.error
    assert status(rows, "good") == "loaded"


def test_asking_for_a_broken_plugin_names_its_package_and_entry_point(install):
    install("brokenpkg", BROKEN, backends={"bad": "brokenpkg:backend"})
    with pytest.raises(PluginError, match=r"package brokenpkg \(entry point jitney.backends: brokenpkg:backend\)") as e:
        Registry().get("bad")
    assert isinstance(e.value.__cause__, ModuleNotFoundError)


def test_a_plugin_that_exits_while_importing_is_broken_not_fatal(install):
    install("exitpkg", "raise SystemExit(3)", backends={"exit": "exitpkg:backend"})
    assert status(Registry().listings(load=True), "exit") == "broken"


def test_two_packages_with_one_name_are_an_error_naming_both(install):
    install("firstpkg", GOOD, backends={"good": "firstpkg:backend"})
    install("secondpkg", GOOD, backends={"good": "secondpkg:backend"})
    found = Registry()
    assert status(found.listings(), "good") == "duplicate"
    with pytest.raises(PluginError, match="firstpkg, secondpkg"):
        found.get("good")


@pytest.mark.parametrize(
    ("declared", "said", "hint"),
    [
        ("", "declares no jitney_hook_api", "install a release of oddpkg made for this jitney"),
        ("jitney_hook_api = 0", "was written for hook API 0", "install a release of oddpkg made for this jitney"),
        ("jitney_hook_api = True", "was written for hook API True", "install a release of oddpkg made"),
        ("jitney_hook_api = '1'", "was written for hook API '1'", "install a release of oddpkg made"),
        ("jitney_hook_api = 2", "was written for hook API 2", "upgrade jitney, or install a release of oddpkg"),
        ("jitney_hook_api = (2, 3)", r"was written for hook API \(2, 3\)", "upgrade jitney, or install"),
    ],
)
def test_another_hook_version_is_refused_by_name(install, declared, said, hint):
    install("oddpkg", GOOD.replace("jitney_hook_api = 1", declared), backends={"good": "oddpkg:backend"})
    with pytest.raises(PluginError, match=f"package oddpkg .*{said}; this jitney has hook API 1") as e:
        Registry().get("good")
    assert e.value.hint.startswith(hint)


def test_a_plugin_may_be_written_for_several_hook_versions(install):
    install("goodpkg", GOOD.replace("api = 1", "api = (1, 2)"), backends={"good": "goodpkg:backend"})
    assert Registry().get("good").name == "good"


def test_a_deprecated_field_of_a_backend_warns_at_the_plugins_line(install, monkeypatch):
    monkeypatch.setattr(Backend, "DEPRECATED", {"version": "the package has one"})
    Backend("fine", lambda graph, inputs, request: graph.forward)
    install("goodpkg", GOOD.replace("forward)", "forward, version='3')"), backends={"good": "goodpkg:backend"})
    with pytest.warns(DeprecationWarning, match=r"Backend\.version is deprecated: the package has one") as warned:
        Registry().get("good")
    assert [Path(w.filename).name for w in warned] == ["goodpkg.py"]


@pytest.mark.parametrize("old, new", [("Kept", "SerializedGraph"), ("late", "lazy_function")])
def test_an_old_name_warns_at_the_line_that_imports_it(old, new):
    place = {}
    code = compile(f"from jitney.backends import {old}", "plugin.py", "exec")
    with pytest.warns(DeprecationWarning, match=f"jitney.backends.{old} is deprecated: use {new}") as warned:
        exec(code, place)
    assert place[old] is getattr(jitney.backends, new) and {w.filename for w in warned} == {"plugin.py"}


@pytest.mark.parametrize("spelling", ["jitney-lowering>=0.1", "Jitney_Lowering==0.1", "jitney.lowering[x]; a < '3'"])
def test_a_requirement_of_a_sibling_counts_however_it_is_spelled(install, spelling):
    install("goodpkg", GOOD, backends={"good": "goodpkg:backend"}, requires=(spelling, "jitney-numpy-like"))
    registry = Registry()
    assert registry.required_siblings(registry.get("good")) == ["jitney_lowering"]


def test_an_entry_point_that_is_no_backend_is_refused(install):
    install("oddpkg", "jitney_hook_api = 1\nbackend = 3", backends={"odd": "oddpkg:backend"})
    with pytest.raises(PluginError, match="not a jitney.backends.Backend but int"):
        Registry().get("odd")


def test_entry_point_and_backend_must_agree_on_the_name(install):
    install("goodpkg", GOOD, backends={"better": "goodpkg:backend"})
    with pytest.raises(PluginError, match="calls itself 'good'"):
        Registry().get("better")


@pytest.mark.parametrize("disabled", ["good", "x, good", "all"])
def test_disabled_plugins_are_listed_and_never_imported(install, disabled):
    install("goodpkg", GOOD, backends={"good": "goodpkg:backend"})
    with config.patch(plugins_disabled=disabled):
        assert status(Registry().listings(load=True), "good") == "disabled"
        with pytest.raises(PluginError, match="JITNEY_PLUGINS_DISABLED"):
            Registry().get("good")
    assert "goodpkg" not in sys.modules


def test_disabling_after_loading_takes_effect(install):
    install("goodpkg", GOOD, backends={"good": "goodpkg:backend"})
    found = Registry()
    found.get("good")
    with config.patch(plugins_disabled="good"), pytest.raises(PluginError, match="disabled"):
        found.get("good")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("eagr", "did you mean 'eager'"),
        ("llvm_cpu", "pip install jitney-llvm-cpu"),
        ("triton_gp", "pip install jitney-triton-gpu"),
    ],
)
def test_an_unknown_name_gets_the_nearest_or_how_to_install(name, hint, monkeypatch):
    found = Registry()
    monkeypatch.setattr(found, "_entry_points", lambda group: {"eager": []})
    with pytest.raises(BackendNotFound) as e:
        found.get(name)
    assert hint in e.value.hint


SHARED = """
import types
from jitney.backends import Backend
jitney_hook_api = 1
one, two = (Backend(name, lambda graph, inputs, request: graph.forward) for name in ("one", "two"))
extension = types.SimpleNamespace()
"""


@pytest.mark.parametrize("disabled", ["one", "watcher"])
def test_a_disabled_name_keeps_its_module_from_being_imported_for_a_sibling(install, disabled):
    install(
        "sharedpkg",
        SHARED,
        backends={"one": "sharedpkg:one", "two": "sharedpkg:two"},
        extensions={"watcher": "sharedpkg:extension"},
    )
    install("otherpkg", GOOD, backends={"good": "otherpkg:backend"})
    own = Registry()
    with config.patch(plugins_disabled=disabled):
        rows = {row.name: row.status for row in [*own.listings(load=True), *own.extension_listings(load=True)]}
        assert {rows[name] for name in ("one", "two", "watcher")} == {"disabled"} and rows["good"] == "loaded"
        with pytest.raises(PluginError) as e:
            own.get("two")
        assert e.value.reason == (
            f"backend 'two' needs the module of {disabled!r}, which is disabled by JITNEY_PLUGINS_DISABLED "
            "or config.plugins_disabled"
        )
        assert e.value.hint == f"take {disabled!r} out of config.plugins_disabled={disabled!r}"
    assert "sharedpkg" not in sys.modules
    assert own.get("two").name == "two"


def test_a_disabled_package_is_not_imported_for_its_submodule(install):
    install("parentpkg", GOOD, backends={"good": "parentpkg:backend", "sub": "parentpkg.sub:backend"})
    install("parentpkgs", GOOD, backends={"near": "parentpkgs:backend"})
    with config.patch(plugins_disabled="good"):
        own = Registry()
        rows = {row.name: row.status for row in own.listings()}
    assert rows["good"] == rows["sub"] == "disabled" and rows["near"] == "installed"


def test_an_unknown_name_like_nothing_lists_what_is_installed():
    with pytest.raises(BackendNotFound, match=r"'zzzzzz' \(installed: .*eager") as e:
        registry.get("zzzzzz")
    assert e.value.hint == "`jitney backends` lists what is installed"


def test_a_backend_registered_in_this_process_is_found_and_removed():
    backend = Backend("mine", lambda graph, inputs, request: graph.forward)
    register_backend(backend)
    try:
        assert registry.get("mine") is backend
        assert status(list_backends(), "mine") == "in-process"
        with pytest.raises(PluginError, match="replace=True"):
            register_backend(backend)
        register_backend(backend, replace=True)
    finally:
        registry.unregister_backend("mine")
    with pytest.raises(BackendNotFound):
        registry.get("mine")
    with pytest.raises(BackendNotFound):
        registry.unregister_backend("mine")


def test_an_installed_name_is_not_taken_over_by_accident():
    with pytest.raises(PluginError, match="'eager' already"):
        register_backend(Backend("eager", lambda graph, inputs, request: graph.forward))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "non-empty string"),
        ({"compile": 3}, "not callable"),
        ({"level": "machine"}, "'torch' or 'aten'"),
        ({"options": dict}, "is a dataclass"),
    ],
)
def test_a_backend_refuses_wrong_fields(fields, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Backend(**({"name": "b", "compile": print} | fields))


def test_a_listing_is_plain_data():
    import dataclasses

    assert json.loads(json.dumps(dataclasses.asdict(list_backends()[0])))["name"]
