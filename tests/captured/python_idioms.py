"""Programs with idioms of Python's: subclasses as inputs, classes made inside, iterators, caches, messages."""

from __future__ import annotations

import abc
import bisect
import collections
import contextlib
import copy
import dataclasses
import datetime
import enum
import functools
import heapq
import itertools
import json
import logging
import math
import operator
import random
import re
import typing
import warnings
import weakref
from typing import Any

import numpy as np
import torch
from captured.table import Made, Table, t
from torch import nn

program = Table()
logger = logging.getLogger(__name__)


class Mode(str, enum.Enum):
    """What configurations hold."""

    TRAIN = "train"
    TEST = "test"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Name(str):
    """A subclass of str."""


class Count(int):
    """A subclass of int."""


class Rate(float):
    """A subclass of float."""


class Config(dict):  # type: ignore[type-arg]
    """A dictionary with attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Stack(list):  # type: ignore[type-arg]
    """A list with a method."""

    def total(self) -> Any:
        return sum(self)


@program()
def string_enum_input() -> Made:
    return lambda x, mode: x * 2 if mode == "train" else x, t(), Mode.TRAIN


@program()
def integer_enum_input() -> Made:
    return lambda x, level: x * level + int(level), t(), Level.HIGH


@program()
def string_subclass_input() -> Made:
    return lambda x, name: x * 2 if name == "a" or name.startswith("b") else x, t(), Name("b1")


@program()
def integer_subclass_input() -> Made:
    return lambda x, n: x.repeat(n, 1) * n + (n + 1), t(), Count(3)


@program()
def float_subclass_input() -> Made:
    return lambda x, rate: x * rate + rate / 2, t(), Rate(0.5)


@program()
def numpy_float_input() -> Made:
    return lambda x, rate: x * float(rate), t(), np.float64(0.25)


@program()
def dictionary_subclass_input() -> Made:
    return lambda x, config: x * config.scale + config["shift"], t(), Config(scale=2, shift=1)


@program()
def list_subclass_input() -> Made:
    return lambda x, s: x * s.total() + len(s), t(), Stack([1, 2])


@program()
def dictionary_of_enums() -> Made:
    table = {Mode.TRAIN: 2, Mode.TEST: 3}
    return lambda x, mode: x * table[mode] + len(mode.value), t(), Mode.TEST


@dataclasses.dataclass
class Output:
    """What a model returns."""

    logits: torch.Tensor
    hidden: torch.Tensor | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


@program()
def dataclass_made_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        out = Output(x * 2)
        out = dataclasses.replace(out, hidden=out.logits + 1)
        out.extra["n"] = x.shape[0]
        return out

    return f, t()


@program(graphs=2)
def dataclass_defined_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        @dataclasses.dataclass
        class Pair:
            a: torch.Tensor
            b: int = 2

        pair = Pair(x)
        return pair.a * pair.b

    return f, t()


@program()
def dataclass_fields_and_asdict() -> Made:
    def f(x: torch.Tensor) -> Any:
        out = Output(x * 2, x)
        names = [field.name for field in dataclasses.fields(out)]
        return {name: getattr(out, name) for name in names if name != "extra"}

    return f, t()


@dataclasses.dataclass(frozen=True)
class Shape:
    """A frozen dataclass, a key."""

    height: int
    width: int


@program(breaks=True)
def frozen_dataclass_as_a_key() -> Made:
    def f(x: torch.Tensor) -> Any:
        cache = {Shape(4, 6): 2.0}
        return x * cache[Shape(x.shape[0], x.shape[1])]

    return f, t()


Point = collections.namedtuple("Point", ["x", "y"])


class Typed(typing.NamedTuple):
    """A typed one."""

    a: torch.Tensor
    b: int = 3


@program()
def namedtuples_made_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        p = Point(x, y=x + 1)._replace(y=x * 2)
        q = Typed(p.x)
        return p, q.a * q.b, p._asdict()["x"]

    return f, t()


@program(graphs=1)
def namedtuple_defined_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        Row = collections.namedtuple("Row", "a b")
        row = Row(x, 2)
        return row.a * row.b

    return f, t()


class Loader:
    """A user's iterator."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        self.i = 0
        return self

    def __next__(self) -> int:
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i

    def __len__(self) -> int:
        return self.n


@program()
def user_iterators() -> Made:
    def f(x: torch.Tensor) -> Any:
        total = x
        for i, v in enumerate(Loader(3)):
            total = total + i * v
        return total * sum(Loader(2)) + len(list(Loader(4))) + any(v > 2 for v in Loader(3)), all(Loader(2))

    return f, t()


