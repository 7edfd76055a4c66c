"""Classes defined and instantiated inside, inheritance, super(), properties, descriptors, attribute protocols."""

from __future__ import annotations

import abc
import enum
import typing
from typing import Any, ClassVar, Generic, Optional, TypeVar, Union

import torch
from helpers import check, check_made, compile_fn, observe, t

T = TypeVar("T")


class Base:
    registry: list[str] = []
    scale = 2.0

    def __init__(self, n: int = 1) -> None:
        self.n = n

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x) * self.scale

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.n

    @property
    def double(self) -> int:
        return self.n * 2

    @double.setter
    def double(self, value: int) -> None:
        self.n = value // 2

    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    @classmethod
    def build(cls, n: int) -> Base:
        return cls(n)


class Child(Base):
    scale = 3.0

    def __init__(self, n: int, extra: Any = None) -> None:
        super().__init__(n * 10)
        self.extra = extra

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return super().step(x) * 2

    @property
    def double(self) -> int:
        return super().double + 1

    @classmethod
    def build(cls, n: int) -> Base:
        made = super().build(n)
        made.built = True  # type: ignore[attr-defined]
        return made


class OldStyle(Base):
    def __init__(self, n: int) -> None:
        super(OldStyle, self).__init__(n)  # noqa: UP008

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return super(OldStyle, self).step(x) + 100  # noqa: UP008


def test_instances_made_inside() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a, b, c = Base(), Child(2, extra=x), OldStyle(3)
        return a.run(x), b.run(x), c.run(x), b.extra is x, a, b

    check(fn, t(), graphs=1)


def test_instance_from_outside() -> None:
    check(lambda x, obj: (obj.run(x), obj.double, obj.static(x), obj.n), t(), Child(2), graphs=1)


def test_class_defined_inside() -> None:
    def fn(x: torch.Tensor, k: int) -> tuple[Any, ...]:
        class Local(Base):
            offset = k + 1

            def step(self, x: torch.Tensor) -> torch.Tensor:
                return super().step(x) + self.offset + k

        obj = Local(5)
        return obj.run(x), Local.__name__, isinstance(obj, Base), Local.offset, Local.__mro__[1] is Base

    check(fn, t(), 3, graphs=1)


def test_class_and_static_methods() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        made = Child.build(3)
        return made.n, type(made).__name__, made.built, Base.static(x), made.static(x), Base.build(1).n  # type: ignore[attr-defined]

    check(fn, t(), graphs=1)


def test_multiple_inheritance_and_cooperative_super() -> None:
    class A:
        def f(self, x: torch.Tensor) -> list[Any]:
            return [("A", x + 1)]

    class B(A):
        def f(self, x: torch.Tensor) -> list[Any]:
            return [("B", x * 2), *super().f(x)]

    class C(A):
        def f(self, x: torch.Tensor) -> list[Any]:
            return [("C", x * 3), *super().f(x)]

    class D(B, C):
        def f(self, x: torch.Tensor) -> list[Any]:
            return [("D", x * 4), *super().f(x)]

    check(lambda x: (D().f(x), [c.__name__ for c in D.__mro__]), t(), graphs=1)


def test_super_in_nested_function_and_comprehension() -> None:
    class Local(Base):
        def step(self, x: torch.Tensor) -> torch.Tensor:
            def inner() -> torch.Tensor:
                return super(Local, self).step(x)

            return inner() + sum(super(Local, self).step(x) for _ in range(2))

    check(lambda x: Local(2).step(x), t(), graphs=1)


def test_property_getter_setter_deleter() -> None:
    class Temp:
        def __init__(self) -> None:
            self._c = 1.0
            self.log: list[str] = []

        @property
        def c(self) -> float:
            self.log.append("get")
            return self._c

        @c.setter
        def c(self, value: float) -> None:
            self.log.append("set")
            self._c = value

        @c.deleter
        def c(self) -> None:
            self.log.append("del")
            self._c = -1.0

    def fn(x: torch.Tensor, temp: Temp) -> tuple[Any, ...]:
        temp.c = 5.0
        y = x * temp.c
        temp.c += 1
        del temp.c
        return y, temp.c, temp.log

    check(fn, t(), Temp(), calls=1, graphs=1)
    check(lambda x: fn(x, Temp()), t(), graphs=1)


def test_read_only_property_raises() -> None:
    def fn(x: torch.Tensor, obj: Child) -> Any:
        try:
            obj.double = 3
        except AttributeError as e:
            return str(e), x + 1

    check(fn, t(), Child(1))


