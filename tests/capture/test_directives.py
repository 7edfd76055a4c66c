"""What programs say to capture: compile inside compiled code, breaks that are errors, constant results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import observe, t

import jitney
from jitney.errors import Unsupported

# --- compile inside -------------------------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A linear layer."""
        out: torch.Tensor = self.linear(x)
        return out


LAYER = Layer()
COMPILED_LAYER = jitney.compile(LAYER, backend="aot_eager")
COMPILED = jitney.compile(lambda x: x.sin() * 2, backend="aot_eager", fullgraph=True)


@jitney.compile(backend="aot_eager")
def decorated(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def decorates(x: torch.Tensor) -> torch.Tensor:
    @jitney.compile(backend="aot_eager", fullgraph=True)
    def inner(y: torch.Tensor) -> torch.Tensor:
        return y * 2

    found: torch.Tensor = inner(x)
    return found


INSIDE: dict[str, Callable[[torch.Tensor], Any]] = {
    "a compiled function": lambda x: COMPILED(x) + 1,
    "a compiled module": lambda x: COMPILED_LAYER(x) + COMPILED_LAYER.linear.weight.sum(),
    "a decorated one": lambda x: decorated(x) * 2,
    "compiled inside": lambda x: jitney.compile(lambda y: y * 2, backend="aot_eager")(x) + 1,
    "a module compiled inside": lambda x: jitney.compile(LAYER, fullgraph=True)(x) + 1,
    "a function of torch's": lambda x: jitney.compile(torch.sin)(x) + 1,
    "decorated inside": decorates,
}


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_compiled_by_itself_is_part_of_the_graph(name: str) -> None:
    fn, x = INSIDE[name], t(3)
    with observe() as seen:
        found = jitney.compile(fn, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(found, fn(x))
    assert len(seen.graphs) == 1


# --- breaks that are errors -----------------------------------------------------------------------------------------


def strict_part(x: torch.Tensor) -> torch.Tensor:
    jitney.graph_break()
    with jitney.error_on_graph_break():
        x = x.sin()
    jitney.graph_break()
    return x + 1


def breaks_in_it(x: torch.Tensor) -> torch.Tensor:
    with jitney.error_on_graph_break():
        x = x.sin()
        jitney.graph_break()
        return x + 1


@jitney.error_on_graph_break()
def strict(x: torch.Tensor) -> torch.Tensor:
    jitney.graph_break()
    return x * 2


def lenient_part(x: torch.Tensor) -> torch.Tensor:
    x = x.cos()
    with jitney.error_on_graph_break(False):
        for _ in range(2):
            x = x + 1
            jitney.graph_break()
            x = x.sin()
    return x * 2


def lenient_then_strict(x: torch.Tensor) -> torch.Tensor:
    x = lenient_part(x)
    jitney.graph_break()
    return x


def test_a_break_in_a_strict_part_is_an_error_and_others_are_none() -> None:
    x = t(3)
    torch.testing.assert_close(jitney.compile(strict_part, backend="eager")(x), strict_part(x))
    for fn in (breaks_in_it, lambda x: strict(x) + 1):
        with pytest.raises(Unsupported, match="graph_break"):
            jitney.compile(fn, backend="eager")(x)
        torch.testing.assert_close(fn(x), fn(x))
    assert jitney.compile(strict_part, backend="eager")(x).shape == (3,)


def test_a_break_in_a_lenient_part_is_none_under_fullgraph() -> None:
    x = t(3)
    torch.testing.assert_close(jitney.compile(lenient_part, backend="eager", fullgraph=True)(x), lenient_part(x))
    with pytest.raises(Unsupported):
        jitney.compile(lenient_then_strict, backend="eager", fullgraph=True)(x)


def test_around_a_call_it_counts_too() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        jitney.graph_break()
        return x + 1

    compiled = jitney.compile(breaks, backend="eager")
    x = t(3)
    torch.testing.assert_close(compiled(x), x + 1)
    with pytest.raises(Unsupported), jitney.error_on_graph_break():
        compiled(x)
    torch.testing.assert_close(compiled(x), x + 1)


# --- constant results -----------------------------------------------------------------------------------------------

CALLS: list[Any] = []


@jitney.assume_constant_result
def looked_up(name: str) -> Any:
    CALLS.append(name)
    return {"two": 2, "pair": (2, torch.float64), "list": [1]}[name]


def opened() -> int:
    with open(__file__) as file:
        return len(file.readline()) * 0 + 3


class Below(dict[str, int]):
    n = 4


def test_a_constant_result_is_found_once() -> None:
    torchs = torch.compiler.assume_constant_result(opened)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * looked_up("two") + torchs()

    CALLS.clear()
    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(t(3)), t(3) * 2 + 3)
    assert CALLS == ["two"]


def test_what_it_may_not_be_is_a_break() -> None:
    marked = jitney.assume_constant_result(lambda value: value)
    box = {"n": 1}

    @jitney.assume_constant_result
    def counted(value: Any) -> int:
        return len(value)

    def after_a_write(x: torch.Tensor) -> Any:
        box["n"] += 1
        return x * counted(box)

    def of_a_written_class(x: torch.Tensor) -> Any:
        Below.n = x.shape[0]
        return x * numbered(Below)

    @jitney.assume_constant_result
    def numbered(value: type[Below]) -> int:
        return value.n

    for fn, reason in (
        (lambda x: x * looked_up("list")[0], "returns a list"),
        (lambda x: marked(x) + 1, "called with tensors"),
        (after_a_write, "after writes"),
        (of_a_written_class, "after writes"),
    ):
        with observe() as seen:
            jitney.compile(fn, backend="eager")(t(3))
        assert any(reason in told for told in seen.breaks), seen.breaks
    pair = jitney.compile(lambda x: x.to(looked_up("pair")[1]), backend="eager", fullgraph=True)(t(3))
    assert pair.dtype is torch.float64


def test_a_constant_result_does_not_wait_for_writes() -> None:
    box = {"n": 1}
    named = jitney.assume_constant_result(lambda kind: f"{kind.__name__}".lower() == "below")

    def fn(x: torch.Tensor) -> Any:
        box["n"] += 1
        return x * looked_up("two") + box["n"], named(Below)

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for n in (2, 3, 4):
        y, is_below = compiled(t(3))
        torch.testing.assert_close(y, t(3) * 2 + n)
        assert is_below and box["n"] == n


def test_maybe_mark_dynamic_makes_a_size_symbolic() -> None:
    x = t(4, 3)
    jitney.maybe_mark_dynamic(x, 0)
    compiled = jitney.compile(lambda x: x * x.shape[0], backend="eager")
    with observe() as seen:
        for value in (x, t(5, 3)):
            torch.testing.assert_close(compiled(value), value * value.shape[0])
    assert len(seen.graphs) == 1