class Box:
    """With a length and a truth."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __bool__(self) -> bool:
        return len(self.items) > 1

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]

    def __contains__(self, v: Any) -> bool:
        return v in self.items

    def __call__(self, x: Any) -> Any:
        return x * len(self)


@program(graphs=2)
def special_methods_of_user_objects() -> Made:
    def f(x: torch.Tensor, box: Box) -> Any:
        if box and 2 in box:
            x = box(x) + box[0]
        return x + sum(box) + len(box), max(box), sorted(box, reverse=True)

    return f, t(), Box([3, 2, 1])


@program()
def annotations_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        def inner(v: typing.List[torch.Tensor], n: typing.Optional[int] = None) -> torch.Tensor:  # noqa: UP006, UP045
            parts: typing.List[torch.Tensor] = [u * 2 for u in v]  # noqa: UP006
            return torch.stack(parts)

        return inner([x, x + 1])

    return f, t()


@program(breaks=True)
def warnings_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        if x.shape[0] != 5:
            warnings.warn("an odd size", stacklevel=2)
        return x * 2

    return f, t()


@program()
def deprecation_warnings_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = x * 2
        return y + 1

    return f, t()


@program(breaks=True)
def logging_below_its_level() -> Made:
    def f(x: torch.Tensor) -> Any:
        logger.debug("shape %s", x.shape)
        logging.getLogger("models").info("value %d", 3)
        if logger.isEnabledFor(logging.DEBUG):
            x = x + 1
        return x * 2

    return f, t()


@functools.lru_cache(maxsize=32)
def recipe(pattern: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Pure Python, kept."""
    order = {c: i for i, c in enumerate(pattern)}
    return tuple(sizes[order[c]] for c in reversed(pattern))


@program()
def cached_pure_python() -> Made:
    return lambda x: x.reshape(recipe("ab", tuple(x.shape))) * 2, t()


@functools.cache
def table_of(n: int) -> list[float]:
    return [math.cos(i) for i in range(n)]


@program()
def cached_list() -> Made:
    return lambda x: x * torch.tensor(table_of(6)), t()


@program(graphs=2)
def cached_property() -> Made:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n = 3

        @functools.cached_property
        def scale(self) -> float:
            return self.n**0.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    return Model(), t()


@program()
def standard_library() -> Made:
    def f(x: torch.Tensor) -> Any:
        heap = [5, 1, 4]
        heapq.heapify(heap)
        heapq.heappush(heap, 2)
        at = bisect.bisect_left([1, 3, 5], 4)
        counts = collections.Counter("abca")
        text = re.sub(r"\d+", "n", "layer12.weight")
        match = re.match(r"layer(\d+)", "layer12")
        value = json.loads('{"a": [1, 2]}')["a"][1]
        return x * heapq.heappop(heap) + at + counts["a"] + len(text) + int(match.group(1) if match else 0) + value

    return f, t()


@program(breaks=True)
def random_of_python() -> Made:
    def f(x: torch.Tensor) -> Any:
        random.seed(3)
        return x * random.random() + random.randint(0, 3) + random.choice([1, 2])

    return f, t()


@program()
def copies() -> Made:
    def f(x: torch.Tensor, config: dict[str, Any]) -> Any:
        own = copy.deepcopy(config)
        own["a"].append(3)
        other = copy.copy(own)
        other["b"] = x
        return x * sum(own["a"]) + len(other)

    return f, t(), {"a": [1, 2]}


@program()
def imports_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        import string
        from math import sqrt

        import torch.nn.functional as functional

        return functional.relu(x) * sqrt(4) + len(string.digits)

    return f, t()


@program()
def locals_and_del() -> Made:
    def f(x: torch.Tensor) -> Any:
        a, b = x * 2, 3
        values = locals()
        out = values["a"] + values["b"]
        del a
        return out + b

    return f, t()


@program()
def classes_inside() -> Made:
    def f(x: torch.Tensor) -> Any:
        class Base:
            scale = 2

            def __init__(self, v: Any) -> None:
                self.v = v

            @property
            def doubled(self) -> Any:
                return self.v * self.scale

        class Derived(Base):
            def run(self) -> Any:
                return super().doubled + 1

        return Derived(x).run()

    return f, t()


@program(breaks=True)
def subclasses_of_a_registry() -> Made:
    class Op(abc.ABC):
        @abc.abstractmethod
        def run(self, x: Any) -> Any: ...

    class Twice(Op):
        def run(self, x: Any) -> Any:
            return x * 2

    class Once(Op):
        def run(self, x: Any) -> Any:
            return x + 1

    known = [Twice, Once]  # else they are garbage

    def f(x: torch.Tensor) -> Any:
        for cls in Op.__subclasses__():
            x = cls().run(x)
        return x * len(known)

    return f, t()


