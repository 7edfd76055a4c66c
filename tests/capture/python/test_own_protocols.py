"""Lists and dictionaries from outside whose classes count and iterate in their own way: guards run none of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from helpers import compile_fn, observe, t

CALLS: list[str] = []


class History(list[float]):
    """Shows its first two items only."""

    def __len__(self) -> int:
        CALLS.append("len")
        return min(2, super().__len__())

    def __iter__(self) -> Iterator[float]:
        CALLS.append("iter")
        for i in range(len(self)):
            yield super().__getitem__(i)

    def last(self) -> float:
        return super().__getitem__(-1)


class Headers(dict[str, Any]):
    """Keys in any case."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key.lower(), value)

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key.lower())

    def __contains__(self, key: object) -> bool:
        return super().__contains__(str(key).lower())

    def __len__(self) -> int:
        CALLS.append("len")
        return super().__len__() + 100

    def __iter__(self) -> Iterator[str]:
        CALLS.append("iter")
        return (key.upper() for key in super().__iter__())

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default


def writes_history(x: torch.Tensor, found: History) -> Any:
    found.append(float(len(found)))
    list.append(found, 7.0)
    y = x * sum(found) + found.last()
    found[0] = found[0] + 1
    return y, list(found), bool(found), 7.0 in found, [*list.__iter__(found)]


def writes_headers(x: torch.Tensor, found: Headers) -> Any:
    found["New"] = x.shape[0]
    y = x * found["a"] + found.get("B", 0) + found.get("none", 5)
    return y, len(found), list(found), "NEW" in found, sorted(found.keys()), {k: found[k] for k in found}


def reads_headers(x: torch.Tensor, found: Headers) -> Any:
    return x * sum(dict.values(found)), dict.__len__(found)


def test_they_do_as_in_eager() -> None:
    for fn, make in (
        (writes_history, lambda: History([1.0, 2.0, 3.0])),
        (writes_headers, lambda: Headers(a=1.0, b=2.0)),
        (reads_headers, lambda: Headers(a=1.0, b=2.0)),
    ):
        ends = []
        for call in (fn, compile_fn(fn, fullgraph=True)):
            held: Any = make()
            results = [call(t(3), held) for _ in range(3)]
            kept = list.copy(held) if isinstance(held, list) else list(dict.items(held))
            ends.append(([(r[0].tolist(), *r[1:]) for r in results], kept))
        assert ends[0] == ends[1]


def test_what_they_hold_is_guarded() -> None:
    held = Headers(a=1.0)
    CALLS.clear()
    compiled = compile_fn(reads_headers, fullgraph=True)
    with observe() as seen:
        for n in (1, 1, 2, 2):
            dict.__setitem__(held, "a", float(n))
            assert compiled(t(3), held)[0].tolist() == (t(3) * n).tolist()
        dict.__setitem__(held, "b", 1.0)
        assert compiled(t(3), held)[0].tolist() == (t(3) * 3).tolist()
    assert len(seen.graphs) == 3 and not CALLS


class Pages(list[float]):
    """Its last item does not count."""

    def __len__(self) -> int:
        CALLS.append("len")
        return max(0, super().__len__() - 1)


class Columns(dict[str, float]):
    """Its last item does not count."""

    def __len__(self) -> int:
        CALLS.append("len")
        return max(0, super().__len__() - 1)


def total(x: torch.Tensor, held: Any) -> torch.Tensor:
    for value in held.values() if isinstance(held, dict) else held:
        x = x + value
    return x


def branches(x: torch.Tensor, held: Any) -> Any:
    y = total(x, held)
    y = y * 2 if held else y * 3
    n = 0
    while held and n < 2:
        n += 1
    return y, not held, bool(held), n, bool(held and 1), bool(held or 0), any([held]), len([*filter(None, [held])])


def branches_unread(x: torch.Tensor, held: Any) -> Any:
    return x * 2 if held else x * 3


def branches_written(x: torch.Tensor, held: Any) -> Any:
    held.clear()
    return x * 2 if held else x * 3


def test_truth_asks_the_length_of_the_class() -> None:
    for fn in (branches, branches_unread, branches_written):
        for kind, items in ((Pages, [1.0, 2.0]), (Columns, [("a", 1.0), ("b", 2.0)])):
            compiled = compile_fn(fn, fullgraph=True)
            for count in (1, 2, 0, 1):
                seen = []
                for call in (fn, compiled):
                    CALLS.clear()
                    seen.append((str(call(t(3), kind(items[:count]))), [*CALLS]))
                assert seen[0] == seen[1], (fn.__name__, kind.__name__, count)


class Irrep(tuple[int, int]):
    """A pair that is not to be counted."""

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def degree(self) -> int:
        return self[0]


class Short(tuple[float, ...]):
    """Its last item does not count."""

    def __len__(self) -> int:
        CALLS.append("len")
        return max(0, super().__len__() - 1)


def test_tuples_are_counted_by_no_method_of_their_class() -> None:
    held: dict[str, Any] = {"of": Irrep((2, 1)), "short": Short()}

    def fn(x: torch.Tensor) -> Any:
        return x * held["of"].degree + (1 if held["short"] else 2), len(held["short"]), held["of"]

    compiled = compile_fn(fn, fullgraph=True)
    for degree, short in ((2, ()), (2, ()), (3, (1.0,)), (3, (1.0, 2.0)), (3, (1.0, 2.0))):
        held.update(of=Irrep((degree, 1)), short=Short(short))
        seen = []
        for call in (fn, compiled):
            CALLS.clear()
            y, count, of = call(t(3))
            seen.append((y.tolist(), count, of is held["of"], [*CALLS]))
        assert seen[0] == seen[1]
