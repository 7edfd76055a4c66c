"""Operator overloads of user classes, incl. reflected and in-place ones, and with tensors."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest
import torch
from helpers import check, t

BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()


def _method(name: str) -> Any:
    def method(self: Any, other: Any) -> Any:
        self.log.append(name)
        return Recorder((name, self.value, getattr(other, "value", other)), self.log)

    return method


class Recorder:
    """Remembers which methods were called."""

    def __init__(self, value: Any, log: list[str] | None = None) -> None:
        self.value = value
        self.log: list[str] = [] if log is None else log


for _name in BINARY:
    setattr(Recorder, f"__{_name}__", _method(_name))
    setattr(Recorder, f"__r{_name}__", _method("r" + _name))


@pytest.mark.parametrize("name", BINARY)
def test_binary_and_reflected(name: str) -> None:
    op = getattr(operator, name + "_" if name in ("and", "or") else name)

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a, b = Recorder(1), Recorder(2)
        one, two, three = op(a, b), op(a, 5), op(5, a)
        return one.value, two.value, three.value, a.log, x + len(a.log)

    check(fn, t(), graphs=1)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "matmul"])
def test_with_tensor_operands(name: str) -> None:
    op = getattr(operator, name)

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a = Recorder(1)
        return op(a, x).value, a.log, x * 2

    check(fn, t(), graphs=1)


def test_operator_syntax() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a = Recorder(x)
        b = (a + 1) - (2 * a) / a // 3 % 4
        c = a**2 @ a
        d = (a & 1) | (2 ^ a) << 1 >> 2
        a += 3
        return b.value, c.value, d.value, a.value, a.log

    check(fn, t())


def test_not_implemented_falls_back_to_the_other_side() -> None:
    class Left:
        def __add__(self, other: Any) -> Any:
            return NotImplemented

        def __eq__(self, other: object) -> Any:
            return NotImplemented

        __hash__ = None  # type: ignore[assignment]

    class Right:
        def __radd__(self, other: Any) -> str:
            return f"radd {type(other).__name__}"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        try:
            Left() + 1  # type: ignore[operator]
        except TypeError as e:
            message = str(e)
        return Left() + Right(), Left() == Right(), Left() == Left(), message, 1 + Right(), x + 1

    check(fn, t())


def test_subclass_on_the_right_goes_first() -> None:
    class A:
        def __add__(self, other: Any) -> str:
            return "A.add"

        def __radd__(self, other: Any) -> str:
            return "A.radd"

    class B(A):
        def __radd__(self, other: Any) -> str:
            return "B.radd"

    check(lambda x: (A() + B(), A() + A(), B() + A(), x + 1), t(), graphs=1)


def test_in_place_operators() -> None:
    class Acc:
        def __init__(self, v: Any) -> None:
            self.v = v

        def __iadd__(self, other: Any) -> Acc:
            self.v = self.v + other
            return self

        def __imul__(self, other: Any) -> Any:
            return "replaced"

        def __sub__(self, other: Any) -> str:
            return "from sub"

    def fn(x: torch.Tensor, acc: Acc) -> tuple[Any, ...]:
        alias = acc
        acc += x
        same = alias is acc
        new: Any = Acc(1)
        new *= 3
        other: Any = Acc(2)
        other -= 1
        return acc.v, same, new, other

    check(fn, t(), Acc(t()), calls=2, graphs=1)


def test_comparisons_and_total_ordering() -> None:
    @functools.total_ordering
    class Version:
        def __init__(self, n: int) -> None:
            self.n = n

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Version) and self.n == other.n

        def __lt__(self, other: Version) -> bool:
            return self.n < other.n

        def __hash__(self) -> int:
            return self.n

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a, b = Version(1), Version(2)
        ordered = [v.n for v in sorted([b, a, Version(0)])]
        return a < b, a <= b, a > b, a >= b, a == b, a != b, ordered, max(a, b).n, min([b, a]).n, x + ordered[0]

    check(fn, t())


def test_unary_and_conversions() -> None:
    class Number:
        def __neg__(self) -> str:
            return "neg"

        def __pos__(self) -> str:
            return "pos"

        def __invert__(self) -> str:
            return "invert"

        def __abs__(self) -> str:
            return "abs"

        def __int__(self) -> int:
            return 3

        def __float__(self) -> float:
            return 2.5

        def __complex__(self) -> complex:
            return 1j

        def __index__(self) -> int:
            return 1

        def __round__(self, n: int = 0) -> str:
            return f"round {n}"

        def __bool__(self) -> bool:
            return False

        def __divmod__(self, other: Any) -> str:
            return "divmod"

    def fn(x: torch.Tensor, n: Any) -> tuple[Any, ...]:
        flags = ["yes" if n else "no", not n, bool(n), n and 1, [v for v in (n,) if v]]
        items = [10, 20, 30]
        return (
            -n,
            +n,
            ~n,
            abs(n),
            int(n),
            float(n),
            complex(n),
            items[n],
            round(n),
            round(n, 2),
            flags[:3],
            divmod(n, 2),
            x[n],
        )

    check(lambda x: fn(x, Number()), t())
    check(fn, t(), Number())


def test_container_protocol() -> None:
    class Grid:
        def __init__(self) -> None:
            self.data: dict[Any, Any] = {}
            self.log: list[Any] = []

        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, slice):
                return key.start, key.stop, key.step
            self.log.append(("get", key))
            return self.data[key] if key in self.data else key

        def __setitem__(self, key: Any, value: Any) -> None:
            self.log.append(("set", key))
            self.data[key] = value

        def __delitem__(self, key: Any) -> None:
            del self.data[key]

        def __len__(self) -> int:
            return len(self.data)

        def __contains__(self, key: Any) -> bool:
            return key in self.data

        def __iter__(self) -> Any:
            return iter(self.data)

        def __reversed__(self) -> Any:
            return reversed(list(self.data))

    def fn(x: torch.Tensor, g: Grid) -> tuple[Any, ...]:
        g[1, 2] = x + 1
        g["k"] = 3
        g["k"] += 4
        sliced = g[1:2]
        keys = list(g)
        flags = ("k" in g, "z" not in g, len(g), bool(g))
        back = list(reversed(g))
        del g["k"]
        return g[1, 2], sliced, keys, flags, back, len(g), g[..., None], [*g], g.log

    check(fn, t(), Grid(), calls=1)
    check(lambda x: fn(x, Grid()), t())


def test_sequence_protocol_without_iter() -> None:
    class Seq:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> int:
            if i >= 3:
                raise IndexError(i)
            return i * i

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        s = Seq()
        a, b, c = s
        return list(s), 4 in s, 5 in s, sum(s), a + b + c, list(reversed(s)), dict(enumerate(s)), x + s[2]  # type: ignore[call-overload,arg-type]

    check(fn, t())


def test_bool_and_len_define_truth() -> None:
    class Sized:
        def __init__(self, n: int) -> None:
            self.n = n

        def __len__(self) -> int:
            return self.n

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        return "a" if Sized(0) else "b", bool(Sized(2)), not Sized(0), any([Sized(0), Sized(1)]), x + len(Sized(4))

    check(fn, t(), graphs=1)


def test_str_repr_format_of_user_objects() -> None:
    class Shown:
        def __init__(self, n: int) -> None:
            self.n = n

        def __repr__(self) -> str:
            return f"Shown({self.n})"

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        s = Shown(3)
        return (
            str(s),
            repr(s),
            f"{s} {[s]} { ({'k': s}) }",
            "%s %r" % (s, s),
            "{!r:>10}".format(s),
            ", ".join(map(str, [s, s])),
            x + s.n,
        )

    check(fn, t())


def test_tensor_like_object_with_torch_function() -> None:
    class Wrapped:
        def __init__(self, v: torch.Tensor) -> None:
            self.v = v

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args = [a.v if isinstance(a, Wrapped) else a for a in args]
            return Wrapped(func(*args, **(kwargs or {})))

    check(lambda x: (torch.add(Wrapped(x), 1).v, torch.relu(Wrapped(x)).v), t())  # type: ignore[call-overload,arg-type]


class Merged:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __or__(self, other: Any) -> Any:
        return f"{self.kind} or"

    def __ror__(self, other: Any) -> Any:
        return f"{self.kind} ror"


class Inherits(Merged):
    pass


class Overrides(Merged):
    def __ror__(self, other: Any) -> Any:
        return f"{self.kind} overridden"


def test_a_subclass_comes_first_where_it_overrides_the_reflected_method() -> None:
    def fn(x: torch.Tensor) -> Any:
        a = Merged("a")
        return x, a | Inherits("b"), a | Overrides("c"), Inherits("b") | a

    check(fn, t(), breaks=0)


class Shy(int):
    def __lt__(self, other: Any) -> Any:
        return NotImplemented

    def __eq__(self, other: Any) -> Any:
        return NotImplemented

    __hash__ = int.__hash__


def test_numbers_compare_in_c_where_a_subclass_does_not() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x, Shy(1) < Shy(2), Shy(1) < 2, Shy(3) == 3, 1 == Shy(1), Shy(1) != 1.0

    check(fn, t(), breaks=0)
