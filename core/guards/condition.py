"""What must hold between several values, sizes and numbers that change mostly: told when no single guard has failed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jitney.guards import pristine
from jitney.guards.checks import brief
from jitney.guards.pool import Pool
from jitney.guards.source import Source

MODULES = {"_math": math, "_torch": torch}
_NAMES = {"_b": pristine, **MODULES}
_PLACE = re.compile(r"\b_place\d+\b")


@dataclass(frozen=True)
class Condition:
    """Python text over places, and where the value at each place is."""

    code: str
    places: Mapping[str, Source]

    @property
    def text(self) -> str:
        """For people: ``1 + self.last_epoch <= 100``."""
        return _PLACE.sub(lambda place: self.places[place.group()].name, self.code).replace("_math.", "math.")

    def of(self, values: str) -> str:
        """The text over a tuple of this name, with the values in the order of places; or over a single value."""
        one = len(self.places) == 1
        order = {place: values if one else f"{values}[{n}]" for n, place in enumerate(self.places)}
        return _PLACE.sub(lambda place: order[place.group()], self.code)


def conditions(told: Callable[[Callable[[Source], str]], Iterable[str]]) -> list[Condition]:
    """Conditions of which each asks for the name of every source that it reads.

    Args:
        told: their texts, given a function from a source to a name.
    """
    places: dict[str, Source] = {}
    names: dict[int, str] = {}

    def name(source: Source) -> str:
        found = names.setdefault(id(source), f"_place{len(names)}")
        places[found] = source
        return found

    return [Condition(code, {p: places[p] for p in dict.fromkeys(_PLACE.findall(code))}) for code in told(name)]


def first_unmet(found: Iterable[Condition], scope: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first condition that does not hold in this scope, as text, and the values that it found there."""
    pool = Pool({**scope, **_NAMES})
    for condition in found:
        values: dict[str, Any] = {}
        try:
            for place, source in condition.places.items():
                values[place] = eval(source.path(pool), pool.namespace)
            if eval(condition.code, {**pool.namespace, **values}):
                continue
        except Exception as error:  # paths and conditions may run the user's code, as guards do
            return condition.text, f"{type(error).__name__}: {error}"
        return condition.text, ", ".join(f"{condition.places[p].name} = {brief(v)}" for p, v in values.items())
    return None
