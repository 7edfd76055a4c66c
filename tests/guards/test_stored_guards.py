"""Guards as text: the first that fails is told with what was found."""

from __future__ import annotations

import json
from typing import Any

import torch

from jitney.guards import Guard, Source
from jitney.guards.condition import Condition
from jitney.guards.stored_guards import first_failing, rows
from jitney.guards.tensors import tensor_facts

x, n, other = (Source(None, "local", name) for name in ("x", "n", "other"))
EXPECTED = (1, 2)
SPACE: dict[str, Any] = {"_c1": EXPECTED, "_c2": type(EXPECTED)}
GUARDS = [Guard(n, "is", None), Guard(other, "type", tuple), Guard(other.item(0), "is", True)]


def told(**scope: Any) -> Any:
    tensors = [(x, tensor_facts(torch.ones(2)), (2,))]
    return first_failing(list(rows(GUARDS, tensors, SPACE, ["_c2"])), SPACE, scope)


def test_nothing_fails_where_everything_holds() -> None:
    assert told(x=torch.ones(2), n=None, other=(True, 2)) is None


def test_the_first_that_fails_is_told() -> None:
    assert told(x=torch.ones(2), n=3, other=[]) == ("n is None", "3", "")
    assert told(x=torch.ones(2), n=None, other=[1]) == ("type(other) is tuple", "[1]", "")
    text, found, _ = told(x=torch.ones(2), n=None, other=())
    assert text == "other[0] is True" and found.startswith("IndexError")
    text, found, _ = told(x=torch.ones(3), n=None, other=(True,))
    assert text.startswith("x is Tensor(2,) torch.float32") and found.startswith("Tensor(3,)")


def test_what_needs_a_name_that_is_not_kept_is_left_out() -> None:
    assert not list(rows([Guard(other, "equals", EXPECTED)], [], SPACE, ["_c2"]))
    assert not list(rows([Guard(other, "equals", (1, 3))], [], SPACE, ["_c1"]))


def test_sizes_that_do_not_count_and_conditions_between_them() -> None:
    sizes = (None, 3)
    facts = tensor_facts(torch.ones(4, 3), sizes)
    assert facts.startswith("Tensor(any, 3) torch.float32")
    condition = Condition("_place0 >= 2 and _place1 != _place0", {"_place0": x.item(0), "_place1": n})
    found = list(rows([], [(x, facts, sizes)], {}, [], [condition]))
    assert json.loads(json.dumps(found)) == found
    scope = {"x": torch.arange(12.0).view(4, 3), "n": 5}
    text, told_of, _ = first_failing(found, {}, scope | {"x": torch.ones(4, 2)}) or ("", "", "")
    assert text == f"x is {facts}" and told_of.startswith("Tensor(4, 2)")
    condition = Condition("_place0 >= 2 and _place1 != _place0", {"_place0": other, "_place1": n})
    found = list(rows([], [], {}, [], [condition]))
    assert first_failing(found, {}, {"other": 4, "n": 5}) is None
    assert first_failing(found, {}, {"other": 1, "n": 5}) == ("other >= 2 and n != other", "(1, 5)", "")
