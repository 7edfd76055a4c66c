"""Graph breaks at every kind of place: one break, two graphs, and nothing that surrounds it is lost."""

# ruff: noqa: PIE804

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from helpers import check, check_made, graph_break, t


def test_print_between_operations() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print("between", x.shape)
        return y * 2

    check(fn, t(), graphs=2, breaks=1)


def test_print_of_a_tensor() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print(y)
        return y * 2

    check(fn, t(), graphs=2, breaks=1)


def test_print_first_and_last() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        print("first")
        y = x + 1
        print("last")
        return y

    check(fn, t())


def test_prints_keep_order_with_end_and_sep() -> None:
    def fn(x: torch.Tensor, items: list[str]) -> torch.Tensor:
        for item in items:
            print(item, 1, sep="-", end=";")
            x = x * 2
        print(*items)
        return x

    check(fn, t(), ["a", "b"], graphs=2, breaks=3)


def test_logging_reaches_handlers() -> None:
    class Collect(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[str] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.lines.append(record.getMessage())

    def make() -> Any:
        logger = logging.Logger("jitney-test")
        handler = Collect()
        logger.addHandler(handler)

        def fn(x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            logger.warning("value %s %s", y.shape, 3)
            return y * 2

        return fn, lambda: list(handler.lines)

    check_made(make, t())


def test_item() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        n = (x + 1).sum().item()
        return x * n

    check(fn, t(), graphs=2, breaks=1)


def test_item_used_in_python() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        n = int(x.abs().sum().item() * 8)
        items = list(range(n))
        return len(items), [x + i for i in items[:3]], f"{n:04d}"

    check(fn, t())


def test_tolist() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        values = (x * 2).tolist()
        values.append(sum(values))
        return values, x + values[0]

    check(fn, t(), graphs=2, breaks=1)


@pytest.mark.parametrize("convert", [int, float, bool, complex])
def test_conversion_of_a_tensor_to_a_number(convert: Any) -> None:
    check(lambda x: (convert(x.sum() * 4), x + 1), t())


def test_numpy_of_a_tensor() -> None:
    check(lambda x: ((x + 1).numpy().sum(), x * 2), t())


def test_data_dependent_if() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    check(fn, t(100), t(100) - 500, graphs=2, breaks=1)
    check(fn, t(100), t(100) + 5, graphs=2, breaks=1)


def test_classic_example_has_three_graphs() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = a / (torch.abs(a) + 1)
        print("woo")
        if b.sum() < 0:
            b = b * -1
        return x * b

    check(fn, t(100), t(100) - 500, graphs=3, breaks=2)


def test_both_branches_over_calls() -> None:
    class Flip:
        def __init__(self) -> None:
            self.sign = 1.0

    def fn(x: torch.Tensor, flip: Flip) -> str:
        flip.sign = -flip.sign
        x.mul_(-1)
        if x.sum() > 0:
            return "positive"
        elif (x == 0).all():
            return "zero"
        else:
            return "negative"

    check(fn, t() + 1, Flip(), calls=4)


def test_data_dependent_while() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        n = 0
        while x.sum() < 10:
            x = x + 1
            n += 1
        return x, n

    check(fn, t())


def test_data_dependent_while_with_else_break_and_continue() -> None:
    def fn(x: torch.Tensor, limit: int) -> tuple[Any, ...]:
        seen = []
        n = 0
        while x.sum() < 20:
            n += 1
            x = x + 1
            if n % 2:
                continue
            seen.append(n)
            if n > limit:
                break
        else:
            seen.append(-1)
        return x, seen

    check(fn, t(), 2)
    check(fn, t(), 100)


def test_boolean_operators_on_tensors() -> None:
    check(lambda x: (x.sum() > 0 and x + 1, x.sum() > 100 or x - 1, not x.sum(), x * 2), t() + 1)


def test_ternary_on_tensor() -> None:
    check(lambda x: x + 1 if x.mean() > 0 else x - 1, t() + 1, graphs=2, breaks=1)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_break_in_for_loop_at_iteration(at: int) -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        seen = []
        for i in range(4):
            x = x + i
            if i == at:
                print("at", i)
            seen.append(x.shape[0] + i)
        return x, seen

    check(fn, t(), breaks=1)


def test_break_in_every_iteration() -> None:
    def fn(x: torch.Tensor, items: list[str]) -> tuple[Any, ...]:
        total = 0
        for i, item in enumerate(items):
            x = x * 2
            total += i
            print(i, item, total)
        return x, total

    check(fn, t(), ["a", "b", "c"], graphs=3, breaks=3)


def test_break_in_nested_loops() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        seen = []
        for i in range(3):
            for j in "ab":
                x = x + i
                if i == 1:
                    print(i, j)
                seen.append((i, j))
            else:
                seen.append(("end", "z"))
        return x, seen

    check(fn, t(), breaks=2)


@pytest.mark.parametrize(
    "kind", ["list", "tuple", "zip", "enumerate", "dict", "items", "set", "reversed", "map", "iter"]
)
def test_live_iterator_across_a_break(kind: str) -> None:
    def fn(x: torch.Tensor, items: list[int], d: dict[str, int]) -> tuple[Any, ...]:
        iterators: dict[str, Any] = {
            "list": lambda: items,
            "tuple": lambda: tuple(items),
            "zip": lambda: zip(items, d, strict=False),
            "enumerate": lambda: enumerate(items, 3),
            "dict": lambda: d,
            "items": lambda: d.items(),
            "set": lambda: {1, 2, 3},
            "reversed": lambda: reversed(items),
            "map": lambda: map(lambda v: v * 2, items),
            "iter": lambda: iter(items),
        }
        seen = []
        for v in iterators[kind]():
            x = x + 1
            print("item", v)
            seen.append(v)
        return x, seen

    check(fn, t(), [5, 6, 7], {"a": 1, "b": 2, "c": 3})


def test_iterator_shared_across_a_break_keeps_its_place() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        it = iter(items)
        a = next(it)
        y = x + a
        graph_break()
        b = next(it)
        y = y + b
        graph_break()
        return y, a, b, list(it), next(it, None)

    check(fn, t(), [1, 2, 3, 4], graphs=2, breaks=2)


def test_list_mutated_while_iterated_across_a_break() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        for v in items:
            x = x + v
            graph_break()
            if v < 3:
                items.append(v + 2)
        return x, items

    check(fn, t(), [1, 2], calls=1)


def test_loop_over_module_list_with_a_break_in_one_layer() -> None:
    class Noisy(torch.nn.Module):
        def __init__(self, loud: bool) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.loud = loud

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            if self.loud:
                print("layer")
            return torch.relu(y)

    class Stack(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([Noisy(i == 1) for i in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x * 2

    check(Stack(), t(2, 3), graphs=3, breaks=1)


def test_break_in_comprehension_body() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x * 2
        items = [(print("c", i), y + i)[1] for i in range(3)]
        return items, y + 1

    check(fn, t())


def test_break_in_dict_and_set_comprehension() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        return {i: (x + i).sum().item() for i in range(2)}, {int(x.sum().item()) + i for i in (1, 2)}, x + 1

    check(fn, t())


def test_break_in_generator_expression() -> None:
    check(lambda x: sum((x * i).sum().item() for i in range(3)), t())
    check(
        lambda x: (any((x + i).sum() > 0 for i in range(9)), [v for v in (x.sum().item() + i for i in range(3))]), t()
    )


def test_break_three_calls_deep() -> None:
    def inner(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        y = x + 1
        print("deep")
        log.append("inner")
        return y * 2

    def middle(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        z = inner(x * 3, log) - x
        log.append("middle")
        return z

    def outer(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        a = x + 5
        b = middle(a, log) + a
        log.append("outer")
        return b

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        log: list[str] = []
        local = x * 10
        y = outer(x, log)
        return y + local, log

    check(fn, t(), graphs=5, breaks=1)


def test_break_in_the_middle_of_an_expression() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        print("noisy")
        return x + 1

    def fn(x: torch.Tensor, d: dict[str, Any]) -> tuple[Any, ...]:
        y = (x * 2) - noisy(x) * (x + 3)
        items = [x + 1, noisy(x), {"k": (noisy(y), 1)}]
        d["key"] = noisy(x)
        return y, items, f"{x.shape} {noisy(x).shape}", d

    check(fn, t(), {})


def test_break_in_argument_with_keyword_and_star_arguments() -> None:
    def noisy(v: Any) -> Any:
        print("arg")
        return v

    def target(a: Any, *rest: Any, k: Any = 0, **kw: Any) -> Any:
        return a + sum(rest) + k + kw["z"]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return target(x + 1, *[1, noisy(2)], k=noisy(3), **{"z": noisy(4)})

    check(fn, t(), breaks=3)


def test_break_in_recursion() -> None:
    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        if n == 0:
            print("bottom")
            return x
        return down(x + n, n - 1) * 2

    check(lambda x: down(x, 4), t(), graphs=2, breaks=1)


def test_break_in_method_and_state_of_the_object() -> None:
    class Model:
        def __init__(self) -> None:
            self.count = 0
            self.last: Any = None

        def step(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            self.last = x + self.count
            print("step", self.count)
            self.count += 10
            return self.last * 2

        def run(self, x: torch.Tensor) -> torch.Tensor:
            return self.step(self.step(x))

    model = Model()
    check(lambda x, m: m.run(x), t(), model, breaks=2)
    check(model.run, t(), breaks=2)


def test_break_in_init_of_a_class_created_inside() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        class Point:
            def __init__(self, a: torch.Tensor) -> None:
                self.a = a + 1
                print("made")
                self.b = self.a * 2

        p = Point(x)
        return p, p.a + p.b

    check(fn, t(), graphs=3, breaks=2)


def test_break_in_property_and_getattr() -> None:
    class Lazy:
        def __init__(self, x: torch.Tensor) -> None:
            self._x = x

        @property
        def value(self) -> torch.Tensor:
            print("value")
            return self._x + 1

        def __getattr__(self, name: str) -> Any:
            if name.startswith("dyn"):
                print("getattr", name)
                return self._x * 2
            raise AttributeError(name)

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        lazy = Lazy(x)
        y = x * 3 + lazy.value
        return y - lazy.dynamic, hasattr(lazy, "other"), x + 1

    check(fn, t(), breaks=2)


def test_break_in_operator_overloads() -> None:
    class Vec:
        def __init__(self, v: torch.Tensor) -> None:
            self.v = v

        def __add__(self, other: Any) -> Vec:
            print("add")
            return Vec(self.v + other)

        def __radd__(self, other: Any) -> Vec:
            print("radd")
            return Vec(other + self.v)

        def __lt__(self, other: Vec) -> bool:
            return bool((self.v < other.v).all())

        def __getitem__(self, i: int) -> torch.Tensor:
            print("get", i)
            return self.v[i]

        def __len__(self) -> int:
            print("len")
            return 3

        def __bool__(self) -> bool:
            print("bool")
            return True

        def __contains__(self, n: float) -> bool:
            return bool((self.v == n).any())

    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a = Vec(x)
        b = 1 + (a + 2)
        flag = "yes" if b else "no"
        return b.v, a < b, a[1] + 1, len(a), flag, 100 in a, x * 2

    check(fn, t())


def test_break_in_sort_key_and_other_callbacks_of_c() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        items = sorted([3, 1, 2], key=lambda i: (x[0] * i).item())
        best = max([1, 2, 3], key=lambda i: -(x + i).sum().item())
        mapped = list(map(lambda i: (x + i).sum().item(), [1, 2]))
        kept = list(filter(lambda i: (x * i).sum() < 0.3, [0, 1, 2]))
        return items, best, mapped, kept, x + 1

    check(fn, t())


def test_break_in_nested_closure_writing_nonlocal() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        count = 0
        total = x

        def bump() -> None:
            nonlocal count, total
            count += 1
            total = total + count
            print("bump", count)
            count += 1
            total = total * 2

        bump()
        bump()
        return count, total

    check(fn, t(), breaks=2)


def test_break_in_module_hooks() -> None:
    def make() -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        torch.nn.init.ones_(model[0].weight)
        torch.nn.init.ones_(model[0].bias)

        def pre(module: Any, args: Any) -> Any:
            print("pre", type(module).__name__)
            return (args[0] + 1,)

        def post(module: Any, args: Any, out: Any) -> Any:
            print("post", tuple(out.shape))
            return out * 2

        model[0].register_forward_pre_hook(pre)
        model[0].register_forward_hook(post)
        return model

    check_made(make, t(2, 3), breaks=2)


def test_explicit_graph_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        graph_break()
        return y * 2

    check(fn, t(), graphs=2, breaks=1)


def test_explicit_graph_break_in_callee_and_loop() -> None:
    def helper(x: torch.Tensor, i: int) -> torch.Tensor:
        y = x + i
        graph_break()
        return y * y

    def fn(x: torch.Tensor) -> torch.Tensor:
        for i in range(3):
            x = helper(x, i) + 1
        return x

    check(fn, t())
