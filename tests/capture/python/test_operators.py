"""Operators and comparisons, on tensors, on numbers, and between the two."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, compile_fn, t

Fn = Callable[..., Any]

BINARY: dict[str, Fn] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "truediv": lambda x, y: x / y,
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "pow": lambda x, y: x**y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
}
INTEGER_BINARY: dict[str, Fn] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "lshift": lambda x, y: x << y,
    "rshift": lambda x, y: x >> y,
}
UNARY: dict[str, Fn] = {
    "neg": lambda x: -x,
    "pos": lambda x: +x,
    "abs": lambda x: abs(x),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_between_tensors(name: str) -> None:
    check(BINARY[name], t(4) + 2, t(4) + 1, graphs=1)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [2, 1.5])
def test_binary_tensor_and_number(name: str, number: float) -> None:
    check(BINARY[name], t(4) + 2, number, graphs=1)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [2, 1.5])
def test_binary_number_and_tensor(name: str, number: float) -> None:
    check(BINARY[name], number, t(4) + 2, graphs=1)


@pytest.mark.parametrize("name", BINARY)
def test_binary_between_numbers_then_tensor(name: str) -> None:
    op = BINARY[name]
    check(lambda x, a, b: x * op(a, b), t(), 7, 3, graphs=1)
    check(lambda x, a, b: x * op(a, b), t(), -7.5, 2, graphs=1)


@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_integer_binary(name: str) -> None:
    op = INTEGER_BINARY[name]
    check(op, torch.tensor([1, 2, 5]), torch.tensor([3, 1, 2]), graphs=1)
    check(op, torch.tensor([1, 2, 5]), 3, graphs=1)
    check(lambda x, a, b: x + op(a, b), t(), 12, 3, graphs=1)


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_boolean_tensors(name: str) -> None:
    check(lambda x: INTEGER_BINARY[name](x > 0, x < 0.5), t(6), graphs=1)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    op = UNARY[name]
    check(op, t(), graphs=1)
    check(lambda x, n: x + op(n), t(), -3, graphs=1)


def test_invert() -> None:
    check(lambda x: ~(x > 0), t(), graphs=1)
    check(lambda x, n: ~x + ~n, torch.tensor([1, 2]), 5, graphs=1)


def test_matmul() -> None:
    check(lambda x, y: x @ y, t(2, 3), t(3, 2), graphs=1)


def test_matmul_in_place_operator_rebinds() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x @= y
        return x

    check(fn, t(2, 2), t(2, 2))


@pytest.mark.parametrize(
    "name",
    ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"],
)
def test_augmented_assignment_mutates_the_argument(name: str) -> None:
    op = getattr(operator, name)
    integer = name in ("iand", "ior", "ixor", "ilshift", "irshift")
    x = torch.tensor([1, 2, 5]) if integer else t() + 2

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x
        y = op(y, 2)
        return y

    check(fn, x, graphs=1)


def test_augmented_statements_on_tensor() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x
        y += 1
        y *= 2
        y -= 0.5
        y /= 2
        y //= 0.25
        y **= 2
        y %= 3
        return x, y

    check(fn, t(), graphs=1)


def test_augmented_statements_on_numbers() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        n += 5
        n *= 3
        n -= 1
        n //= 2
        n **= 2
        n %= 100
        n <<= 2
        n >>= 1
        n |= 1
        n &= 0xFF
        n ^= 0x0F
        return x + n

    check(fn, t(), 4, graphs=1)


def test_chained_comparison() -> None:
    def fn(x: torch.Tensor, a: int, b: int) -> torch.Tensor:
        if 0 < a < b <= 10 != 11:
            return x + 1
        return x - 1

    check(fn, t(), 2, 3, graphs=1)
    check(fn, t(), 3, 2, graphs=1)


def test_chained_comparison_evaluates_each_once() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        seen: list[int] = []

        def note(n: int) -> int:
            seen.append(n)
            return n

        flag = note(1) < note(5) < note(3) < note(9)
        return x + flag, seen

    check(fn, t(), graphs=1)


def test_identity_and_membership() -> None:
    def fn(x: torch.Tensor, items: list[Any], d: dict[str, int]) -> tuple[Any, ...]:
        return (
            x is x,
            x is items[1],
            x is not items[1],
            None is None,
            3 in items,
            4 not in [1, 2],
            "a" in d,
            "z" not in d,
            "el" in "hello",
            2 in range(0, 10, 2),
            x + 1,
        )

    x = t()
    check(fn, x, [3, x], {"a": 1}, graphs=1)


def test_tensor_in_list_uses_identity_first() -> None:
    x = t()
    check(lambda x, items: (x in items, x + 1), x, [x], graphs=1)


def test_boolean_operators_short_circuit() -> None:
    def fn(x: torch.Tensor, a: Any, b: Any) -> tuple[Any, ...]:
        seen: list[Any] = []

        def note(v: Any) -> Any:
            seen.append(v)
            return v

        return note(a) and note(b), note(a) or note(b), not note(a), not (note(b) or note(a)), x + len(seen), seen

    for a, b in [(0, 1), (1, 0), ("", []), ([1], None), (2.5, "x")]:
        check(fn, t(), a, b, graphs=1)


def test_or_and_between_tensor_and_none() -> None:
    def fn(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        y = x * 2 if bias is None else x + bias
        return y if bias is not None and bias.dim() == 1 else -y

    check(fn, t(), None, graphs=1)
    check(fn, t(), t(), graphs=1)


def test_ternary_nested() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + (1 if n > 2 else 2 if n > 1 else 3 if n > 0 else 4)

    for n in range(4):
        check(fn, t(), n, graphs=1)


def test_number_type_promotion() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        i = torch.tensor([1, 2, 3])
        return x + i, i + 1, i + 1.5, i / 2, i * True, i == 2, x.double() + x, x.half() + 1.0

    check(fn, t(), graphs=1)


def test_mixed_python_numbers() -> None:
    def fn(x: torch.Tensor, i: int, f: float, c: complex, b: bool) -> tuple[Any, ...]:
        return i + f, i * c, b + i, f**2, i / 3, i // 3, divmod(i, 3), -i % 3, f // 1, b & True, c.imag, x + i * f

    check(fn, t(), 7, 2.5, 1 + 2j, True, graphs=1)


def test_string_and_sequence_operators() -> None:
    def fn(x: torch.Tensor, s: str, items: list[int], tup: tuple[int, ...]) -> tuple[Any, ...]:
        return s + "b", s * 3, items + [4], items * 2, tup + (9,), 2 * tup, items < [2], tup == (1, 2), s < "b", x * 2

    check(fn, t(), "a", [1, 2], (1, 2), graphs=1)


def test_list_augmented_add_keeps_identity() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> tuple[Any, ...]:
        alias = items
        items += [x + 1]
        alias *= 2
        return alias is items, items

    check(fn, t(), [1], calls=1, graphs=1)


def test_tuple_augmented_add_rebinds() -> None:
    def fn(x: torch.Tensor, items: tuple[Any, ...]) -> tuple[Any, ...]:
        old = items
        items += (x + 1,)
        return old, items

    check(fn, t(), (1,), graphs=1)


def test_delete_of_names_and_items() -> None:
    def fn(x: torch.Tensor, items: list[int], d: dict[str, int]) -> tuple[Any, ...]:
        y = x + 1
        del x
        del items[0], d["a"]
        items2 = [1, 2, 3, 4, 5]
        del items2[1:4:2]
        return y, items, d, items2

    check(fn, t(), [1, 2, 3], {"a": 1, "b": 2}, calls=1, graphs=1)


@pytest.mark.parametrize("name", ["add", "mul", "matmul", "neg", "getitem", "truediv", "contains", "is_", "not_"])
def test_operator_module_functions(name: str) -> None:
    fns: dict[str, tuple[Fn, tuple[Any, ...]]] = {
        "add": (operator.add, (t(), t())),
        "mul": (operator.mul, (t(), 2)),
        "matmul": (operator.matmul, (t(2, 2), t(2, 2))),
        "neg": (operator.neg, (t(),)),
        "getitem": (operator.getitem, (t(), 1)),
        "truediv": (operator.truediv, (t(), 4)),
        "contains": (operator.contains, ([1, 2], 2)),
        "is_": (operator.is_, (None, None)),
        "not_": (operator.not_, ([],)),
    }
    op, args = fns[name]
    check(lambda x, *args: (op(*args), x + 1), t(), *args, graphs=1)


def test_operator_getters() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> tuple[Any, ...]:
        first = operator.itemgetter(0)
        both = operator.itemgetter(1, 0)
        shape = operator.attrgetter("shape")
        upper = operator.methodcaller("upper")
        total = operator.methodcaller("sum", dim=0)
        return first(items), both(items), shape(x), upper("abc"), total(x), operator.attrgetter("shape", "dtype")(x)

    check(fn, t(2, 3), ["p", "q"], graphs=1)


def test_division_by_zero_is_raised_as_in_eager() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + 1 // n

    check(fn, t(), 0, raises=ZeroDivisionError)


def test_type_error_of_operands_is_raised_as_in_eager() -> None:
    check(lambda x, a, b: x + (a + b), t(), 1, "b", raises=TypeError)
    check(lambda x, a: a < x.shape, t(), "b", raises=TypeError)


def test_tensor_compared_with_none_and_string() -> None:
    check(lambda x: (x == None, x != None, x == "a", x + 1), t())  # noqa: E711


def test_int_subclass_arithmetic() -> None:
    check(lambda x, n: (n + True, n * 2, x + n), t(), True, graphs=1)


class Right:
    """Has reflected operators only, which may decline."""

    def __init__(self, declines: bool) -> None:
        self.declines = declines

    def __radd__(self, other: Any) -> Any:
        return NotImplemented if self.declines else ("radd", other)

    __rmul__ = __radd__


class RightList(list[int]):
    def __radd__(self, other: Any) -> Any:
        return ("radd", list(other))

    __rmul__ = __radd__


SEQUENCES: dict[str, Callable[[], Any]] = {
    "list": lambda: [1],
    "tuple": lambda: (1,),
    "text": lambda: "s",
    "bytes": lambda: b"b",
    "deque": lambda: collections.deque([1]),
}
RIGHT: dict[str, Any] = {"declines": Right(True), "takes": Right(False), "is a list": RightList([2])}


@pytest.mark.parametrize("left", SEQUENCES)
@pytest.mark.parametrize("right", RIGHT)
def test_sequences_leave_it_to_reflected_operators_first(left: str, right: str) -> None:
    def fn(x: torch.Tensor, a: Any, b: Any) -> Any:
        results: list[Any] = []
        for operation in (operator.add, operator.mul, operator.iadd, operator.imul):
            try:
                results.append(operation(a, b))
            except TypeError as error:
                results.append(str(error))
        try:
            a += b
        except TypeError as error:
            return x + 1, results, str(error)
        return x + 1, results, a

    compiled = compile_fn(fn)
    got, wanted = (call(t(), SEQUENCES[left](), RIGHT[right]) for call in (compiled, fn))
    assert repr(got[1:]) == repr(wanted[1:])


def test_objects_compared_with_plain_values() -> None:
    class Plain:
        pass

    def fn(x: torch.Tensor, o: Any, act: Any, n: int) -> Any:
        known = act == "relu", act != "relu", o == n, n == o, o != 1.5, o in (0, "a"), (o, n) == (1, n)
        return (x + 1 if act == "gelu" else act(x)), known

    for o in (Plain(), torch.nn.ReLU(), Plain):
        check(fn, t(), o, torch.relu, 3, graphs=1, breaks=0)
