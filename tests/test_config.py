import dataclasses
import os

import pytest
from fork_server import run_python

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


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cache_size_limit", "many", "an int of at least 0"),
        ("cache_size_limit", "-1", "an int of at least 0"),
        ("verbose", "perhaps", "a bool"),
        ("activation_memory_budget", "half", "a float from 0 to 1"),
        ("activation_memory_budget", "nan", "a float from 0 to 1"),
        ("activation_memory_budget", "1.5", "a float from 0 to 1"),
    ],
)
def test_a_wrong_variable_changes_nothing_and_is_told(name, text, expected):
    own, default = Config(), Config()
    (found,) = own.load_environment({variable(name): text, "JITNEY_BASE_DIR": "there"}).items()
    default.base_dir = "there"
    assert own == default
    assert found[0] == variable(name)
    shown = {"cache_size_limit": 8, "verbose": 0, "activation_memory_budget": 1.0}[name]
    assert str(found[1]) == (
        f"config: environment variable {variable(name)} is {expected}, got {text!r}\n"
        f"try: {variable(name)}={shown}, the default"
    )


def test_wrong_variables_are_warnings_on_the_line_that_imports_jitney():
    code = "import torch\nimport jitney; print(jitney.config.cache_size_limit, jitney.config.verbose)"
    environment = os.environ | {"JITNEY_CACHE_SIZE_LIMIT": "many", "JITNEY_VERBOSE": "1", "JITNEY_LOGS": "recompile"}
    done = run_python("-c", code, env=environment, check=True)
    assert done.stdout == "8 True\n"
    assert done.stderr == (
        "<string>:2: UserWarning: config: environment variable JITNEY_CACHE_SIZE_LIMIT is an int of at least 0, "
        "got 'many'\ntry: JITNEY_CACHE_SIZE_LIMIT=8, the default\n(the default is used)\n"
        "<string>:2: UserWarning: logs: environment variable JITNEY_LOGS: there is no log artefact 'recompile'\n"
        "try: did you mean 'recompiles'?\n(nothing is logged)\n"
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("activation_memory_budget", 1.01, "a float from 0 to 1, got 1.01\ntry: config.activation_memory_budget = 1.0"),
        ("activation_memory_budget", -0.1, "a float from 0 to 1, got -0.1"),
        ("activation_memory_budget", float("nan"), "a float from 0 to 1, got nan"),
        ("cache_size_limit", -1, "an int of at least 0, got -1\ntry: config.cache_size_limit = 8, the default"),
        ("max_trace_steps", 0, "an int of at least 1, got 0"),
    ],
)
def test_a_value_out_of_range_is_refused_and_changes_nothing(name, value, message):
    before = getattr(config, name)
    with pytest.raises(InvalidOption) as e:
        setattr(config, name, value)
    assert str(e.value).startswith(f"config: config.{name} is {message}")
    assert getattr(config, name) == before


def test_every_config_error_says_what_to_try():
    for name, value in (("nothing_like_it", 1), ("verbose", 3), ("base_dir", 3)):
        with pytest.raises(InvalidOption) as e:
            setattr(config, name, value)
        assert e.value.hint


def test_the_environment_is_read_when_jitney_is_imported():
    code = "from jitney.config import config; print(config.plugins_disabled, config.cache_size_limit)"
    environment = os.environ | {"JITNEY_PLUGINS_DISABLED": "all", "JITNEY_CACHE_SIZE_LIMIT": "3"}
    done = run_python("-c", code, env=environment, check=True)
    assert done.stdout == "all 3\n"


def test_misspelt_variables_are_found():
    found = unknown_variables({"JITNEY_CACHE_SIZE": "1", "JITNEY_VERBOSE": "1", "PATH": ""})
    assert list(found) == ["JITNEY_CACHE_SIZE"]
    assert "JITNEY_CACHE_SIZE_LIMIT" in found["JITNEY_CACHE_SIZE"]


def test_representations_check_themselves_while_tests_run() -> None:
    assert config.verify or os.environ.get("JITNEY_VERIFY") == "0"
