"""What a report says when several values together are not as they were."""

from __future__ import annotations

import math

from helpers import compile_fn, observe, t

from jitney.guards.condition import conditions, first_unmet
from jitney.guards.source import Source


def test_a_condition_names_what_it_reads_and_what_it_found_there() -> None:
    a, b = Source(None, "local", "a"), Source(None, "local", "b").attr("size")
    made = conditions(lambda name: [f"{name(a)} > 0", f"_math.sqrt({name(a)}) * {name(b)} <= 10"])
    assert [c.text for c in made] == ["a > 0", "math.sqrt(a) * b.size <= 10"]

    class Box:
        size = 5

    assert first_unmet(made, {"a": 4, "b": Box()}) is None
    assert first_unmet(made, {"a": -1, "b": Box()}) == ("a > 0", "a = -1")
    assert first_unmet(made, {"a": 9, "b": Box()}) == ("math.sqrt(a) * b.size <= 10", "a = 9, b.size = 5")
    assert first_unmet(made, {"a": 9}) == ("math.sqrt(a) * b.size <= 10", "NameError: name 'b' is not defined")


def test_a_recompilation_says_which_numbers_took_another_branch() -> None:
    compiled = compile_fn(lambda x, s: x * s if math.cos(s) > 0 else x / s)
    x = t(2)
    with observe() as seen:
        for value in (0.25, 0.5, 2.5):
            compiled(x, value)
    assert len(seen.recompiles) == 2
    assert "math.cos((s)) > 0" in seen.recompiles[1] and "found s = 2.5" in seen.recompiles[1]