@program(breaks=True)
def weak_containers() -> Made:
    box = Box([1, 2])
    known: weakref.WeakKeyDictionary[Box, int] = weakref.WeakKeyDictionary({box: 3})
    return lambda x: x * known[box], t()


@program()
def identities() -> Made:
    def f(x: torch.Tensor, seen: list[Any]) -> Any:
        ids = {id(v) for v in seen}
        return x * 2 if id(x) in ids else x

    x = t()
    return f, x, [x]


@program(graphs=2)
def evaluated_text() -> Made:
    return lambda x: x * eval("2 + 3") + eval("n * 2", {"n": 4}), t()


@program()
def dispatch_by_name() -> Made:
    def f(x: torch.Tensor) -> Any:
        act = getattr(torch, "tanh")
        layers = [getattr(nn.functional, name) for name in ("relu", "gelu")]
        return functools.reduce(lambda v, g: g(v), layers, act(x))

    return f, t()


@program()
def exceptions_in_flight() -> Made:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        try:
            y = y + 1
            raise ValueError("odd", y.shape[0])
        except ValueError as error:
            y = y * error.args[1]
        finally:
            y = y - 1
        return y

    return f, t()


@program(graphs=0)
def shape_errors_caught() -> Made:
    def f(x: torch.Tensor) -> Any:
        try:
            return x @ x
        except RuntimeError:
            return x @ x.t()

    return f, t()


@program()
def context_managers_of_users() -> Made:
    @contextlib.contextmanager
    def scale(table: dict[str, Any], v: float) -> Any:
        table["scale"] = v
        try:
            yield table
        finally:
            table["scale"] = 1.0

    table = {"scale": 1.0}

    def f(x: torch.Tensor) -> Any:
        with scale(table, 2.0) as current, contextlib.nullcontext():
            y = x * current["scale"]
        return y + table["scale"]

    return f, t()


@program()
def itertools_and_operator() -> Made:
    def f(x: torch.Tensor) -> Any:
        pairs = list(itertools.product(range(2), repeat=2))
        parts = [x[a] * b for a, b in pairs]
        chained = list(itertools.chain.from_iterable([parts, [x[2]]]))
        return functools.reduce(operator.add, chained), list(itertools.accumulate([1, 2, 3]))

    return f, t()


@program()
def finfo_and_constants() -> Made:
    def f(x: torch.Tensor) -> Any:
        low = np.finfo(np.float32).min
        tiny = torch.finfo(x.dtype).tiny
        return x.masked_fill(x < 0, torch.finfo(x.dtype).min) * 1e-30 + tiny + float(low) * 1e-38 + np.pi

    return f, t()


@program(graphs=2)
def times_and_dates() -> Made:
    return lambda x, d: x * d.days + datetime.timedelta(seconds=3).seconds, t(), datetime.timedelta(days=2)


@program()
def sorted_by_key_and_sets() -> Made:
    def f(x: torch.Tensor, names: list[str]) -> Any:
        kept = sorted(set(names) - {"b"}, key=lambda n: (-len(n), n))
        return {name: x * i for i, name in enumerate(kept)}

    return f, t(), ["c", "b", "aa", "a"]


@program(graphs=2)
def attributes_written_on_self() -> Made:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0
            self.last: torch.Tensor | None = None
            self.register_buffer("seen", torch.zeros(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            self.seen = 0.9 * self.seen + 0.1 * x.mean(0)
            self.last = x * 2
            return self.last + self.seen

    return Model(), t()


@program()
def printing_of_shapes() -> Made:
    def f(x: torch.Tensor) -> Any:
        text = f"{tuple(x.shape)} {x.dtype} {x.device}"
        return x * len(text), str(x.shape)

    return f, t()


@program()
def generators_of_users() -> Made:
    def windows(x: torch.Tensor, size: int) -> Any:
        for at in range(0, x.shape[1], size):
            yield x[:, at : at + size]

    def f(x: torch.Tensor) -> Any:
        return torch.cat([w.softmax(-1) for w in windows(x, 3)], 1), next(windows(x, 2))

    return f, t()


@program()
def singledispatch() -> Made:
    @functools.singledispatch
    def scale(v: Any, x: Any) -> Any:
        return x

    @scale.register
    def _(v: int, x: Any) -> Any:
        return x * v

    return lambda x: scale(3, x) + scale("a", x), t()


@program()
def ordered_and_default_dictionaries() -> Made:
    def f(x: torch.Tensor) -> Any:
        groups: Any = collections.defaultdict(list)
        for i in range(4):
            groups[i % 2].append(x[i])
        ordered = collections.OrderedDict(sorted(groups.items()))
        ordered.move_to_end(0)
        return {k: torch.stack(v).sum() for k, v in ordered.items()}

    return f, t()
