"""functools, collections, math, copy, string methods, sets and dicts, builtins."""

from __future__ import annotations

import collections
import copy
import functools
import heapq
import math
import re
import string
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, check_made, t

import jitney

Fn = Callable[..., Any]

# Each takes a tensor and returns something that depends on it, so that a graph must be captured too.
FUNCTOOLS: dict[str, Fn] = {
    "partial": lambda x: functools.partial(torch.add, x, alpha=2)(x),
    "partial keywords": lambda x: functools.partial(lambda a, b, c=1: a * b + c, b=3)(x, c=5),
    "partial nested": lambda x: functools.partial(functools.partial(lambda *a, **k: (a, k), 1, z=1), 2, y=x + 1)(3),
    "reduce": lambda x: functools.reduce(lambda a, b: a + b, [x, x * 2, x * 3]),
    "reduce initial": lambda x: functools.reduce(lambda a, b: a * b, [1, 2, 3], x),
    "cmp_to_key": lambda x: (sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)), x + 1),
}
COLLECTIONS: dict[str, Fn] = {
    "deque": lambda x: _deque(x),
    "OrderedDict": lambda x: _ordered(x),
    "defaultdict": lambda x: _defaultdict(x),
    "Counter": lambda x: (
        collections.Counter("hello").most_common(2),
        collections.Counter(a=3) - collections.Counter(a=1),
        x + 1,
    ),
    "Counter arithmetic": lambda x: x * (collections.Counter("aab") + collections.Counter("b"))["b"],
    "ChainMap": lambda x: (lambda m: (m["a"], m["b"], list(m), len(m), x + m["b"]))(
        collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    ),
    "namedtuple inside": lambda x: collections.namedtuple("P", "a b")(x, x + 1),
    "heapq": lambda x: (lambda h: (heapq.heapify(h), heapq.heappush(h, 0), heapq.heappop(h), h, x + h[0]))([3, 1, 2]),
}
MATH: dict[str, Fn] = {
    "sqrt": lambda x, n: x * math.sqrt(n),
    "several": lambda x, n: (
        math.floor(n / 3),
        math.ceil(n / 3),
        math.prod([n, 2]),
        math.gcd(n, 6),
        math.log2(n),
        x / math.pi,
    ),
    "trig": lambda x, n: x * (math.sin(n) + math.cos(n) + math.exp(-n) + math.tanh(n)),
    "tests": lambda x, n: (math.isclose(n, n + 1e-12), math.isinf(n), math.isnan(float("nan")), math.inf > n, x + 1),
    "comb": lambda x, n: (
        x + math.comb(n, 2) + math.factorial(4) + math.copysign(1.0, -n) + math.fabs(-n) + math.trunc(n / 2)
    ),
}
STRINGS: dict[str, Fn] = {
    "case": lambda x, s: (s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), x + len(s)),
    "split and join": lambda x, s: (
        s.split(),
        "-".join(s.split(",")),
        s.rsplit(" ", 1),
        s.partition(" "),
        s.splitlines(),
        x + 1,
    ),
    "find": lambda x, s: (
        s.find("o"),
        s.index("l"),
        s.count("l"),
        s.startswith(("He", "x")),
        s.endswith("d"),
        "W" in s,
        x + 1,
    ),
    "strip and replace": lambda x, s: (
        s.strip("Hd"),
        s.replace("l", "L", 1),
        s.removeprefix("He"),
        s.removesuffix("ld"),
        x + 1,
    ),
    "tests": lambda x, s: (
        s.isdigit(),
        "12".isdigit(),
        s.isalpha(),
        s.isupper(),
        s.isidentifier(),
        " ".isspace(),
        x + 1,
    ),
    "pad": lambda x, s: (s.center(20, "*"), s.ljust(15), s.rjust(15), "7".zfill(3), s.expandtabs(), x + 1),
    "encode": lambda x, s: (s.encode("utf-8"), b"abc".decode(), s.translate(str.maketrans("lo", "01")), x + 1),
    "index": lambda x, s: (s[0], s[-1], s[1:4], s[::-1], [c for c in s[:2]], ord(s[0]), chr(65), x + ord(s[0])),
    "compare": lambda x, s: (s < "zzz", s == "Hello World", max(s), sorted(set(s)), s * 2, x + 1),
    "format": lambda x, s: (
        "{:>12}|{:<5}|{:^5}".format(s, 1, 2),
        "{a[0]}{b.__class__.__name__}".format(a=[1], b=s),
        x + 1,
    ),
    "regex": lambda x, s: (
        re.sub("o", "0", s),
        re.findall(r"\w+", s),
        bool(re.match("Hello", s)),
        x + len(re.split(" ", s)),
    ),
}
SETS: dict[str, Fn] = {
    "algebra": lambda x, a, b: (a | b, a & b, a - b, a ^ b, x + len(a | b)),
    "methods": lambda x, a, b: (a.union(b, [9]), a.intersection(b), a.difference(b), a.symmetric_difference(b), x + 1),
    "comparisons": lambda x, a, b: (a <= b, a < b, a >= a, a.isdisjoint(b), a.issubset(a | b), a == {1, 2, 3}, x + 1),
    "frozenset": lambda x, a, b: (
        frozenset(a) | b,
        {frozenset(a): 1}[frozenset([1, 2, 3])],
        frozenset("ab") <= {"a", "b"},
        x + 1,
    ),
    "made inside": lambda x, a, b: (
        lambda s: (s.add(1), s.update([2, 3]), s.discard(9), s.pop() in (1, 2, 3), x + len(s))
    )(set()),
    "loop": lambda x, a, b: [x + i for i in sorted(a | b)],
    "of tensors": lambda x, a, b: (len({x, x, x.detach()}), x in {x}, x + 1),
}
DICTS: dict[str, Fn] = {
    "views": lambda x, d: (list(d), list(d.keys()), list(d.values()), list(d.items()), len(d), x + d["a"]),
    "view sets": lambda x, d: (d.keys() & {"a"}, d.keys() | {"z"}, d.items() - {("a", 1)}, "a" in d.keys(), x + 1),  # noqa: SIM118
    "get": lambda x, d: (d.get("a"), d.get("z"), d.get("z", 5), x + d.get("a", 0)),
    "merge": lambda x, d: (d | {"a": 10, "n": x}, {**d, "a": 5}, dict(d, b=7), x + 1),
    "construct": lambda x, d: (
        dict([("p", 1), ("q", x)]),
        dict(zip("ab", (1, 2), strict=True)),
        dict.fromkeys("ab", 0),
        dict(k=x + 1),
    ),
    "nested": lambda x, d: (lambda n: (n.setdefault("l", {}).setdefault("m", []).append(x), n)[1])({}),
    "keys of every kind": lambda x, d: {
        "s": 2,
        (1, "t"): 3,
        None: 4,
        2.5: 5,
        True: 6,
        torch.float32: 7,
        torch.relu: 8,
    },
    "tensor keys": lambda x, d: (lambda m: (m[x], len(m), x in m))({x: "value"}),
    "order": lambda x, d: (lambda m: (m.pop("a"), m.update(a=1), list(m), list(reversed(m)), x + 1))(dict(d)),
    "equality": lambda x, d: (d == {"b": 2, "a": 1}, d != {}, d == dict(d), bool(d), bool({}), x + 1),
    "errors": lambda x, d: (_error(lambda: d["zzz"]), _error(lambda: {}.popitem()), _error(lambda: {[]: 1}), x + 1),
    "sorted by value": lambda x, d: (
        sorted(d, key=d.get, reverse=True),
        max(d, key=d.__getitem__),
        min(d.items(), key=lambda i: -i[1]),
        x + 1,
    ),  # fmt: skip
    "comprehension over items": lambda x, d: {k: {kk: x * v for kk in "xy"} for k, v in d.items()},
}
BUILTINS: dict[str, Fn] = {
    "numbers": lambda x: (
        abs(-3),
        round(2.567, 2),
        round(7.5),
        divmod(7, 2),
        pow(2, 5),
        pow(2, 5, 7),
        min(3, 1),
        max([1, 5]),
        x + 1,
    ),
    "conversions": lambda x: (
        int("12"),
        int(2.9),
        float("1.5"),
        str(3),
        bool(""),
        bytes([65]),
        list("ab"),
        tuple([1]),
        set([1]),
        complex(1, 2),
        x + 1,
    ),  # fmt: skip
    "sum": lambda x: (sum([1, 2, 3]), sum([x, x]), sum([[1], [2]], []), sum((x * i for i in range(3)), x)),
    "any all": lambda x: (
        any([0, 1]),
        all([]),
        any(i > 2 for i in range(3)),
        all(s.islower() for s in ("a", "b")),
        x + 1,
    ),
    "min max": lambda x: (
        min([], default=0),
        max("ab", "c", key=len),
        min([(2, "a"), (1, "b")]),
        max(1, 2.5),
        x + min(4, 3),
    ),
    "sorted": lambda x: (
        sorted([3, 1, 2]),
        sorted("bca", reverse=True),
        sorted([(1, "b"), (0, "a")], key=lambda p: p[1]),
        x + 1,
    ),
    "len": lambda x: (len([1]), len("ab"), len({}), len(x), len(range(5)), len((1, 2)), x + len(x)),
    "range": lambda x: (
        list(range(3)),
        range(10)[2:5],
        3 in range(5),
        range(5).index(3),
        len(range(0, 10, 3)),
        [x + i for i in range(-1, 1)],
    ),
    "enumerate zip map filter": lambda x: (
        list(enumerate("ab")),
        list(zip("ab", [1, 2], strict=True)),
        list(map(str, [1])),
        list(filter(None, [0, 2])),
        x + 1,
    ),  # fmt: skip
    "iter next": lambda x: (lambda it: (next(it), next(it, 9), next(it, 9), x + 1))(iter([1, 2])),
    "getattr": lambda x: (
        getattr(x, "shape"),
        getattr(x, "nope", None),
        hasattr(x, "dtype"),
        hasattr(x, "zz"),
        getattr(torch, "relu")(x),
    ),
    "callable and type": lambda x: (callable(len), callable(3), type(3), type(x), isinstance(3, (int, str)), x + 1),
    "ord chr hex": lambda x: (
        ord("a"),
        chr(98),
        hex(255),
        bin(5),
        oct(8),
        ascii("é"),
        repr("x"),
        hash("a") == hash("a"),
        x + ord("b"),
    ),
    "slice": lambda x: (list(range(5))[slice(1, 4, 2)], x[slice(0, 2)]),
    "id and is": lambda x: (id(x) == id(x), x is x, x + 1),
    "print to buffer": lambda x: (x + 1, print("text", end=""), x * 2),
    "copy": lambda x: (lambda a: (copy.copy(a) is a, copy.copy(a)[0] is a[0], copy.deepcopy([1, [2]])))([[x]]),
    "reversed": lambda x: (list(reversed([1, 2])), list(reversed(range(3))), [v for v in reversed((x, x + 1))]),
    "format": lambda x: (format(3.14159, ".2f"), format(255, "x"), format("s", ">4"), x + 1),
}


