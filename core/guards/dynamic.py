"""What is symbolic: sizes and numbers that took another value before, or that the user says change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from jitney.config import config
from jitney.guards import Source


@dataclass
class ObservedValues:
    """What the captures of one code object have found, by the source's name.

    Args:
        dynamic: what the user wrote in ``dynamic=``.
        sizes: of tensors; None where a size has changed.
        numbers: ints and floats; None where one has changed.
        steady: whatever was asked for with ``is_steady``, as it was at first.
        ran: is there a call that ran without being captured?
    """

    dynamic: bool | None
    sizes: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    numbers: dict[str, int | float | None] = field(default_factory=dict)
    steady: dict[str, Any] = field(default_factory=dict)
    ran: bool = False

    def forget(self) -> None:
        """Start anew."""
        self.sizes.clear()
        self.numbers.clear()
        self.steady.clear()
        self.ran = False

    def copy(self) -> ObservedValues:
        """As it is now."""
        return ObservedValues(self.dynamic, {**self.sizes}, {**self.numbers}, {**self.steady}, self.ran)

    def add_sizes(self, sizes: Mapping[str, tuple[int | None, ...]]) -> None:
        """Sizes that a frame of an earlier process was captured for, by the source's name."""
        for name, found in sizes.items():
            self.sizes.setdefault(name, found)

    def add_arguments(self, arguments: Mapping[str, Any]) -> None:
        """A call that is not captured: its sizes and numbers, in lists and tuples too."""
        self.ran = True
        todo = [(Source(None, "local", name), value) for name, value in arguments.items()]
        for source, value in todo:
            if isinstance(value, torch.Tensor):
                self.dynamic_dims(value, source)
            elif type(value) in (int, float):
                self.is_dynamic(source, value)
            elif type(value) in (list, tuple):
                todo += [(source.item(i), item) for i, item in enumerate(value)]

    def dynamic_dims(self, real: Any, source: Source) -> list[bool]:
        """Which sizes of a tensor are symbolic: marked, asked for, or seen with another value before."""
        sizes = tuple(real.shape)
        marked = getattr(real, "_jitney_dynamic", frozenset()) | getattr(real, "_dynamo_dynamic_indices", frozenset())
        static = getattr(real, "_jitney_static", frozenset()) | getattr(real, "_dynamo_static_indices", frozenset())
        old = self.sizes.get(source.name)
        new: tuple[int | None, ...] = sizes
        if old is not None and len(old) == len(sizes):
            new = tuple(a if a == b else None for a, b in zip(old, sizes, strict=True))
        self.sizes[source.name] = new
        if self.dynamic is False:
            return [i in marked for i in range(len(sizes))]
        if isinstance(real, torch.nn.Parameter) and not marked:
            return [False] * len(sizes)
        everything = self.dynamic is True or not config.assume_static_by_default
        changed = [n is None and config.automatic_dynamic_shapes for n in new]
        return [
            (i in marked or everything or changed[i]) and i not in static and sizes[i] > 1 for i in range(len(sizes))
        ]

    def foresee(self, real: Any, source: Source, sizes: tuple[int | None, ...]) -> bool:
        """A call leaves another tensor at this source, of these sizes (None: any): does that make one symbolic?"""
        before = self.dynamic_dims(real, source)
        seen = self.sizes[source.name]
        self.sizes[source.name] = tuple(a if a == b else None for a, b in zip(seen, sizes, strict=True))
        return self.dynamic_dims(real, source) != before

    def is_dynamic(self, source: Source, value: int | float) -> bool:
        """Is this number symbolic? An int or float that took another value before is, unless it is infinite or NaN."""
        if isinstance(value, float) and not math.isfinite(value):
            return False
        if self.dynamic is False or not config.automatic_dynamic_shapes:
            return False
        old = self.numbers.setdefault(source.name, value)
        if old is None or old != value:
            self.numbers[source.name] = None
            return value != 0
        return False

    def is_steady(self, source: Source, value: Any) -> bool:
        """Has this value been the same in every capture so far?"""
        return bool(self.steady.setdefault(source.name, value) == value)
