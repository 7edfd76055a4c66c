"""Writes to what existed before the call: once, in order, with aliasing, also across breaks and failures."""

from __future__ import annotations

import collections
from typing import Any

import torch
from helpers import check, check_made, graph_break, t

COUNTER = 0
REGISTRY: dict[str, Any] = {}
CURRENT: Any = None


class Box:
    """An object with attributes."""

    shared: list[Any] = []
    total = 0

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_attribute_written() -> None:
    def fn(x: torch.Tensor, box: Box) -> torch.Tensor:
        box.value = x + 1
        box.count = box.count + 1
        return box.value * box.count

    check(fn, t(), Box(count=0), calls=3, graphs=1)


def test_attribute_deleted_and_probed() -> None:
    def fn(x: torch.Tensor, box: Box) -> tuple[Any, ...]:
        if hasattr(box, "old"):
            del box.old
        box.new = x
        return hasattr(box, "old"), hasattr(box, "new"), getattr(box, "old", "gone"), x + 1

    check(fn, t(), Box(old=1), graphs=1)


def test_setattr_getattr_delattr_by_name() -> None:
    def fn(x: torch.Tensor, box: Box, name: str) -> tuple[Any, ...]:
        setattr(box, name, x + 1)
        value = getattr(box, name)
        setattr(box, name + "2", value * 2)
        delattr(box, name)
        return value, vars(box).keys() if False else sorted(vars(box))

    check(fn, t(), Box(a=1), "b", graphs=1)


def test_attribute_augmented() -> None:
    def fn(x: torch.Tensor, box: Box) -> torch.Tensor:
        box.n += 2
        box.items += [box.n]
        box.tensor += x
        return box.tensor * box.n

    check(fn, t(), Box(n=1, items=[], tensor=t()), calls=3, graphs=1)


def test_tensor_attribute_replaced_in_every_call() -> None:
    def fn(x: torch.Tensor, box: Box) -> torch.Tensor:
        box.state = box.state * 0.5 + x
        return box.state + 1

    check(fn, t(), Box(state=t()), calls=4, graphs=1)


def test_class_attribute_written() -> None:
    def make() -> Any:
        class Counted:
            total = 0

        def fn(x: torch.Tensor) -> torch.Tensor:
            Counted.total += 1
            return x + Counted.total

        return fn, lambda: Counted.total

    check_made(make, t(), calls=3)


def test_class_attribute_shadowed_by_instance() -> None:
    def fn(x: torch.Tensor, box: Box) -> tuple[Any, ...]:
        box.total += 5
        return box.total, Box.total, x + box.total

    check(fn, t(), Box(), graphs=1)


def test_list_methods() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> tuple[Any, ...]:
        items.append(x + 1)
        items.insert(0, "first")
        items.extend([3, 1, 2])
        popped = items.pop()
        at = items.pop(3)
        items.remove(3)
        items.reverse()
        items[0] = "set"
        del items[-1]
        return popped, at, items.index("set"), items.count(1), len(items), x * 2

    check(fn, t(), [7, 8], calls=1, graphs=1)


def test_list_sort_copy_clear_multiply() -> None:
    def fn(x: torch.Tensor, items: list[int]) -> tuple[Any, ...]:
        items.sort(reverse=True)
        copied = items.copy()
        items *= 2
        items.sort(key=lambda v: v % 3)
        other = list(items)
        items.clear()
        items.append(x + len(other))
        return copied, other, items

    check(fn, t(), [3, 1, 2], calls=1, graphs=1)


def test_dict_methods() -> None:
    def fn(x: torch.Tensor, d: dict[str, Any]) -> tuple[Any, ...]:
        d["new"] = x + 1
        d.update({"u": 1}, v=2)
        d.setdefault("a", 100)
        d.setdefault("s", []).append(5)
        popped = d.pop("a", None)
        last = d.popitem()
        del d["u"]
        missing = d.get("nope", "default")
        d |= {"w": 3}
        return popped, last, missing, list(d), "v" in d, len(d), x * 2

    check(fn, t(), {"a": 1, "b": 2}, calls=1, graphs=1)