def test_descriptors() -> None:
    class Typed:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = "_" + name

        def __get__(self, obj: Any, owner: type | None = None) -> Any:
            return self if obj is None else getattr(obj, self.name, 0) * 10

        def __set__(self, obj: Any, value: Any) -> None:
            setattr(obj, self.name, value + 1)

        def __delete__(self, obj: Any) -> None:
            delattr(obj, self.name)

    class NonData:
        def __get__(self, obj: Any, owner: type | None = None) -> Any:
            return ("computed", obj is None)

    class Holder:
        a = Typed()
        b = NonData()

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        h = Holder()
        first = h.a
        h.a = 4
        second = h.a
        del h.a
        before = h.b
        h.b = "own"  # type: ignore[assignment]
        return first, second, h.a, before, h.b, Holder.b, isinstance(Holder.a, Typed), x + second

    check(fn, t(), graphs=1)


def test_getattr_and_getattribute() -> None:
    class Fallback:
        def __init__(self) -> None:
            self.real = 1
            self.asked: list[str] = []

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            self.asked.append(name)
            if name.startswith("x_"):
                return len(name)
            raise AttributeError(name)

    class Intercept:
        def __init__(self) -> None:
            self.value = 2

        def __getattribute__(self, name: str) -> Any:
            if name == "magic":
                return 42
            return object.__getattribute__(self, name)

    def fn(x: torch.Tensor, f: Fallback, i: Intercept) -> tuple[Any, ...]:
        return f.real, f.x_abc, hasattr(f, "nope"), getattr(f, "nope", "d"), f.asked, i.magic, i.value, x + i.magic  # type: ignore[attr-defined]

    check(fn, t(), Fallback(), Intercept(), calls=1)
    check(lambda x: fn(x, Fallback(), Intercept()), t(), graphs=1)


def test_setattr_and_delattr_overridden() -> None:
    class Strict:
        def __init__(self) -> None:
            self.log = []

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name != "log":
                self.log.append(("set", name))

        def __delattr__(self, name: str) -> None:
            self.log.append(("del", name))
            object.__delattr__(self, name)

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        s = Strict()
        s.a = x + 1  # type: ignore[attr-defined]
        s.b = 2  # type: ignore[attr-defined]
        del s.b  # type: ignore[attr-defined]
        return s, s.log, s.a  # type: ignore[attr-defined]

    check(fn, t(), graphs=1)


def test_slots() -> None:
    class Slotted:
        __slots__ = ("a", "b")

        def __init__(self, a: Any) -> None:
            self.a = a

    def fn(x: torch.Tensor, old: Slotted) -> tuple[Any, ...]:
        s = Slotted(x + 1)
        s.b = 2
        old.b = s.a
        old.a += 1
        try:
            s.c = 3  # type: ignore[attr-defined]
        except AttributeError:
            caught = True
        return s, s.b, old.a, caught, hasattr(Slotted(1), "b")

    check(fn, t(), Slotted(1), calls=1)


def test_new_init_and_singletons() -> None:
    class Single:
        instance: Any = None

        def __new__(cls) -> Any:
            if cls.instance is None:
                cls.instance = super().__new__(cls)
                cls.instance.made = 0
            return cls.instance

        def __init__(self) -> None:
            self.made += 1

    def make() -> Any:
        Single.instance = None

        def fn(x: torch.Tensor) -> tuple[Any, ...]:
            a, b = Single(), Single()
            return a is b, a.made, x + a.made

        return fn, lambda: Single.instance.made

    check_made(make, t())


def test_new_returning_another_type_skips_init() -> None:
    class Odd:
        def __new__(cls, n: int) -> Any:
            return n * 2 if n > 1 else super().__new__(cls)

        def __init__(self, n: int) -> None:
            self.n = n

    check(lambda x: (Odd(5), Odd(1).n, x + Odd(3)), t(), graphs=1)


def test_subclasses_of_builtins() -> None:
    class Named(list):  # type: ignore[type-arg]
        name = "n"

        def total(self) -> Any:
            return sum(self)

    class Attr(dict):  # type: ignore[type-arg]
        def __getattr__(self, name: str) -> Any:
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

        def __missing__(self, key: str) -> str:
            return f"missing {key}"

    class Feet(float):
        def inches(self) -> float:
            return self * 12

    class Tag(str):
        def shout(self) -> str:
            return self.upper() + "!"

    def fn(x: torch.Tensor, old: Named) -> tuple[Any, ...]:
        items = Named([1, 2])
        items.append(x)
        old.append(3)
        old.tag = "t"  # type: ignore[attr-defined]
        attrs = Attr(a=1, b=x)
        return (
            items,
            items.total(),
            old.total(),
            attrs.a,
            attrs.b,
            attrs["zz"],
            Feet(2).inches(),
            Tag("a").shout(),
            len(items),
        )

    check(fn, t(), Named([5]), calls=1)


