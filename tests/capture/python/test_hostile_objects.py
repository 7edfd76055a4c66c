"""Stories about objects: ordinary Python that is easily captured wrongly, called again with the world changed."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from helpers import graph_break, outcome, storybook, t

Compile = Callable[[Any], Any]
story, test_story = storybook()


@story
def closures_made_and_mutated_in_loops(compile: Compile) -> Any:
    def fn(x: torch.Tensor, count: int) -> Any:
        scales: list[Any] = []
        total = 0
        for i in range(count):

            def scale(v: torch.Tensor, k: int = i) -> torch.Tensor:
                nonlocal total
                total += k + i
                return v * (k + i)

            scales.append(scale)
        out = [scale(x) for scale in scales]
        graph_break()
        return out, [scale(x) for scale in reversed(scales)], total, scales[0].__defaults__

    called = compile(fn)
    return [called(t(), n) for n in (2, 3, 2)]


@story
def dataclass_with_factories_and_post_init(compile: Compile) -> Any:
    made = [0]

    def count() -> int:
        made[0] += 1
        return made[0]

    @dataclasses.dataclass(order=True)
    class Config:
        scale: float = 1.0
        layers: list[int] = dataclasses.field(default_factory=list)
        serial: int = dataclasses.field(default_factory=count, compare=False)
        doubled: float = dataclasses.field(init=False, repr=False)

        def __post_init__(self) -> None:
            self.doubled = self.scale * 2
            self.layers.append(len(self.layers))

    def fn(x: torch.Tensor, config: Config) -> Any:
        other = Config(scale=config.scale + 1)
        copy = dataclasses.replace(config, layers=[*config.layers, 7])
        copy.layers.append(other.serial)
        return x * other.doubled + copy.doubled, other < config, other == Config(config.scale + 1), copy, other

    called = compile(fn)
    given = Config(2.0)
    out = [called(t(), given), called(t(), given)]
    given.scale = 5.0
    given.layers.append(3)
    out.append(called(t(), given))
    Config.__dataclass_fields__["scale"].default = 9.0
    return out, made, called(t(), Config(1.5)), repr(given)


@story
def partials_of_partials(compile: Compile) -> Any:
    def base(x: torch.Tensor, a: int, *rest: int, scale: float = 1.0, **more: int) -> Any:
        return x * a * scale + sum(rest), sorted(more.items())

    first = functools.partial(base, scale=2.0)
    called = compile(lambda p, x: p(x, 3, 4, extra=1))
    out = [called(functools.partial(first, z=1), t())]
    first.keywords["scale"] = 5.0
    out.append(called(first, t()))
    out.append(called(functools.partial(first, scale=3.0, extra=2), t()))
    flipped = functools.partial(base, t(), 2, 3)
    return out + [compile(lambda p: p(a2=1))(flipped), compile(lambda p: (p.args[1], p.func is base))(flipped)]


@story
def cached_property_is_computed_once_and_reset(compile: Compile) -> Any:
    log: list[str] = []

    class Model:
        def __init__(self, k: int) -> None:
            self.k = k

        @functools.cached_property
        def scale(self) -> int:
            log.append("computed")
            return self.k * 2

    called = compile(lambda m, x: x * m.scale + m.scale)
    m = Model(2)
    out = [called(m, t()), called(m, t())]
    m.k = 7
    out.append(called(m, t()))
    del m.scale
    out.append(called(m, t()))
    m.scale = 1
    return out + [called(m, t()), called(Model(4), t())], log, dict(vars(m))


@story
def property_with_setter_and_deleter(compile: Compile) -> Any:
    class Thermo:
        def __init__(self) -> None:
            self._c: Any = 1.0
            self.log: list[Any] = []

        @property
        def celsius(self) -> Any:
            return self._c

        @celsius.setter
        def celsius(self, value: Any) -> None:
            self.log.append("set")
            self._c = value if not isinstance(value, torch.Tensor) else value.clone()

        @celsius.deleter
        def celsius(self) -> None:
            self.log.append("deleted")
            self._c = 0.0

    def fn(o: Thermo, x: torch.Tensor, k: float) -> Any:
        o.celsius += k
        y = x * o.celsius
        o.celsius = y
        o.celsius[0] = 5
        graph_break()
        del o.celsius
        o.celsius = o.celsius + k
        return y, o.celsius

    called, o = compile(fn), Thermo()
    out = [called(o, t(), k) for k in (1.0, 2.0, 2.5)]
    Thermo.celsius = property(lambda self: 3.0, lambda self, v: None, lambda self: None)  # type: ignore[method-assign]
    y = compile(lambda o, x: x * o.celsius)(o, t())
    return out, o.log, o._c, y


@story
def slots_with_inheritance_and_defaults(compile: Compile) -> Any:
    class Base:
        __slots__ = ("a",)

    class Derived(Base):
        __slots__ = ("b", "__dict__")
        c = 10

    def fn(o: Derived, x: torch.Tensor) -> Any:
        o.a = getattr(o, "a", 0) + 1
        o.c = o.c + 1  # type: ignore[misc]
        if hasattr(o, "b"):
            del o.b
        else:
            o.b = x * o.a
        return x + o.a + o.c, hasattr(o, "b")

    called, o = compile(fn), Derived()
    out = [called(o, t()) for _ in range(3)]
    del o.a
    Derived.c = 50
    del o.c
    return out + [called(o, t())], o.a, o.c


@story
def module_with_its_own_attribute_hooks(compile: Compile) -> Any:
    class Recording(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)
            self.names: list[str] = []
            self.extra = {"k": 2}

        def __setattr__(self, name: str, value: Any) -> None:
            if "names" in self.__dict__:
                self.names.append(name)
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return self.__dict__["extra"][name]

        def forward(self, x: torch.Tensor) -> Any:
            self.last = x * self.k
            self.count = getattr(self, "count", 0) + 1 if "count" in self.__dict__ else 1
            return self.layer(self.last) + self.count

    m = Recording()
    called = compile(m)
    out = [called(t()), called(t())]
    m.extra["k"] = 5
    m.layer = torch.nn.Linear(3, 2)
    return out + [called(t()).shape], m.names, m.count, m.last, outcome(lambda: m.absent)


@story
def module_dict_and_list_iterated_and_edited(compile: Compile) -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.Identity()})
            self.blocks = torch.nn.ModuleList([torch.nn.Tanh(), torch.nn.Linear(3, 3)])

        def forward(self, x: torch.Tensor) -> Any:
            out = {}
            for block in self.blocks[::-1]:
                x = block(x)
            for name, head in self.heads.items():
                out[name] = head(x) * len(self.heads)
            return out, [*self.heads], "b" in self.heads, [type(b).__name__ for b in self.blocks]

    m = Net()
    called = compile(m)
    out = [called(t(2, 3))]
    m.heads["c"] = torch.nn.ReLU()
    m.blocks.append(torch.nn.Sigmoid())
    out.append(called(t(2, 3)))
    m.heads.pop("a")
    m.blocks[0] = torch.nn.Identity()
    out.append(called(t(2, 3)))
    m.heads = torch.nn.ModuleDict({"z": m.heads["b"]})
    return out + [called(t(4, 3))]


@story
def buffer_registered_and_replaced_in_forward(compile: Compile) -> Any:
    class Running(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            if not hasattr(self, "mean"):
                self.register_buffer("mean", torch.zeros(x.shape[-1]))
                self.register_buffer("seen", torch.tensor(0), persistent=False)
            self.mean = 0.5 * self.mean + 0.5 * x.detach().mean(0)
            self.seen += 1
            return x - self.mean

    m = Running()
    called = compile(m)
    out = [called(t(2, 3)), called(t(4, 3) * 2), called(t(2, 3))]
    m.mean = torch.ones(3)
    out.append(called(t(2, 3)))
    del m.mean
    return out + [called(t(2, 3)), sorted(dict(m.named_buffers())), sorted(m.state_dict()), m.seen]


@story
def parametrized_and_weight_normed_modules(compile: Compile) -> Any:
    class Double(torch.nn.Module):
        k = 2

        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * self.k

    m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    called = compile(m)
    out = [called(t(2, 3))]
    torch.nn.utils.parametrize.register_parametrization(m[0], "weight", Double())
    torch.nn.utils.parametrizations.weight_norm(m[1])
    out.append(called(t(2, 3)))
    Double.k = 3
    out.append(called(t(2, 3)))
    torch.nn.utils.parametrize.remove_parametrizations(m[0], "weight")
    with torch.nn.utils.parametrize.cached():
        out += [called(t(2, 3)), called(t(2, 3))]
    return out


@story
def weak_registry_of_modules(compile: Compile) -> Any:
    registry: Any = weakref.WeakKeyDictionary()
    names: Any = weakref.WeakValueDictionary()

    class Layer(torch.nn.Module):
        def __init__(self, k: int) -> None:
            super().__init__()
            self.k = k

        def forward(self, x: torch.Tensor) -> Any:
            uses = registry.get(self, 0)
            registry[self] = uses + 1
            names[f"layer{self.k}"] = self
            return x * self.k + uses + len(names)

    a, b = Layer(2), Layer(3)
    called = compile(lambda m, x: m(x))
    out = [called(m, t()) for m in (a, b, a, a, b)]
    del b
    return out + [called(a, t())], len(registry), sorted(names)


@story
def enum_flags_and_members_with_values(compile: Compile) -> Any:
    class Mode(enum.Flag):
        NONE = 0
        SCALE = enum.auto()
        SHIFT = enum.auto()
        BOTH = SCALE | SHIFT

    class Kind(enum.Enum):
        SMALL = (1, 0.5)
        LARGE = (2, 2.0)

        def __init__(self, rank: int, factor: float) -> None:
            self.rank = rank
            self.factor = factor

        @property
        def name_and_rank(self) -> str:
            return f"{self.name}:{self.rank}"

    def fn(x: torch.Tensor, mode: Mode, kind: Kind) -> Any:
        if mode & Mode.SCALE:
            x = x * kind.factor
        if Mode.SHIFT in mode:
            x = x + kind.rank
        return x, ~mode, mode | Mode.SCALE, mode is Mode.BOTH, kind.name_and_rank, Kind(kind.value) is kind, [*Kind]

    called = compile(fn)
    return [
        called(t(), mode, kind) for mode in (Mode.NONE, Mode.SCALE, Mode.SHIFT | Mode.SCALE, Mode.BOTH) for kind in Kind
    ]


@story
def tensors_as_keys_and_set_members(compile: Compile) -> Any:
    def fn(params: list[torch.Tensor], x: torch.Tensor) -> Any:
        state: dict[Any, Any] = {}
        for i, p in enumerate(params):
            state.setdefault(p, []).append(i)
        y = x * 2
        state[y] = ["made"]
        return y, [state[p] for p in params], len(state), x in state, y in state, len({*params, x}), [*state][-1] is y

    called = compile(fn)
    a, b = t(), t() + 1
    return [called([a, b], t()), called([a, a, b], t()), called([a, b], b), called([], a)]


@story
def lists_share_items_across_breaks(compile: Compile) -> Any:
    def fn(rows: list[list[Any]], x: torch.Tensor) -> Any:
        grid = [[0] * 2] * 2
        grid[0][1] = 5
        rows[0].append(x)
        both = [rows, rows[0]]
        graph_break()
        grid[1][0] = 7
        both[1].append(x * 2)
        rows[-1] = [*rows[-1], len(rows[0])]
        graph_break()
        return grid, grid[0] is grid[1], both[0] is rows, rows[0] is both[1], x + len(rows[0])

    called = compile(fn)
    shared: list[Any] = []
    rows = [shared, shared]
    out = [called(rows, t()), called(rows, t())]
    return out + [called([[], [1]], t())], rows, shared


@story
def dictionary_views_while_copies_change(compile: Compile) -> Any:
    def fn(d: dict[str, Any], x: torch.Tensor) -> Any:
        keys, values = d.keys(), d.values()
        for key in list(keys):
            if key.startswith("_"):
                d[key[1:]] = d.pop(key) * 2
        common = keys & {"a", "b", "z"}
        d["new"] = x
        merged = {**d, "a": 0} | {"q": 1}
        return (
            len(keys),
            len(values),
            sorted(common),
            "new" in keys,
            merged,
            [*reversed(d)],
            list(d.items())[-1][1] is x,
        )

    called = compile(fn)
    return [called({"a": 1, "_b": t()}, t()), called({"_a": 2, "b": 3}, t()), called({}, t()), called({"a": 1}, t())]


@story
def mutable_defaults_of_every_kind(compile: Compile) -> Any:
    def fn(x: torch.Tensor, seen: list[Any] = [], /, *, cache: dict[str, Any] = {}, tags: set[str] = set()) -> Any:
        seen.append(len(seen))
        cache[f"k{len(cache)}"] = x.sum()
        tags |= {f"t{len(seen) % 2}"}
        return x * len(seen) + len(cache), sorted(tags)

    called = compile(fn)
    out = [called(t()), called(t()), called(t(2)), called(t(), [1, 2], cache={"z": 0})]
    fn.__kwdefaults__["tags"].clear()
    assert fn.__defaults__ is not None
    fn.__defaults__[0].clear()
    return out + [called(t())], fn.__defaults__, list(fn.__kwdefaults__["cache"])


@story
def matching_on_dataclasses_and_mappings(compile: Compile) -> Any:
    @dataclasses.dataclass
    class Point:
        x: Any
        y: Any

    class Named(typing.NamedTuple):
        name: str
        value: Any

    def fn(what: Any, t: torch.Tensor) -> Any:
        match what:
            case Point(0, y):
                return t * y, "on axis"
            case Point(x=int(x), y=float(y)) if x > 1:
                return t * x + y, "int and float"
            case Point(x, y):
                return t + x + y, "point"
            case Named("double", value):
                return t * 2 + value, "named"
            case [Point(x=a), *rest] if rest:
                return t * a, len(rest)
            case {"op": "add" | "plus" as op, "by": by, **rest}:
                return t + by, op, rest
            case str() | bytes():
                return t, "text"
            case _:
                return t - 1, type(what).__name__

    called = compile(fn)
    values: list[Any] = [Point(0, 3), Point(2, 1.5), Point(1, 2), Named("double", 1), Named("other", 1)]
    values += [[Point(4, 0), 1], [Point(4, 0)], {"op": "add", "by": 2, "z": 1}, {"op": "plus", "by": t()}, "s", b"s", 3]
    return [called(v, t()) for v in values]


@story
def single_dispatch_on_classes_and_methods(compile: Compile) -> Any:
    class Model:
        k = 2

        @functools.singledispatchmethod
        def apply(self, arg: Any, x: torch.Tensor) -> Any:
            return x, "any"

        @apply.register
        def _(self, arg: int, x: torch.Tensor) -> Any:
            return x * arg * self.k, "int"

        @apply.register(list)
        def _(self, arg: list[Any], x: torch.Tensor) -> Any:
            return [self.apply(a, x) for a in arg], "list"

    called, m = compile(lambda m, a, x: m.apply(a, x)), Model()
    out = [called(m, a, t()) for a in (1, [2, "s"], "s", 3, True)]
    m.k = 5
    return out + [called(m, 1, t())]


@story
def objects_with_call_and_operators_as_callbacks(compile: Compile) -> Any:
    class Scale:
        def __init__(self, k: int) -> None:
            self.k, self.calls = k, 0

        def __call__(self, x: Any) -> Any:
            self.calls += 1
            return x * self.k

        def __lt__(self, other: Scale) -> bool:
            return self.k < other.k

    def fn(scales: list[Scale], x: torch.Tensor) -> Any:
        ordered = sorted(scales, reverse=True)
        by_key = max(scales, key=operator.attrgetter("k")).k
        out = [*map(Scale(2), [x, 3])]
        return functools.reduce(lambda v, s: s(v), ordered, x), [s.k for s in ordered], by_key, out, min(ordered).calls

    called = compile(fn)
    scales = [Scale(k) for k in (3, 1, 2)]
    out = [called(scales, t()), called(scales, t())]
    scales[0].k = 0
    scales.append(Scale(9))
    return out + [called(scales, t())], [s.calls for s in scales]


@story
def generic_and_protocol_classes(compile: Compile) -> Any:
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        def __init__(self, item: T) -> None:
            self.item = item

        def map(self, fn: Callable[[T], Any]) -> Box[Any]:
            return Box(fn(self.item))

        def __class_getitem__(cls, item: Any) -> Any:
            return super().__class_getitem__(item)  # type: ignore[misc]

    called = compile(lambda x, k: Box[torch.Tensor](x).map(lambda v: v * k).map(torch.relu).item)
    return [called(t(), k) for k in (1, 2, -3)]


@story
def namespaces_and_descriptors_with_names(compile: Compile) -> Any:
    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = "_" + name

        def __get__(self, obj: Any, owner: type | None = None) -> Any:
            return self if obj is None else obj.__dict__.get(self.name, 0)

        def __set__(self, obj: Any, value: Any) -> None:
            obj.__dict__[self.name] = value + 1

    class Owner:
        a, b = Field(), Field()

    def fn(o: Any, n: types.SimpleNamespace, x: torch.Tensor) -> Any:
        o.a = o.b + n.k
        o.b += 2
        n.last = x * o.a
        vars(n)["count"] = vars(n).get("count", 0) + 1
        return n.last + o.b, type(o).a.name, sorted(vars(n)), n == types.SimpleNamespace(k=n.k)

    called, o, n = compile(fn), Owner(), types.SimpleNamespace(k=1)
    out = [called(o, n, t()), called(o, n, t())]
    n.k = 4
    del n.last
    return out + [called(o, n, t()), vars(o), n.count]


@story
def inheritance_with_mixins_and_class_state(compile: Compile) -> Any:
    class Counted:
        made = 0

        def __init_subclass__(cls, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.tag = cls.__name__.lower()

        def describe(self) -> str:
            return "counted"

    class Loud(Counted):
        def describe(self) -> str:
            return super().describe().upper() + self.tag  # type: ignore[attr-defined]

    class Both(Loud, collections.UserDict[str, Any]):
        def __missing__(self, key: str) -> Any:
            return len(key)

    def fn(o: Any, x: torch.Tensor) -> Any:
        return x * o["four"] + len(o), o.describe(), isinstance(o, collections.abc.Mapping), o.get("a"), "a" in o

    called, o = compile(fn), Both(a=1)
    out = [called(o, t())]
    o["four"] = 7
    out.append(called(o, t()))
    Counted.describe = lambda self: "changed"  # type: ignore[method-assign]
    Both.tag = "t"  # type: ignore[attr-defined]
    return out + [called(o, t())]


@story
def iterators_held_by_objects(compile: Compile) -> Any:
    class Stream:
        def __init__(self, n: int) -> None:
            self.items: Iterator[int] = iter(range(n))
            self.pushed: collections.deque[int] = collections.deque(maxlen=2)

        def __iter__(self) -> Stream:
            return self

        def __next__(self) -> int:
            value = next(self.items)
            self.pushed.append(value)
            return value

    def fn(s: Stream, x: torch.Tensor) -> Any:
        for value in s:
            x = x + value
            if value % 3 == 2:
                break
        else:
            x = -x
        return x, [*s.pushed], next(s, "end")

    called, s = compile(fn), Stream(8)
    return [called(s, t()) for _ in range(4)], list(s.pushed)


@story
def string_formatting_of_shapes_and_numbers(compile: Compile) -> Any:
    def fn(x: torch.Tensor, name: str, n: Any) -> Any:
        parts = [
            f"{name!r:>8}|{n:05.1f}|{x.shape[0]:>4}|{tuple(x.shape)}",
            "%s-%d" % (name, x.dim()),
            "{0}{k}".format(n, k=x.dtype),
        ]
        parts.append(", ".join(f"{k}={v}" for k, v in zip("ab", x.shape, strict=False)))
        return x * n, parts, f"{x.shape}", name.upper().center(9, "*"), str(x.size()), f"{x.numel()=}"

    called = compile(fn)
    return [called(t(2, 3), "a", 2), called(t(3, 3), "a", 2.5), called(t(4), "b", 2.5), called(t(3, 2), "b", 3)]


@story
def attribute_chains_replaced_halfway(compile: Compile) -> Any:
    class Node:
        def __init__(self, value: Any, child: Any = None) -> None:
            self.value, self.child = value, child

    def fn(root: Node, x: torch.Tensor) -> Any:
        total, depth = x, 0
        node: Any = root
        while node is not None:
            total = total * node.value
            node.value += 1
            node, depth = node.child, depth + 1
        root.child, root = root.child and root.child.child, root
        return total, depth

    called = compile(fn)
    leaf = Node(3)
    root = Node(1, Node(2, leaf))
    out = [called(root, t()), called(root, t()), called(root, t())]
    root.child = leaf
    leaf.child = Node(2.5)
    return out + [called(root, t())], root.value, leaf.value
