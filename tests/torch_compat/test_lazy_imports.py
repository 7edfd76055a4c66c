"""Copies of functions that put imports off."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jitney.torch_compat.lazy_imports import defer_imports

MODULE = "SETTING = 'loaded'\nOTHER = 'only loaded'\nclass Kind: pass\ndef double(x): return 2 * x\n"


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package with a module ``settings``, not imported yet."""
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "__init__.py").write_text("PLAIN = 1\n")
    (package / "settings.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("slow_package", "slow_package.settings"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "slow_package.settings"


def late(source: str, known: dict[str, Any] | None = None) -> Any:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return defer_imports(scope["f"], {"slow_package.settings": {"SETTING": "known"} if known is None else known})


def test_what_is_known_needs_no_import(slow: str) -> None:
    f = late("def f():\n    import slow_package.settings\n    return slow_package.settings.SETTING")
    assert f() == "known" and slow not in sys.modules


def test_a_loaded_module_is_asked_itself(slow: str) -> None:
    f = late("def f():\n    import slow_package.settings\n    return slow_package.settings.SETTING")
    assert f() == "known"
    __import__(slow)
    assert f() == "loaded"
    sys.modules[slow].SETTING = "changed"  # type: ignore[attr-defined]
    assert f() == "changed"


def test_what_is_unknown_is_imported(slow: str) -> None:
    f = late("def f():\n    import slow_package.settings\n    return slow_package.settings.OTHER")
    assert f() == "only loaded" and isinstance(sys.modules[slow], ModuleType)


def test_an_unknown_name_is_an_attribute_error_as_in_the_original(slow: str) -> None:
    f = late("def f():\n    import slow_package.settings\n    return slow_package.settings.MISSING")
    with pytest.raises(AttributeError, match="MISSING"):
        f()


def test_the_package_itself_is_seen_as_it_is(slow: str) -> None:
    f = late("import slow_package\ndef f():\n    return slow_package.PLAIN, slow_package.settings.SETTING")
    assert f() == (1, "known") and slow not in sys.modules


def test_imported_functions_are_imported_when_called(slow: str) -> None:
    f = late("def f(call):\n    from slow_package.settings import double\n    return double(4) if call else None")
    assert f(False) is None and slow not in sys.modules
    assert f(True) == 8 and slow in sys.modules


def test_nothing_is_an_instance_of_a_class_that_is_not_loaded(slow: str) -> None:
    f = late("def f(x):\n    from slow_package.settings import Kind\n    return isinstance(x, Kind)")
    assert not f(1) and slow not in sys.modules
    settings = __import__(slow, fromlist=["Kind"])
    assert f(settings.Kind()) and not f(1)


def test_known_names_are_taken_from_an_import_too(slow: str) -> None:
    f = late("def f():\n    from slow_package.settings import SETTING\n    return SETTING")
    assert f() == "known" and slow not in sys.modules


def test_other_imports_and_relative_ones_are_python_s(slow: str) -> None:
    f = late("def f():\n    import json, os.path\n    from math import pi\n    return json.dumps([1]), os.path.sep, pi")
    assert f()[0] == "[1]" and f()[2] == pytest.approx(3.14159, abs=1e-5)


def test_a_copy_keeps_defaults_closures_and_names(slow: str) -> None:
    def outer(y: int) -> Any:
        def f(x: int, k: int = 2, *, z: int = 3) -> tuple[int, ...]:
            return x, y, k, z

        return f

    original = outer(7)
    copy = defer_imports(original, {"slow_package.settings": {}})
    assert copy(1) == original(1) == (1, 7, 2, 3)
    assert copy.__qualname__ == original.__qualname__ and copy is not original


def test_globals_may_be_something_else_for_the_copy(slow: str) -> None:
    scope: dict[str, Any] = {}
    exec("def g(): return 1\ndef f(): return g()", scope)
    copy = defer_imports(scope["f"], {}, {"g": lambda: 2})
    assert copy() == 2 and scope["f"]() == 1


def test_what_is_no_python_function_stays(slow: str) -> None:
    assert defer_imports(len, {}) is len