def test_dict_cleared_and_refilled_keeps_order_and_identity() -> None:
    def fn(x: torch.Tensor, d: dict[str, Any]) -> Any:
        old = dict(d)
        d.clear()
        for k in reversed(list(old)):
            d[k] = (old[k], x)
        return d

    check(fn, t(), {"a": 1, "b": 2, "c": 3}, calls=1, graphs=0)


def test_set_methods() -> None:
    def fn(x: torch.Tensor, s: set[int]) -> tuple[Any, ...]:
        s.add(10)
        s.discard(1)
        s.discard(99)
        s.update({20, 30})
        s |= {5}
        s &= {5, 10, 20}
        s.remove(20)
        return sorted(s), 10 in s, len(s), x + len(s)

    check(fn, t(), {1, 2, 3}, graphs=1)


def test_deque_methods() -> None:
    def fn(x: torch.Tensor, d: collections.deque[Any]) -> tuple[Any, ...]:
        d.append(x + 1)
        d.appendleft("left")
        d.extend([1, 2])
        d.rotate(1)
        a, b = d.pop(), d.popleft()
        d[0] = "zero"
        return a, b, len(d), x * 2

    check(fn, t(), collections.deque([1, 2, 3], maxlen=4), calls=2)


def test_defaultdict_ordereddict_counter_arguments() -> None:
    def fn(x: torch.Tensor, dd: Any, od: Any, counter: Any) -> torch.Tensor:
        dd["a"].append(x + 1)
        dd["missing"]
        od["z"] = 1
        od.move_to_end("b", last=False)
        counter.update("hello")
        counter["h"] += 5
        return x * counter["l"]

    dd: Any = collections.defaultdict(list)
    check(fn, t(), dd, collections.OrderedDict(a=1, b=2), collections.Counter("abc"), calls=2)


def test_global_written() -> None:
    def make() -> Any:
        global COUNTER
        COUNTER = 0

        def fn(x: torch.Tensor) -> torch.Tensor:
            global COUNTER
            COUNTER += 1
            y = x + COUNTER
            COUNTER *= 2
            return y

        return fn, lambda: COUNTER

    check_made(make, t(), calls=3)


def test_global_rebound_to_a_tensor_and_read_back() -> None:
    def make() -> Any:
        global CURRENT
        CURRENT = None

        def fn(x: torch.Tensor) -> torch.Tensor:
            global CURRENT
            if CURRENT is None:
                CURRENT = x * 2
            else:
                CURRENT = CURRENT + x
            return CURRENT + 1

        return fn, lambda: CURRENT

    check_made(make, t(), calls=3)


def test_global_dict_filled() -> None:
    def make() -> Any:
        REGISTRY.clear()

        def fn(x: torch.Tensor, key: str) -> torch.Tensor:
            if key not in REGISTRY:
                REGISTRY[key] = x + 1
            return REGISTRY[key] * 2

        return fn, lambda: dict(REGISTRY)

    check_made(make, t(), "k", calls=3)


def test_global_deleted() -> None:
    def make() -> Any:
        globals()["TEMPORARY"] = 5

        def fn(x: torch.Tensor) -> torch.Tensor:
            global TEMPORARY
            y = x + TEMPORARY  # type: ignore[name-defined]  # noqa: F821
            del TEMPORARY
            return y

        return fn, lambda: "TEMPORARY" in globals()

    check_made(make, t(), calls=1)