def _deque(x: torch.Tensor) -> Any:
    d: collections.deque[Any] = collections.deque([1, 2], maxlen=3)
    d.append(x)
    d.append(3)
    d.appendleft(0)
    left = d.popleft()
    d.extendleft([7, 8])
    return d, left, d[0], len(d), d.maxlen, list(reversed(d)), 7 in d, x + d[0]


def _ordered(x: torch.Tensor) -> Any:
    d = collections.OrderedDict(a=1, b=x)
    d["c"] = 3
    d.move_to_end("a")
    first = d.popitem(last=False)
    return d, first, list(d), d == collections.OrderedDict(c=3, a=1), x + 1


def _defaultdict(x: torch.Tensor) -> Any:
    d: Any = collections.defaultdict(list)
    for i in range(4):
        d[i % 2].append(x + i)
    counts: Any = collections.defaultdict(int, start=5)
    counts["a"] += 1
    nested: Any = collections.defaultdict(lambda: collections.defaultdict(int))
    nested["p"]["q"] += 2
    return d, counts, dict(nested["p"]), "zz" in d


def _error(f: Fn) -> str:
    try:
        f()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "no error"


@pytest.mark.parametrize("name", FUNCTOOLS)
def test_functools(name: str) -> None:
    check(FUNCTOOLS[name], t())


