"""functools.lru_cache around functions that make tensors of constants: masks, tables of angles, grids."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import CountingBackend, check_made, check_scenario, t

import jitney

Fn = Callable[..., Any]


def _mask() -> Fn:
    @functools.lru_cache(maxsize=8)
    def mask(n: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(n, n, device=device, dtype=dtype).tril()

    return lambda x: (mask(x.shape[0], x.device) @ x, mask(3, device=x.device, dtype=torch.int64))


def _angles() -> Fn:
    @functools.cache
    def angles(n: int) -> dict[str, Any]:
        turns = torch.arange(n).float() / n
        return {"parts": (turns.sin(), turns.cos()), "n": n}

    def fn(x: torch.Tensor) -> Any:
        table = angles(x.shape[0])
        sin, cos = table["parts"]
        return x * sin + x * cos * table["n"], angles(2)["parts"][0] is angles(2)["parts"][0]

    return fn


def _without_gradients() -> Fn:
    @functools.cache
    def weights(n: int) -> torch.Tensor:
        return torch.full((n,), 2.0, requires_grad=torch.is_grad_enabled())

    def fn(x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = x * weights(x.shape[0])
        return y, (x * weights(x.shape[0])).requires_grad

    return fn


class Rotary(torch.nn.Module):
    """Its table is kept by the cache of a method, though the program changes what it was made of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequency", 1 / 10 ** (torch.arange(0, 4, 2) / 4))
        self.scale = 1

    @functools.lru_cache(maxsize=4)
    def table(self, length: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.outer(torch.arange(length).to(dtype), self.frequency) * self.scale
        return angles.cos(), angles.sin()

    def forward(self, x: torch.Tensor) -> Any:
        cos, sin = self.table(x.shape[0], dtype=x.dtype)
        a, b = x.chunk(2, -1)
        same = self.table(x.shape[0], dtype=x.dtype)[0] is cos
        self.scale += 1
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1), same


@pytest.mark.parametrize(
    "make",
    [_mask, _angles],
    ids=["mask", "angles"],
)
def test_tensors_that_a_cache_holds_come_from_outside(make: Fn) -> None:
    check_made(make, t(), calls=3, graphs=1, breaks=0)


def _scenario_of_a_method(maxsize: int | None) -> Callable[[Callable[[Any], Any]], Any]:
    class Grows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("base", torch.ones(4))

        @functools.lru_cache(maxsize=maxsize)
        def table(self) -> torch.Tensor:
            return self.base * 2

        def forward(self, x: torch.Tensor, up: bool = False) -> torch.Tensor:
            if up:
                self.base.mul_(10)
            return x * self.table()

    def scenario(wrap: Callable[[Any], Any]) -> Any:
        """What eager's cache holds depends on when it is asked: another entry's guards must not ask it."""
        called = wrap(lambda module, x, up: module(x, up))
        modules = [Grows(), Grows()]
        out = [called(modules[0], torch.ones(4), False)]
        Grows.table.cache_clear()
        out += [called(m, torch.ones(4), up) for up in (True, False) for m in modules]
        modules[0].base.add_(1)
        return [*out, *(called(m, torch.ones(4), up) for up in (False, True) for m in modules)]

    return scenario


@pytest.mark.parametrize("maxsize", [None, 1])
def test_the_cache_of_a_method_is_asked_when_the_program_asks_it(maxsize: int | None) -> None:
    check_scenario(_scenario_of_a_method(maxsize))
    check_made(Rotary, torch.randn(3, 4), calls=3)


@pytest.mark.parametrize("maxsize", [0, 1, 2])
def test_a_cache_that_keeps_less_than_the_frame_asks_for(maxsize: int) -> None:
    def make() -> Fn:
        @functools.lru_cache(maxsize=maxsize)
        def table(n: int) -> torch.Tensor:
            return torch.ones(n)

        def fn(x: torch.Tensor) -> Any:
            a, b, c = table(3), table(1), table(3)
            a.add_(1)
            return x + a + c * b, a is c

        return fn

    check_made(make, t(), calls=2)


def test_a_cached_tensor_remembers_the_mode_in_which_it_was_made() -> None:
    check_made(_without_gradients, t(), calls=3)


def test_what_is_cached_is_computed_once_and_is_no_part_of_the_graph() -> None:
    @functools.cache
    def table(n: int) -> torch.Tensor:
        return torch.arange(n).float().sin().cos()

    backend = CountingBackend()
    compiled = jitney.compile(lambda x: x * table(x.shape[0]), backend=backend, fullgraph=True)
    held = table(3)
    assert torch.equal(compiled(torch.ones(3)), held)
    assert [n.name for g in backend.graphs for n in g.graph.nodes if n.op.startswith("call")] == ["mul"]
    held.zero_()
    assert torch.equal(compiled(torch.ones(3)), torch.zeros(3))
    assert table(3) is held


def test_a_write_to_what_is_cached_is_there_at_the_next_call() -> None:
    def make() -> Fn:
        @functools.cache
        def buffer(n: int) -> torch.Tensor:
            return torch.zeros(n)

        return lambda x: buffer(x.shape[0]).add_(x) * 1

    check_made(make, t(), calls=3)