def test_abstract_classes_generics_and_metaclasses() -> None:
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self) -> Any: ...

        def twice(self) -> Any:
            return self.area() * 2

    class Square(Shape):
        def __init__(self, side: Any) -> None:
            self.side = side

        def area(self) -> Any:
            return self.side**2

    class Meta(type):
        def __call__(cls, *args: Any) -> Any:
            obj = super().__call__(*args)
            obj.stamped = cls.__name__
            return obj

        def __len__(cls) -> int:
            return 7

    class WithMeta(metaclass=Meta):
        def __init__(self, v: Any) -> None:
            self.v = v

    class Box(Generic[T]):
        def __init__(self, item: T) -> None:
            self.item = item

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        try:
            Shape()  # type: ignore[abstract]
        except TypeError as e:
            message = str(e)
        w = WithMeta(x)
        box = Box[torch.Tensor](x + 1)
        return Square(x).twice(), message, w.stamped, len(WithMeta), box.item  # type: ignore[attr-defined]

    check(fn, t())


def test_init_subclass_and_class_decorator_inside() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        seen: list[str] = []

        class Root:
            def __init_subclass__(cls, tag: str = "none", **kw: Any) -> None:
                seen.append(f"{cls.__name__}:{tag}")

        def mark(cls: type) -> type:
            cls.marked = True  # type: ignore[attr-defined]
            return cls

        @mark
        class Leaf(Root, tag="leaf"):
            def f(self, x: torch.Tensor) -> torch.Tensor:
                return x + len(seen)

        return seen, Leaf.marked, Leaf().f(x)  # type: ignore[attr-defined]

    check(fn, t())


def test_class_attribute_mutable_shared() -> None:
    def make() -> Any:
        class Shared:
            items: list[Any] = []

            def add(self, v: Any) -> None:
                self.items.append(v)

        def fn(x: torch.Tensor) -> tuple[Any, ...]:
            a, b = Shared(), Shared()
            a.add(1)
            b.add(x)
            return len(a.items), a.items is Shared.items, x + len(b.items)

        return fn, lambda: list(Shared.items)

    check_made(make, t())


def test_isinstance_issubclass_type() -> None:
    def fn(x: torch.Tensor, obj: Base) -> tuple[Any, ...]:
        import numbers
        from collections.abc import Callable, Iterable, Mapping, Sequence

        return (
            isinstance(obj, Base),
            isinstance(obj, (int, Base)),
            isinstance(obj, int | Child),
            isinstance(x, torch.Tensor),
            isinstance(x, torch.nn.Parameter),
            isinstance(x.shape, tuple),
            isinstance(True, int),
            isinstance([], Sequence),
            isinstance({}, Mapping),
            isinstance(obj, Iterable),
            isinstance(fn, Callable),  # type: ignore[arg-type]
            isinstance(1, numbers.Number),
            issubclass(Child, Base),
            issubclass(bool, int),
            type(obj) is Child,
            type(obj).__name__,
            type(x) is torch.Tensor,
            type(3.5),
            obj.__class__,
            type("Made", (Base,), {"scale": 7.0})(2).run(x),
            x + 1,
        )

    check(fn, t(), Child(1))


def test_isinstance_with_instancecheck() -> None:
    class Even(type):
        def __instancecheck__(cls, obj: Any) -> bool:
            return isinstance(obj, int) and obj % 2 == 0

    class IsEven(metaclass=Even):
        pass

    check(lambda x: (isinstance(2, IsEven), isinstance(3, IsEven), x + 1), t(), graphs=1)


def test_object_identity_equality_and_hash_of_instances() -> None:
    class Key:
        def __init__(self, k: int) -> None:
            self.k = k

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and self.k == other.k

        def __hash__(self) -> int:
            return hash(self.k)

    class Plain:
        pass

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        d = {Key(1): "one", Key(2): "two"}
        d[Key(1)] = "uno"
        a, b = Plain(), Plain()
        plain = {a: 1, b: 2}
        return (
            d[Key(1)],
            len(d),
            Key(2) in d,
            Key(3) in d,
            Key(1) == Key(1),
            a == b,
            a == a,
            plain[b],
            x + len({Key(1), Key(1)}),
        )

    check(fn, t())


