import dataclasses
import os
import subprocess
import sys

import pytest

from jitney.config import Config, config, unknown_variables, variable
from jitney.errors import InvalidOption


def test_every_field_is_documented_and_has_its_variable():
    for field in dataclasses.fields(Config):
        assert field.metadata["doc"]
        assert variable(field.name) == f"JITNEY_{field.name.upper()}"


def test_an_unknown_field_names_the_nearest():
    with pytest.raises(InvalidOption, match="no field 'cache_limit'") as e:
        config.cache_limit = 3
    assert "cache_size_limit" in e.value.hint
    assert not hasattr(config, "cache_limit")


@pytest.mark.parametrize(
    ("name", "value"), [("cache_size_limit", "8"), ("cache_size_limit", True), ("verbose", 1), ("base_dir", None)]
)
def test_a_wrong_type_is_refused_and_changes_nothing(name, value):
    before = getattr(config, name)
    with pytest.raises(InvalidOption, match=f"config.{name} is "):
        setattr(config, name, value)
    assert getattr(config, name) is before


def test_patch_as_a_context_manager_restores_even_after_an_error():
    before = config.cache_size_limit
    with pytest.raises(ZeroDivisionError), config.patch(cache_size_limit=before + 1, verbose=True) as patched:
        assert patched.cache_size_limit == before + 1 and config.verbose
        1 / 0
    assert config.cache_size_limit == before and not config.verbose


def test_patch_as_a_decorator_works_at_each_call_and_nested():
    before = config.cache_size_limit

    @config.patch(cache_size_limit=99)
    def depth(n):
        assert config.cache_size_limit == 99
        return 0 if n == 0 else 1 + depth(n - 1)

    assert (depth(2), depth(2)) == (2, 2)
    assert config.cache_size_limit == before


def test_a_wrong_patch_is_refused_before_anything_changes():
    with pytest.raises(InvalidOption, match="no field"):
        config.patch(verbose=True, nothing=1)
    assert not config.verbose


def test_a_patch_that_turns_wrong_inside_restores_what_was():
    before = config.verify
    with config.patch(verify=not before):
        config.verify = before
    assert config.verify is before


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cache_size_limit", "16", 16),
        ("verbose", "1", True),
        ("verbose", "Yes", True),
        ("automatic_dynamic_shapes", "off", False),
        ("plugins_disabled", "a,b", "a,b"),
        ("logs", "+guards", "+guards"),
    ],
)
def test_fields_come_from_the_environment(name, text, value):
    own = Config()
    own.load_environment({variable(name): text})
    assert getattr(own, name) == value


@pytest.mark.parametrize(("name", "text"), [("JITNEY_CACHE_SIZE_LIMIT", "many"), ("JITNEY_VERBOSE", "perhaps")])
def test_a_wrong_variable_is_named(name, text):
    with pytest.raises(InvalidOption, match=f"environment variable {name} is (int|bool), got '{text}'"):
        Config().load_environment({name: text})


def test_the_environment_is_read_when_jitney_is_imported():
    code = "from jitney.config import config; print(config.plugins_disabled, config.cache_size_limit)"
    environment = os.environ | {"JITNEY_PLUGINS_DISABLED": "all", "JITNEY_CACHE_SIZE_LIMIT": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "all 3\n"


def test_misspelt_variables_are_found():
    found = unknown_variables({"JITNEY_CACHE_SIZE": "1", "JITNEY_VERBOSE": "1", "PATH": ""})
    assert list(found) == ["JITNEY_CACHE_SIZE"]
    assert "JITNEY_CACHE_SIZE_LIMIT" in found["JITNEY_CACHE_SIZE"]