def test_closure_cell_written() -> None:
    def make() -> Any:
        count = 0
        history: list[int] = []

        def fn(x: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += 1
            history.append(count)
            return x + count

        return fn, lambda: (count, list(history))

    check_made(make, t(), calls=3)


def test_closure_cell_shared_by_two_functions() -> None:
    def make() -> Any:
        value: Any = 1

        def put(v: Any) -> None:
            nonlocal value
            value = v

        def fn(x: torch.Tensor) -> torch.Tensor:
            put(x + 2)
            return value * 2

        return fn, lambda: value

    check_made(make, t())


def test_module_attribute_and_buffer_written() -> None:
    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("steps", torch.tensor(0))
            self.calls = 0
            self.last: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.steps += 1
            self.mean = self.mean * 0.5 + x.mean(0) * 0.5
            self.mean.clamp_(-10, 10)
            self.last = x
            return x - self.mean

    check(Norm(), t(2, 3), calls=3, graphs=1)


def test_buffer_updated_in_place_through_functional_batch_norm() -> None:
    check(torch.nn.BatchNorm1d(3), t(4, 3), calls=3, graphs=1)


def test_module_dict_attributes_and_submodule_set_in_forward() -> None:
    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: dict[int, torch.Tensor] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = x.shape[0]
            if n not in self.cache:
                self.cache[n] = torch.arange(n, dtype=x.dtype)
            return x + self.cache[n]

    check(Cache(), t(), calls=3)


def test_parameter_written_under_no_grad() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.w.mul_(2)
                self.w.data.add_(1)
            return x * self.w

    check(Model(), t(), calls=2)


def test_order_of_writes_to_different_objects_is_visible() -> None:
    class Recorder:
        def __init__(self, log: list[str], name: str) -> None:
            object.__setattr__(self, "log", log)
            object.__setattr__(self, "name", name)

        def __setattr__(self, key: str, value: Any) -> None:
            self.log.append(f"{self.name}.{key}")
            object.__setattr__(self, key, value)

    def fn(x: torch.Tensor, a: Recorder, b: Recorder) -> torch.Tensor:
        a.x = x + 1
        b.y = 2
        a.z = 3
        b.y = 4
        return x * b.y

    log: list[str] = []
    check(fn, t(), Recorder(log, "a"), Recorder(log, "b"), calls=2)


def test_alias_of_argument_in_container_is_the_same_object() -> None:
    def fn(x: torch.Tensor, items: list[Any], d: dict[str, Any]) -> tuple[Any, ...]:
        items.append(x)
        d["x"] = x
        d["items"] = items
        d["d"] = d
        new = [items]
        new.append(new)
        return items[-1] is x, d["items"] is items, new, x, x + 1

    check(fn, t(), [], {}, calls=1, graphs=1)


def test_two_arguments_that_are_one_list() -> None:
    def fn(x: torch.Tensor, a: list[Any], b: list[Any]) -> tuple[Any, ...]:
        a.append(1)
        b.append(2)
        return len(a), a is b, x + len(b)

    same: list[Any] = []
    check(fn, t(), same, same, calls=2)
    check(fn, t(), [], [], calls=2)


def test_two_arguments_that_are_one_tensor() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
        x.add_(1)
        return x is y, y * 2

    same = t()
    check(fn, same, same, calls=2)
    check(fn, t(), t(), calls=2)


def test_view_and_base_as_arguments() -> None:
    def fn(x: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        view.mul_(3)
        y = x + 1
        x[1] = 10
        return y + view.sum()

    x = t(4)
    check(fn, x, x[1:3], calls=2)


def test_returned_argument_is_the_argument() -> None:
    def fn(x: torch.Tensor, items: list[Any], d: Any) -> tuple[Any, ...]:
        y = x + 1
        return x, items, d, y, y, x.view(-1), x[0:1]

    check(fn, t(), [t()], {"a": {"b": [1]}}, graphs=1)


def test_object_reachable_two_ways_is_written_through_both() -> None:
    def fn(x: torch.Tensor, a: Box, b: Box) -> tuple[Any, ...]:
        a.inner.n = 1
        b.inner.n += 1
        b.inner.items.append(x)
        return a.inner.n, a.inner is b.inner, len(a.inner.items), x + 1

    inner = Box(items=[])
    check(fn, t(), Box(inner=inner), Box(inner=inner), graphs=1)


def test_new_object_stored_in_old_ones() -> None:
    def fn(x: torch.Tensor, box: Box, items: list[Any]) -> torch.Tensor:
        new = Box(value=x + 1, parent=box)
        new.me = new
        box.child = new
        items.append(new)
        items.append([new, new.value])
        new.value = new.value * 2
        return new.value

    check(fn, t(), Box(), [], calls=1, graphs=1)


def test_mutate_then_read() -> None:
    def fn(x: torch.Tensor, items: list[Any], d: dict[str, Any], box: Box) -> torch.Tensor:
        items.append(2)
        d["n"] = items[-1] * 3
        box.n = d["n"] + len(items)
        total = 0
        for v in items:
            total += v
        for k, v in d.items():
            total += v + len(k)
        return x * box.n + total

    check(fn, t(), [1], {"a": 5}, Box(), calls=2)


def test_mutate_break_mutate() -> None:
    def fn(x: torch.Tensor, items: list[Any], d: dict[str, Any], box: Box) -> tuple[Any, ...]:
        items.append(x + 1)
        d["before"] = items
        box.n = 1
        x.add_(1)
        graph_break()
        items.append(x * 2)
        d["after"] = d["before"]
        box.n += 1
        x.mul_(2)
        graph_break()
        items.pop(0)
        del d["before"]
        return d["after"] is items, box.n, x

    check(fn, t(), [], {}, Box(), calls=1, graphs=2, breaks=2)


def test_broken_call_sees_the_writes_made_before_it() -> None:
    def show(*things: Any) -> None:
        print(*[getattr(thing, "__dict__", thing) for thing in things])

    def make() -> Any:
        global COUNTER
        COUNTER = 0
        cell = 0

        def fn(x: torch.Tensor, items: list[Any], d: dict[str, Any], box: Box) -> torch.Tensor:
            nonlocal cell
            global COUNTER
            items.append(1)
            d["k"] = items
            box.attr = "set"
            cell = 7
            COUNTER = 9
            x.zero_()
            show(items, d, box, cell, COUNTER, x)
            return x + cell

        return fn, lambda: (cell, COUNTER)

    check_made(make, t(), [], {}, Box(), calls=1)


def test_iterator_argument_is_advanced() -> None:
    def make() -> Any:
        it = iter([1, 2, 3, 4, 5, 6])

        def fn(x: torch.Tensor) -> tuple[Any, ...]:
            return next(it), next(it), x + 1

        return fn

    check_made(make, t(), calls=2)


def test_generator_from_outside_is_advanced() -> None:
    def make() -> Any:
        def count() -> Any:
            n = 0
            while True:
                n += 1
                yield n

        gen = count()

        def fn(x: torch.Tensor) -> torch.Tensor:
            return x + next(gen) + next(gen)

        return fn

    check_made(make, t(), calls=3)


def test_function_attributes_and_defaults_mutated() -> None:
    def make() -> Any:
        def fn(x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006
            seen.append(len(seen))
            fn.calls = getattr(fn, "calls", 0) + 1  # type: ignore[attr-defined]
            return x + len(seen) + fn.calls  # type: ignore[attr-defined]

        return fn

    check_made(make, t(), calls=3)


def test_mutated_while_iterating_raises_as_eager() -> None:
    def fn(x: torch.Tensor, d: dict[str, int]) -> torch.Tensor:
        for k in d:
            d[k + "x"] = 1
        return x + 1

    check(fn, t(), {"a": 1}, calls=1, raises=RuntimeError, skips=None)


def test_tensor_attribute_set_on_argument() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x.tag = "seen"  # type: ignore[attr-defined]
        y = x + 1
        y.tag = ["new"]  # type: ignore[attr-defined]
        return y

    check(fn, t())


def test_requires_grad_set_inside() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        y = x.detach().clone().requires_grad_()
        z = (y * y).sum()
        return y, z, z.requires_grad

    check(fn, t())


def test_requires_grad_of_an_argument_changed() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        x.requires_grad_(True)
        return x * 2, x.requires_grad

    check(fn, t(), calls=1)


def test_grad_accumulates_on_parameters() -> None:
    def make() -> Any:
        w = torch.ones(3, requires_grad=True)

        def fn(x: torch.Tensor) -> torch.Tensor:
            loss = (w * x).sum()
            loss.backward()
            return loss.detach()

        return fn, lambda: w.grad

    check_made(make, t(), calls=2, skips=None)
