from dataclasses import dataclass, field
from typing import Literal

import pytest

from jitney.backends import Backend
from jitney.backends.options import validate
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