@pytest.mark.parametrize("name", COLLECTIONS)
def test_collections(name: str) -> None:
    check(COLLECTIONS[name], t())


@pytest.mark.parametrize("name", MATH)
def test_math(name: str) -> None:
    check(MATH[name], t(), 8, graphs=1)


@pytest.mark.parametrize("name", STRINGS)
def test_string_methods(name: str) -> None:
    check(STRINGS[name], t(), "Hello World")


@pytest.mark.parametrize("name", SETS)
def test_sets(name: str) -> None:
    check(SETS[name], t(), {1, 2, 3}, {3, 4})


@pytest.mark.parametrize("name", DICTS)
def test_dicts(name: str) -> None:
    check(DICTS[name], t(), {"a": 1, "b": 2})


@pytest.mark.parametrize("name", BUILTINS)
def test_builtins(name: str) -> None:
    check(BUILTINS[name], t())


def test_lru_cache_and_cache() -> None:
    def make() -> Any:
        calls: list[int] = []

        @functools.lru_cache(maxsize=None)
        def table(n: int) -> int:
            calls.append(n)
            return n * n

        @functools.cache
        def ones(n: int) -> torch.Tensor:
            return torch.ones(n)

        return (lambda x: x * table(3) + table(3) + ones(3)), None

    check_made(make, t(), skips=None)


