"""What leads to an object of a frame from disk is read before the guards: nothing of the program's may run for it."""

from __future__ import annotations

import collections
import functools
import types
from typing import Any

import pytest
from cache.again import run

from jitney.cache.source_steps import attribute, step

RAN: list[str] = []


class Odd(dict[str, int]):
    plain = 3
    method = staticmethod(len)

    def __getitem__(self, key: str) -> int:
        RAN.append("item")
        return 0

    @property
    def computed(self) -> int:
        RAN.append("property")
        return 0

    @functools.cached_property
    def cached(self) -> int:
        RAN.append("cached")
        return 0

    def __getattr__(self, name: str) -> int:
        RAN.append("getattr")
        return 0


class Everything:
    def __getattribute__(self, name: str) -> int:
        RAN.append("getattribute")
        return 0


class Descriptor:
    def __get__(self, owner: Any, cls: Any) -> int:
        RAN.append("get")
        return 0


class Holder:
    part = Descriptor()
    own = 1


@pytest.mark.parametrize(
    ("value", "kind", "key"),
    [
        (Odd(a=1), "item", "a"),
        (Odd(a=1), "attr", "computed"),
        (Odd(a=1), "attr", "cached"),
        (Odd(a=1), "attr", "absent"),
        (Everything(), "attr", "a"),
        (Everything(), "dict_of", None),
        (Holder(), "attr", "part"),
        (Holder, "attr", "part"),
        (collections.defaultdict(lambda: RAN.append("missing")), "item", "a"),
        (collections.defaultdict(lambda: RAN.append("missing")), "dict_item", "a"),
    ],
)
def test_a_step_that_would_run_the_programs_code_is_refused(value: Any, kind: str, key: Any) -> None:
    RAN.clear()
    with pytest.raises(LookupError, match="which has its own way to read it"):
        step(value, kind, key)
    assert not RAN


def test_other_steps_are_taken() -> None:
    RAN.clear()
    odd, holder, module = Odd(a=1), Holder(), types.ModuleType("module")
    odd.__dict__["cached"] = 5
    holder.part = 6
    module.__dict__["x"] = 7
    assert (attribute(odd, "plain"), attribute(odd, "method"), attribute(odd, "cached")) == (3, len, 5)
    assert (attribute(holder, "part"), attribute(Holder, "own"), attribute(module, "x")) == (6, 1, 7)
    assert (step(odd, "dict_item", "a"), step([1, 2], "item", 1), step({1: 2}, "keys", None)) == (1, 2, [1])
    assert attribute(functools, "partial") is functools.partial
    assert attribute(Odd, "computed") is vars(Odd)["computed"]
    assert attribute(Odd, "cached") is vars(Odd)["cached"]
    assert not RAN
    with pytest.raises(KeyError):
        step({}, "item", "a")


def test_an_argument_of_another_class_is_not_read_twice() -> None:
    text = """
        LOG, dict = [], dict
        class Table(dict):
            def __getitem__(self, key):
                LOG.append(key)
                return dict.__getitem__(self, key)
        def plain(): return {"f": lambda x: x * 2}
        def fn(table, x):
            y = x + 1
            print("between")
            return table["f"](y)
    """

    def called(kind: str) -> Any:
        def call(function: Any, module: Any) -> Any:
            table = getattr(module, kind)(module.plain())
            return function(table, module.torch.ones(3)).tolist(), module.LOG

        found, expected, _ = run(text, call)
        assert found == expected
        return found

    assert called("dict") == ([4.0] * 3, [])
    assert called("Table") == ([4.0] * 3, ["f"])
