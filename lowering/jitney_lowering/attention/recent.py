"""The last few of what is made on demand: what a process makes for each size must not grow with its requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from jitney._util.forks import reentrant_lock

T = TypeVar("T")


class Recent(Generic[T]):
    """What was made for the keys that were asked for last.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = reentrant_lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` has made for this key; two threads may make it at once, and one of both is kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            made = self._kept.setdefault(key, made)
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return made