def test_vars_dir_and_dict_access() -> None:
    class Plain:
        kind = "k"

        def __init__(self) -> None:
            self.b, self.a = 1, 2

    def fn(x: torch.Tensor, obj: Plain) -> tuple[Any, ...]:
        new = Plain()
        new.__dict__["c"] = 3
        obj.__dict__.update(z=9)
        return vars(new), list(vars(obj)), "a" in dir(new), new.c, obj.z, Plain.__dict__["kind"], x + obj.z  # type: ignore[attr-defined]

    check(fn, t(), Plain(), calls=1)


def test_linked_structures() -> None:
    class Node:
        def __init__(self, value: Any, next: Any = None) -> None:
            self.value, self.next = value, next

        def __iter__(self) -> Any:
            node = self
            while node is not None:
                yield node.value
                node = node.next

    def fn(x: torch.Tensor, head: Node) -> tuple[Any, ...]:
        head = Node(x, head)
        prev = None
        node: Any = head
        while node:
            node.next, prev, node = prev, node, node.next
        return [v for v in prev], head.next is None or True, prev

    check(fn, t(), Node(1, Node(2, Node(3))), calls=1, graphs=0)


def test_callable_objects() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: torch.Tensor, plus: int = 0) -> torch.Tensor:
            return x * self.by + plus

    check(lambda x, f: f(x) + f(x, plus=1) + Scale(3.0)(x), t(), Scale(2.0), graphs=1)
    check(Scale(2.0), t(), graphs=1)


def test_a_distribution_is_captured_a_few_times_and_not_at_each_call() -> None:
    """Its checks ask its class for lazy properties, each time a new object."""

    def program(x: torch.Tensor) -> Any:
        normal, choice = torch.distributions.Normal(x, 1.0), torch.distributions.Categorical(logits=x)
        return normal.log_prob(x + 1), choice.entropy()

    compiled = compile_fn(program)
    for call in range(6):
        with observe() as seen:
            x = t(3)
            torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
        assert call < 2 or not seen.recompiles, seen.recompiles


def test_a_lazy_property_that_the_frame_asks_a_class_for() -> None:
    def program(x: torch.Tensor) -> Any:
        held = torch.distributions.Categorical.probs
        print(end="")
        return x + 1, torch.distributions.Normal.variance, held

    _, variance, held = compile_fn(program)(t(2))
    assert type(held) is type(torch.distributions.Categorical.probs)
    assert held.fget is torch.distributions.Categorical.probs.fget
    assert variance.fget is torch.distributions.Normal.variance.fget


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    ROUGE = 1  # noqa: PIE796


def test_an_enum_is_iterated_over() -> None:
    def fn(x: torch.Tensor) -> Any:
        return [x * member.value for member in Colour], list(Colour), [m.name for m in reversed(Colour)], max(
            m.value for m in Colour
        )  # fmt: skip

    check(fn, t(), graphs=1, breaks=0)


class Registered:
    table: ClassVar[dict[Any, Any]] = {}

    def __init_subclass__(cls, key: str) -> None:
        Registered.table[key] = cls

    def __class_getitem__(cls, key: str) -> Any:
        return cls.table[key]


class Doubled(Registered, key="double"):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_class_says_what_its_subscript_is() -> None:
    check(lambda x: Registered["double"]()(x), t(), graphs=1, breaks=0)


class Slotted:
    __slots__ = ("values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Any:
        if name != "values" and name in self.values:
            return self.values[name]
        raise AttributeError(name)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def test_an_object_with_slots_and_getattr_is_called() -> None:
    def fn(x: torch.Tensor, given: Slotted) -> Any:
        return given(x), Slotted({"scale": 3})(x), hasattr(given, "other")

    check(fn, t(), Slotted({"scale": 2}), graphs=1, breaks=0)


Sizes = dict[str, typing.List[int]]  # noqa: UP006


def test_typing_forms_are_subscripted() -> None:
    """As the annotations of inner functions are, where the module does not put them off."""

    def fn(x: torch.Tensor) -> Any:
        forms = [Optional[int], Union[int, Sizes, None], typing.Literal["a"], typing.List[torch.Tensor]]  # noqa: UP006, UP007, UP045
        known = forms[1] == Union[None, Sizes, int]  # noqa: UP007
        return x + 1, len(forms), known, typing.get_args(forms[0]), typing.get_origin(typing.Callable[[int], str])

    check(fn, t(), graphs=1, breaks=0)