def test_cached_property() -> None:
    class Lazy:
        def __init__(self) -> None:
            self.computed = 0

        @functools.cached_property
        def value(self) -> int:
            self.computed += 1
            return self.computed * 10

    def fn(x: torch.Tensor, lazy: Lazy) -> tuple[Any, ...]:
        new = Lazy()
        return x + lazy.value + lazy.value, lazy.computed, new.value, new.value, "value" in new.__dict__

    check(fn, t(), Lazy(), calls=3)


def test_singledispatch_and_partialmethod() -> None:
    @functools.singledispatch
    def describe(v: Any) -> str:
        return "other"

    @describe.register
    def _(v: int) -> str:
        return "int"

    @describe.register(list)
    def _(v: Any) -> str:
        return "list"

    class Light:
        def set(self, state: str, x: torch.Tensor) -> tuple[str, torch.Tensor]:
            return state, x + len(state)

        on = functools.partialmethod(set, "on")

    check(lambda x: (describe(1), describe([]), describe("s"), describe(True), Light().on(x)), t())


def test_singledispatch_on_tensor() -> None:
    @functools.singledispatch
    def apply(v: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @apply.register(torch.Tensor)
    def _(v: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return v + x

    check(lambda x: apply(x, x), t())


def test_copy_of_tensors_and_modules() -> None:
    def fn(x: torch.Tensor, box: list[Any]) -> tuple[Any, ...]:
        shallow = copy.copy(box)
        deep = copy.deepcopy(box)
        deep[0].add_(1)
        return shallow[0] is box[0], deep, box, x + 1

    check(fn, t(), [t(), [1, 2]])


def test_random_module_and_numpy_stay_in_step() -> None:
    import random

    import numpy as np

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x + random.random()
        k = random.randint(0, 10)
        items = [1, 2, 3]
        random.shuffle(items)
        return y, k, items, random.choice("abc"), x + float(np.random.rand())

    check(fn, t(), calls=3, skips=None)


def test_time_and_environment() -> None:
    import os
    import time

    check(
        lambda x: (time.time() > 0, os.environ.get("NO_SUCH_VARIABLE", "default"), os.path.join("a", "b"), x + 1), t()
    )


def test_itemgetter_sort_and_bisect() -> None:
    import bisect
    from operator import itemgetter

    check(
        lambda x: (
            sorted([(2, "a"), (1, "b")], key=itemgetter(0)),
            bisect.bisect([1, 3, 5], 4),
            x + bisect.bisect_left([1, 2], 2),
        ),
        t(),
    )


def test_numpy_scalars_and_arrays_as_constants() -> None:
    import numpy as np

    def fn(x: torch.Tensor, a: Any, s: Any) -> tuple[Any, ...]:
        return x + float(s), x * int(np.prod([2, 3])), torch.from_numpy(a) + x, np.float32(1.5) * 2

    check(fn, t(), np.array([1.0, 2.0, 3.0], dtype=np.float32), np.float64(2.5), skips=None)


def test_warnings_are_shown() -> None:
    import warnings

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        warnings.warn("careful", UserWarning, stacklevel=2)
        return y * 2

    check(fn, t())


def test_sum_with_a_start() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        parts = [x, x * 2]
        by_keyword = sum((p + 1 for p in parts), start=x * 10)
        return by_keyword, sum(parts, x * 5), sum(parts), sum([1, 2], start=3), sum((i for i in (1, 2)), 4)

    check(fn, t(), graphs=1)


def test_what_the_standard_library_looks_into_may_be_another_object_at_each_call() -> None:
    def texts(x: torch.Tensor, template: string.Template) -> torch.Tensor:
        return x * len(template.substitute(a="q"))

    def kinds(x: torch.Tensor, kind: Any) -> torch.Tensor:
        return x * typing.get_args(kind)[0]

    compiled, other = jitney.compile(texts, backend="eager"), jitney.compile(kinds, backend="eager")
    for number in (2, 3):
        x = torch.ones(2)
        assert torch.equal(compiled(x, string.Template("$a" * number)), x * number)
        assert torch.equal(other(x, typing.Literal[number]), x * number)  # type: ignore[valid-type]
