import warnings
from dataclasses import dataclass, field
from typing import Literal

import pytest
import torch

import jitney
from jitney.backends import Backend, registry, resolve
from jitney.backends.options import MODES, validate
from jitney.errors import InvalidOption


@dataclass(frozen=True)
class Options:
    threads: int = 4
    mode: Literal["fast", "exact"] = "exact"
    ratio: float = 0.5
    passes: list[str] = field(default_factory=lambda: ["fuse"])
    target: str | None = None

    def __post_init__(self):
        if self.threads < 1:
            raise ValueError("threads is at least 1")


def backend(options=Options):
    return Backend("b", lambda graph, inputs, request: graph.forward, options=options)


def test_defaults_when_nothing_is_given():
    assert validate(backend(), None) == Options()


def test_given_options_are_set():
    given = {"threads": 2, "mode": "fast", "ratio": 1, "passes": [], "target": "x"}
    assert validate(backend(), given) == Options(2, "fast", 1, [], "x")


def test_an_unknown_option_lists_the_valid_ones_with_types_and_defaults():
    with pytest.raises(InvalidOption) as e:
        validate(backend(), {"thread": 2})
    assert str(e.value) == (
        "options: backend 'b' has no option 'thread'; valid options:\n"
        "  threads: int = 4\n"
        "  mode: 'fast' | 'exact' = 'exact'\n"
        "  ratio: float = 0.5\n"
        "  passes: list[str] = ['fuse']\n"
        "  target: str | None = None\n"
        "try: did you mean 'threads'?"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", "2"),
        ("threads", True),
        ("threads", 2.0),
        ("mode", "slow"),
        ("ratio", "1"),
        ("ratio", False),
        ("passes", "fuse"),
        ("passes", [1]),
        ("target", 3),
    ],
)
def test_a_wrong_type_is_refused(name, value):
    with pytest.raises(InvalidOption, match=f"option '{name}' of backend 'b' is .*, got {value!r}".replace("[", r"\[")):
        validate(backend(), {name: value})


def test_a_value_that_the_backend_refuses_is_an_invalid_option():
    with pytest.raises(InvalidOption, match="threads is at least 1"):
        validate(backend(), {"threads": 0})


def test_a_backend_without_options_takes_none():
    assert validate(backend(None), {}) is None
    with pytest.raises(InvalidOption, match="takes no options, got 'a'"):
        validate(backend(None), {"a": 1})


def test_options_without_defaults_are_refused_when_the_backend_is_made():
    @dataclass
    class Needy:
        must: int

    with pytest.raises(TypeError, match="option 'must' of backend 'b' has no default"):
        backend(Needy)


@dataclass(frozen=True)
class Tuned:
    mode: Literal["quick", "default", "reduce-overhead", "max-autotune"] = "quick"


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (Options, {"thread": 1}),
        (Options, {"zzz": 1}),
        (Options, {3: 1}),
        (Options, {"threads": "2"}),
        (Options, {"threads": 0}),
        (None, {"a": 1}),
        (Options, 4),
        (None, "fast"),
        (Options, [("threads", 2)]),
    ],
)
def test_every_refusal_is_an_invalid_option_that_says_what_to_try(options, given):
    with pytest.raises(InvalidOption) as e:
        jitney.compile(torch.sin, backend=backend(options), options=given)
    assert str(e.value).startswith("options: ") and e.value.hint and "\ntry: " in str(e.value)


def test_options_of_another_kind_are_named():
    with pytest.raises(InvalidOption) as e:
        jitney.compile(torch.sin, options=4)
    assert str(e.value) == 'options: options=4 is no dictionary\ntry: options={"name": value}'


@pytest.mark.parametrize("given", ["yes", 1, (3, 4)])
def test_dynamic_is_a_bool_or_none(given):
    with pytest.raises(InvalidOption, match="is not True, False or None"):
        jitney.compile(torch.sin, dynamic=given)


def test_a_value_out_of_range_names_the_default():
    with pytest.raises(InvalidOption) as e:
        validate(backend(), {"threads": 0})
    assert str(e.value) == (
        "options: backend 'b' refuses its options: threads is at least 1\ntry: options={'threads': 4}, as by default"
    )


@pytest.mark.parametrize(
    ("mode", "hint"), [("fast", "one of 'default', "), ("max-autotun", "did you mean"), (3, "one")]
)
def test_an_unknown_mode_lists_the_valid_ones(mode, hint):
    for disable in (False, True):
        with pytest.raises(InvalidOption) as e:
            jitney.compile(torch.sin, mode=mode, disable=disable)
        assert all(repr(valid) in str(e.value) for valid in MODES)
        assert e.value.hint.startswith(hint)


def test_a_mode_reaches_the_options_of_a_backend_that_has_modes():
    assert validate(backend(Tuned), None, "max-autotune") == Tuned("max-autotune")
    assert validate(backend(Tuned), {"mode": "max-autotune"}, "max-autotune") == Tuned("max-autotune")
    assert validate(backend(Tuned), None, None) == validate(backend(Tuned), None, "default") == Tuned("quick")
    assert validate(backend(Tuned), {"mode": "quick"}, "default") == Tuned("quick")
    assert resolve(backend(Tuned), None, "reduce-overhead").request("inference", "f").options == Tuned(
        "reduce-overhead"
    )


def test_a_mode_that_the_backend_does_not_have_is_refused():
    with pytest.raises(InvalidOption, match="option 'mode' of backend 'b' is .*, got 'max-autotune-no-cudagraphs'"):
        validate(backend(Tuned), None, "max-autotune-no-cudagraphs")


def test_two_modes_are_refused():
    with pytest.raises(InvalidOption, match="mode='max-autotune' and options={'mode': 'quick'} are two modes"):
        validate(backend(Tuned), {"mode": "quick"}, "max-autotune")


@pytest.mark.parametrize("spec", [backend(None), "eager"])
@pytest.mark.parametrize("options", [None, {}])
def test_a_mode_for_a_backend_without_modes_is_one_warning_on_the_users_line(spec, options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            jitney.compile(torch.sin, backend=spec, mode="max-autotune", options=options)
    assert len(found) == 1 and found[0].filename == __file__
    assert "has no modes: mode='max-autotune' does nothing" in str(found[0].message)


def test_a_mode_reaches_a_callable_that_takes_it():
    def tuned(graph, inputs, *, mode="none"):
        seen.append(mode)
        return graph.forward

    seen = []
    for mode in (None, "default", "max-autotune"):
        jitney.compile(lambda x: x + 1, backend=tuned, mode=mode)(torch.ones(2))
    assert seen == ["none", "none", "max-autotune"]
    with pytest.warns(UserWarning, match="backend '<lambda>' has no modes"):
        resolve(lambda graph, inputs: graph.forward, None, "max-autotune")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spec", [*registry.names(), "auto", ["llvm_cpu", "eager"]], ids=str)
@pytest.mark.filterwarnings("ignore:backend .* has no modes:UserWarning")
def test_every_installed_backend_takes_torchs_modes(spec, mode):
    x = torch.randn(3)
    torch.testing.assert_close(jitney.compile(lambda x: x.sin() * 2, backend=spec, mode=mode)(x), x.sin() * 2)
