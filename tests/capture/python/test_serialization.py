"""JSON and pickles in captured code: texts of plain values, and values of texts."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
import torch
from helpers import Compiled, check, check_scenario, t


def configured(x: torch.Tensor, k: int) -> Any:
    config = json.loads('{"a": [1, 2, %d], "b": {"c": 0.5}}' % k)
    config["a"].append(k)
    return x * sum(config["a"]) * config["b"]["c"], json.dumps({"k": k, "shape": list(x.shape)}, indent=2), config


def test_json_is_part_of_the_graph() -> None:
    check(configured, t(2), 3, graphs=1, breaks=0)
    compiled = Compiled(configured)
    for k in (1, 2, 3):
        compiled(t(k), k)


def test_what_is_written_is_guarded() -> None:
    def writes(x: torch.Tensor, values: Any) -> Any:
        values["n"] = values.get("n", 0) + 1
        return x * 2, json.dumps(values, sort_keys=True)

    def scenario(compiled: Any) -> Any:
        fn, values = compiled(writes), {"deep": [{"a": 1.0}, None], "t": (True, "x")}
        results = [fn(t(2), values), fn(t(2), values)]
        values["deep"][0]["a"] = 2
        return [*results, fn(t(2), values)]

    check_scenario(scenario)


class Text(dict[str, Any]):
    def items(self) -> Any:
        return [("other", 1)]


@pytest.mark.parametrize("value", [{1, 2}, Text(a=1), {"a": {"b": torch.float32}}], ids=["set", "subclass", "dtype"])
def test_what_json_decides_by_itself(value: Any) -> None:
    def writes(x: torch.Tensor) -> Any:
        try:
            return x * 2, json.dumps(value)
        except TypeError as error:
            return x, str(error)

    check(writes, t(2))


def test_a_text_that_is_no_json() -> None:
    def reads(x: torch.Tensor, text: str) -> Any:
        try:
            return x * 2, json.loads(text)
        except json.JSONDecodeError as error:
            return x, str(error), error.pos

    check(reads, t(2), "[1, 2")


def test_pickles_of_plain_values_are_part_of_the_graph() -> None:
    cache: dict[bytes, int] = {}

    def remembered(x: torch.Tensor, *given: Any, **named: Any) -> Any:
        key = pickle.dumps((given, named))
        cache[key] = cache.get(key, 0) + 1
        return x * 2, key

    def scenario(compile: Any) -> Any:
        cache.clear()
        fn, values = compile(remembered), [1, (2.5, None), {"a": b"b"}]
        told = [fn(t(2)), fn(t(2), 3, name="of"), fn(t(3), values), fn(t(2), 3, name="of")]
        values.append(True)
        return [*told, fn(t(3), values), {key: n for key, n in cache.items()}]

    check_scenario(scenario)
    check(lambda x, **named: (x + 1, pickle.dumps(named)), t(2), width=3, name="of", graphs=1, breaks=0)
    for value in (["of", "o" + "f"], [shared := [1], shared], [torch.float32], Text(a=1)):
        check(lambda x, value: (x + 1, len(pickle.dumps(value))), t(2), value, breaks=1)