REFUSED: dict[str, Fn] = {
    "drawn": lambda: functools.cache(lambda n: torch.rand(n)),
    "dropout": lambda: functools.cache(lambda n: torch.dropout(torch.ones(n), 0.5, True)),
    "of a tensor from outside": lambda: (lambda w: functools.cache(lambda n: w[:n] * 2))(torch.arange(5.0)),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_functions_that_do_more_than_compute_of_constants_run_in_python(make: Fn) -> None:
    def fresh() -> Fn:
        cached = make()

        def fn(x: torch.Tensor) -> Any:
            y = torch.rand(2) + x.sum()
            return y, cached(3) * 2, cached(3), torch.rand(2)

        return fn

    check_made(fresh, t(), calls=3, skips=None)


def test_a_tensor_given_to_a_cached_function_is_known_by_identity() -> None:
    def make() -> Fn:
        cached = functools.cache(lambda v: v * 2)

        def fn(x: torch.Tensor) -> Any:
            first = cached(x).clone()
            x.add_(1)
            return first, cached(x)

        return fn

    check_made(make, t(), calls=2, skips=None)


class Plan:
    """What a library caches for a pattern."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _reading(read: Callable[[], Any]) -> Any:
    """A cached function that makes a plan of what it reads."""
    return functools.lru_cache(lambda pattern: Plan(read() + len(pattern)))


class Settings:
    """Held by a global, in several ways."""

    scale = 1

    def __init__(self) -> None:
        self.scale_of_instance = 1
        self.table = {"scale": 1}
        self.items = [1]


SETTINGS = Settings()
SCALE = 1


def _global() -> Fn:
    plan = _reading(lambda: SCALE)

    def fn(x: torch.Tensor) -> torch.Tensor:
        global SCALE
        SCALE += 1
        return x * plan("ab").value

    return fn


def _attribute() -> Fn:
    plan = _reading(lambda: SETTINGS.scale_of_instance)

    def fn(x: torch.Tensor) -> torch.Tensor:
        SETTINGS.scale_of_instance += 1
        return x * plan("ab").value

    return fn


def _dict_of_instance() -> Fn:
    plan = _reading(lambda: vars(SETTINGS)["scale_of_instance"])

    def fn(x: torch.Tensor) -> torch.Tensor:
        SETTINGS.scale_of_instance += 1
        return x * plan("ab").value

    return fn


def _attribute_of_class() -> Fn:
    plan = _reading(lambda: SETTINGS.scale)

    def fn(x: torch.Tensor) -> torch.Tensor:
        Settings.scale += 1
        return x * plan("ab").value

    return fn


def _table() -> Fn:
    plan = _reading(lambda: SETTINGS.table["scale"] + SETTINGS.items[-1])

    def fn(x: torch.Tensor) -> torch.Tensor:
        SETTINGS.table["scale"] += 1
        SETTINGS.items.append(x.dim())
        return x * plan("ab").value

    return fn


def _cell() -> Fn:
    scale = 1
    plan = _reading(lambda: scale)

    def fn(x: torch.Tensor) -> torch.Tensor:
        nonlocal scale
        scale += 1
        return x * plan("ab").value

    return fn


def _cached_in_cached() -> Fn:
    inner = _reading(lambda: SETTINGS.scale_of_instance)
    plan = _reading(lambda: inner("a").value)

    def fn(x: torch.Tensor) -> torch.Tensor:
        SETTINGS.scale_of_instance += 1
        return x * plan("ab").value

    return fn


def _made_inside() -> Fn:
    plan = _reading(lambda: SETTINGS.table.get("made", Plan(0)).value)

    def fn(x: torch.Tensor) -> torch.Tensor:
        SETTINGS.table["made"] = Plan(x.dim())
        return x * plan("ab").value

    return fn


def _of_an_object() -> Fn:
    plan = functools.lru_cache(lambda settings, pattern: settings.scale_of_instance)

    def fn(x: torch.Tensor) -> torch.Tensor:
        SETTINGS.scale_of_instance += 1
        return x * plan(SETTINGS, "ab")

    return fn


def _elsewhere() -> Fn:
    plan, counter = _reading(lambda: SETTINGS.items[0]), Settings()

    def fn(x: torch.Tensor) -> torch.Tensor:
        counter.scale_of_instance += 1
        counter.items.append(3)
        return x * plan("ab").value

    return fn


WRITES = [
    _global, _attribute, _dict_of_instance, _attribute_of_class, _table, _cell, _cached_in_cached, _made_inside,
    _of_an_object,
]  # fmt: skip


@pytest.mark.parametrize("make", [*WRITES, _elsewhere])
def test_a_cached_function_called_after_writes(make: Callable[[], Fn]) -> None:
    global SETTINGS, SCALE
    results = []
    for compile in (lambda fn: fn, lambda fn: jitney.compile(fn, backend="eager")):
        SETTINGS, SCALE, Settings.scale = Settings(), 1, 1
        fn = compile(make())
        results.append([fn(torch.ones(2)).tolist() for _ in range(4)])
    assert results[0] == results[1]


def test_writes_to_what_a_cached_function_does_not_read_are_no_break() -> None:
    with jitney.CompileProfiler() as profile:
        fn = jitney.compile(_elsewhere(), backend="eager")
        for _ in range(4):
            fn(torch.ones(2))
    assert profile.graph_breaks == 0


@functools.lru_cache
def is_scaled(least: int) -> bool:
    """A question, of which answers are guarded."""
    return SETTINGS.scale_of_instance > least


def test_a_cached_question_about_what_was_just_written() -> None:
    global SETTINGS

    def fn(x: torch.Tensor) -> torch.Tensor:
        SETTINGS.scale_of_instance += 1
        return x * 2 if is_scaled(1) else x

    results = []
    for run in (fn, jitney.compile(fn, backend="eager")):
        SETTINGS = Settings()
        is_scaled.cache_clear()
        results.append([run(torch.ones(2)).tolist() for _ in range(3)])
    assert results[0] == results[1]
