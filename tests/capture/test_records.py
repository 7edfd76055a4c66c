"""dataclasses, namedtuples, enums, SimpleNamespace, TypedDict: classes made by the standard library."""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypedDict

import torch
from helpers import check, t


@dataclass
class Config:
    name: str
    scale: float = 2.0
    items: list[Any] = field(default_factory=list)
    hidden: int = field(default=1, repr=False, compare=False)
    total: int = field(init=False, default=0)
    kinds: ClassVar[int] = 3

    def __post_init__(self) -> None:
        self.total = len(self.name) + self.hidden


@dataclass(frozen=True, order=True)
class Point:
    x: int
    y: int = 0


@dataclass(slots=True, kw_only=True)
class Slotted:
    a: Any
    b: Any = None


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()


@dataclass
class Derived(Output):
    loss: torch.Tensor | None = None


class Pair(NamedTuple):
    left: Any
    right: Any = 5

    def total(self) -> Any:
        return self.left + self.right


Old = collections.namedtuple("Old", "a b c", defaults=(1,))


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"

    @property
    def short(self) -> str:
        return self.value[0]

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum() if self is Mode.SUM else x.mean()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    AB = A | B


class Name(str, enum.Enum):
    RELU = "relu"


def test_dataclass_made_inside() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        c = Config("abc", items=[2])
        d = Config("abc")
        d.items.append(1)
        return c, d, c.total, c.kinds, c == d, d == Config("abc", items=[1]), repr(d), x * c.scale

    check(fn, t(), graphs=1)


def test_dataclass_argument_is_read_and_written() -> None:
    def fn(x: torch.Tensor, c: Config) -> torch.Tensor:
        c.items.append(x + c.total)
        c.scale *= 2
        return x * c.scale

    check(fn, t(), Config("n"), calls=2)


def test_frozen_and_ordered_dataclass() -> None:
    def fn(x: torch.Tensor, p: Point) -> tuple[Any, ...]:
        try:
            p.x = 5  # type: ignore[misc]
        except dataclasses.FrozenInstanceError as e:
            message = str(e)
        q = dataclasses.replace(p, y=7)
        return message, q, p < q, sorted([q, p])[0] == p, hash(p) == hash(Point(p.x, p.y)), {p: 1}[p], x + q.y

    check(fn, t(), Point(1, 2))


def test_slots_and_keyword_only_dataclass() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        s = Slotted(a=x + 1)
        s.b = s.a * 2
        try:
            Slotted(1)  # type: ignore[misc]
        except TypeError as e:
            message = str(e)
        return s, message

    check(fn, t())


def test_dataclass_helpers() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        p = Point(1, 2)
        names = [f.name for f in dataclasses.fields(p)]
        return dataclasses.asdict(p), dataclasses.astuple(p), names, dataclasses.is_dataclass(p), x + len(names)

    check(fn, t())


def test_dataclass_output_returned_and_inherited() -> None:
    def fn(x: torch.Tensor) -> Any:
        return Derived(x + 1, (x, x * 2), loss=x.sum())

    check(fn, t(), graphs=1)


def test_dataclass_defined_inside() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        @dataclass
        class Local:
            a: Any
            b: int = 2

        v = Local(x)
        return v.a * v.b, repr(Local(1)), Local(1) == Local(1)

    check(fn, t(), skips=None)


def test_namedtuples() -> None:
    def fn(x: torch.Tensor, p: Pair) -> tuple[Any, ...]:
        q = Pair(x)
        left, right = q
        r = p._replace(left=9)
        o = Old(1, b=2)
        return (
            q,
            left,
            right,
            q.total(),
            r,
            p[0],
            len(p),
            o,
            o._asdict(),
            Old._fields,
            r == (9, p.right),
            isinstance(q, tuple),
        )

    check(fn, t(), Pair(1, 2), graphs=1)


def test_namedtuple_unpacked_sorted_and_hashed() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        pairs = [Pair(2, 1), Pair(1, 2)]
        return sorted(pairs), {p: i for i, p in enumerate(pairs)}, max(pairs).left, Pair(*[1, 2]), Pair(left=3), x + 1

    check(fn, t())


def test_structseq_results_of_torch() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        m = x.max(dim=0)
        s = torch.sort(x, dim=0, descending=True)
        return m.values, m.indices, m[0], s, type(m).__name__, torch.topk(x, 1), torch.unbind(x)

    check(fn, t(3, 2), graphs=1)


def test_enums() -> None:
    def fn(x: torch.Tensor, mode: Mode) -> tuple[Any, ...]:
        names = [m.name for m in Mode]
        return (
            mode.apply(x),
            mode is Mode.SUM,
            mode == Mode("sum"),
            Mode["MEAN"].value,
            mode.short,
            names,
            mode in (Mode.MEAN,),
            {Mode.SUM: 1}.get(mode),
            isinstance(mode, Mode),
            len(Mode),
        )

    check(fn, t(), Mode.SUM, graphs=1)
    check(fn, t(), Mode.MEAN, graphs=1)


def test_int_enum_flag_and_str_enum() -> None:
    def fn(x: torch.Tensor, level: Level) -> tuple[Any, ...]:
        act = getattr(torch, Name.RELU.value)
        return (
            x + level,
            level > Level.LOW,
            level + 1,
            Flags.A | Flags.B,
            Flags.A in Flags.AB,
            Name.RELU == "relu",
            act(x),
        )

    check(fn, t(), Level.HIGH, graphs=1)


def test_enum_invalid_value_raises() -> None:
    check(lambda x: Mode("nope"), t(), raises=ValueError)


def test_simple_namespace_and_typed_dict() -> None:
    class Batch(TypedDict):
        x: torch.Tensor
        n: int

    def fn(ns: types.SimpleNamespace, batch: Batch) -> tuple[Any, ...]:
        made = types.SimpleNamespace(a=batch["x"] + 1, b=ns.k)
        ns.k += 1
        made.c = ns.k
        out = Batch(x=made.a * 2, n=batch["n"] + 1)
        return made, out, ns == types.SimpleNamespace(k=ns.k)

    check(fn, types.SimpleNamespace(k=1), {"x": t(), "n": 3}, calls=2)


def test_ordered_dict_like_model_output() -> None:
    class ModelOutput(collections.OrderedDict):  # type: ignore[type-arg]
        def __init__(self, **kw: Any) -> None:
            super().__init__()
            for k, v in kw.items():
                if v is not None:
                    self[k] = v

        def __getattr__(self, name: str) -> Any:
            if name in self:
                return self[name]
            raise AttributeError(name)

        def to_tuple(self) -> tuple[Any, ...]:
            return tuple(self[k] for k in self)

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        out = ModelOutput(logits=x + 1, cache=None, hidden=x * 2)
        return out, out.logits, out.to_tuple(), list(out.keys())

    check(fn, t())
