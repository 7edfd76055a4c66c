"""Symbolic floats: each operation of Python's is put off as it is, so it rounds as Python rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check, compile_fn, observe, t

import jitney

PROGRAMS: dict[str, Any] = {
    "many steps": lambda x, s: x * ((1 - 0.9**s) / (s * 0.1 + 0.7) - s),
    "constants that do not print in 15 digits": lambda x, s: x * (s * 0.30000000000000004),
    "sizes and floats": lambda x, s: x * (x.shape[0] * s) / (x.shape[0] * 0.30000000000000004),
    "sqrt and log": lambda x, s: x + math.sqrt(s) * math.log(s + 1.5),
    "a cosine schedule": lambda x, s: x * (0.5 * (1 + math.cos(math.pi * s / 3.5))) + math.sin(s),
    "exp": lambda x, s: (x * math.exp(-s), math.exp(s)),
    "powers": lambda x, s: (x * 10000 ** (s / 4) * (s + 1) ** -0.5, ((s - 1) ** 2, s**3.5)),
    "the smaller one": lambda x, s: (x * min(s, 0.5) + max(1, s * 2), (max(s, 0.5), min(2, s / 8, s))),
    "floor and modulo": lambda x, s: (x * (s // 0.3), x + s % 0.7),
    "negation and abs": lambda x, s: (x * -s, x * abs(-s), +s * x),
    "returned beside tensors": lambda x, s: (x + s, s * 3.1, [s - 0.1, {"k": s**0.5}]),
    "compared": lambda x, s: x * s if s > 0.35 else x / s,
    "as alpha": lambda x, s: torch.add(x, x, alpha=s * 0.1 - 2.0),
    "in place": lambda x, s: (lambda y: y.mul_(s).addcdiv_(y, y + 7, value=-s * 0.2))(x.clone()),
}


PAIRS: dict[str, Any] = {
    "arithmetic": lambda x, p: (x.lerp(x * 2, 1 - p[0]), (1 - p[1]) ** 3, p + (1,)),
    "unpacked": lambda x, p: (lambda a, b: (x * a + b, a * b))(*p),
    "compared": lambda x, p: (x + 1 if p == (0.7, 0.25) else x - 1, p < (0.6, 1.0), 0.7 in p, p.index(p[1])),
    "a key": lambda x, p: (x * {(0.5, 0.25): 2, (0.7, 0.25): 3}.get(p, 5), hash(p), {p: 1}),
    "text": lambda x, p: (x * p[0], f"{p} {p[1]:.3f}"),
    "given to torch": lambda x, p: (torch.clamp(x, p[1] - 1, p[1]), torch.tensor(p)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_floats_in_a_tuple(name: str) -> None:
    program = PAIRS[name]
    compiled = compile_fn(program, backend="aot_eager")
    x = t(3, 4)
    for pair in ((0.5, 0.25), (0.7, 0.25), (0.7, 0.3), (1.0, 0.0), (math.nan, 0.1), (-0.0, 2.5), (math.inf, 0.2)):
        got, wanted = compiled(x, pair), program(x, pair)
        torch.testing.assert_close(got[0], wanted[0], rtol=0, atol=0, equal_nan=True)
        assert repr(got[1:]) == repr(wanted[1:])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_changing_floats(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = compile_fn(program, backend=backend)
    x = t(3, 4)
    with observe() as seen:
        for value in (0.1, 0.30000000000000004, 0.7, 1.9, 0.123456789012345678, 3.3, 0.2):
            got, wanted = compiled(x, value), program(x, value)
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)
            if not isinstance(wanted, torch.Tensor):
                assert repr(got[1]) == repr(wanted[1])
    assert not seen.skips and not seen.kept
    assert len(seen.graphs) <= 3, seen.recompiles


def test_division_by_zero_is_the_users() -> None:
    compiled = compile_fn(lambda x, s: x * (1.0 / s))
    x = t(2)
    for value in (0.5, 0.25, 0.125):
        torch.testing.assert_close(compiled(x, value), x * (1.0 / value), rtol=0, atol=0)
    with pytest.raises(ZeroDivisionError, match="float division by zero"):
        compiled(x, 0.0)
    torch.testing.assert_close(compiled(x, 0.75), x * (1.0 / 0.75), rtol=0, atol=0)


def test_what_is_out_of_range_is_the_users() -> None:
    compiled = compile_fn(lambda x, s: x * math.exp(s) * (s + 2) ** 3 + math.cos(s))
    x = t(2)
    for value in (0.5, 0.25, -0.125, -3.5, -1e4, 700.5):
        wanted = x * math.exp(value) * (value + 2) ** 3 + math.cos(value)
        torch.testing.assert_close(compiled(x, value), wanted, rtol=0, atol=0)
    with pytest.raises(OverflowError, match="math range error"):
        compiled(x, 800.0)
    with pytest.raises(ValueError, match="math domain error"):
        compiled(x, -math.inf)
    assert compiled(x, math.nan).isnan().all()


def test_a_schedule_of_learning_rates_is_captured_once_more_and_not_at_each_step() -> None:
    def made(kind: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(t(2))], 0.1)
        schedule = kind(optimizer, *args, **kwargs)
        optimizer.step()
        return schedule

    for args in (
        (torch.optim.lr_scheduler.OneCycleLR, 0.5, 30),
        (torch.optim.lr_scheduler.LambdaLR, lambda n: min((n + 1) ** -0.5, (n + 1) * 4**-1.5)),
    ):
        schedule, twin = made(*args), made(*args)
        compiled = compile_fn(schedule.step)
        with observe() as seen:
            for _ in range(12):
                compiled()
                twin.step()
                assert schedule.get_last_lr() == twin.get_last_lr()
        assert len(seen.recompiles) <= 4, seen.recompiles


def test_item_stays_in_the_graph_if_asked() -> None:
    def program(x: torch.Tensor, scale: torch.Tensor) -> Any:
        factor = 1 - 0.5 ** scale.item()
        scale += 1
        return x * factor, factor, scale.item()

    with jitney.config.patch(capture_scalar_outputs=True):
        for backend in ("eager", "aot_eager"):
            compiled = compile_fn(program, backend=backend)
            ours, theirs = torch.tensor(2.0), torch.tensor(2.0)
            with observe() as seen:
                for _ in range(3):
                    x = t(3)
                    got, wanted = compiled(x, ours), program(x, theirs)
                    torch.testing.assert_close(got, wanted, rtol=0, atol=0)
                    assert got[1:] == wanted[1:] and type(got[1]) is float
            assert len(seen.graphs) == 1 and not seen.breaks and not seen.kept


def test_a_decision_on_a_number_from_a_tensor_breaks() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum().item() > 0 else x - 1

    with jitney.config.patch(capture_scalar_outputs=True):
        compiled = compile_fn(program)
        for x in (t(3).abs(), -t(3).abs()):
            torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)


def test_a_changing_size_of_a_tensor_that_has_a_gradient() -> None:
    """The gradient's sizes are no symbols of the capture."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).sum()

    compiled = compile_fn(program)
    for rows in (2, 3, 4, 5):
        x, w = t(rows, 3, requires_grad=True), torch.nn.Parameter(t(rows, 3))
        x.grad, w.grad = t(rows, 3), t(rows, 3)
        assert torch.equal(compiled(x, w), program(x, w))


def test_lazily_conjugated_and_negated_inputs() -> None:
    z = torch.randn(3, 2, dtype=torch.complex64)
    for value in (z.conj(), z.conj().imag, z.mH):
        assert torch.equal(compile_fn(lambda v: v * 2 + 1)(value), value * 2 + 1)
        assert torch.equal(compile_fn(lambda v: (v * 2 + 1, v), backend="aot_eager")(value)[0], value * 2 + 1)


def test_parameters_named_like_symbols() -> None:
    compiled = compile_fn(lambda x, s86, s63: (x * 1, s86 * 10 + s63))
    assert [compiled(t(2), a, b)[1] for a, b in ((5, 7), (6, 9), (8, 3))] == [57, 69, 83]


def test_a_fraction_of_a_negative_number_is_complex() -> None:
    def program(x: torch.Tensor, s: float) -> Any:
        return x * 2, isinstance(s**0.5, float), (x * s**0.5).dtype

    for backend in ("eager", "aot_eager"):
        compiled = compile_fn(program, backend=backend)
        for value in (0.5, 0.7, -4.0, 0.9):
            assert compiled(t(2), value)[1:] == program(t(2), value)[1:]


def test_what_python_raises_is_raised_where_the_program_says() -> None:
    def caught(x: torch.Tensor, s: float) -> Any:
        x.mul_(2)
        try:
            part = 1 / s
        except ZeroDivisionError:
            return x * 0, -1.0
        return x * 2, part

    def raised(x: torch.Tensor, s: float) -> Any:
        x.mul_(2)
        return x * math.sqrt(s)

    for backend in ("eager", "aot_eager"):
        compiled = compile_fn(caught, backend=backend)
        assert [compiled(t(2), s)[1] for s in (0.5, 0.7, 0.0)] == [2.0, 1 / 0.7, -1.0]
        compiled, x = compile_fn(raised, backend=backend), torch.ones(1)
        compiled(x, 0.5), compiled(x, 0.7)
        with pytest.raises(ValueError, match="math domain error|nonnegative"):
            compiled(x, -1.0)
        assert x.item() == 8


def test_texts_of_sizes_and_floats() -> None:
    def program(x: torch.Tensor, s: float) -> Any:
        shape = x.shape
        return x * s, f"{shape} {[shape]}", "%s %r" % (list(shape), [s * 2]), str({"a": shape[0], "s": s}), repr(shape)

    compiled = compile_fn(program)
    for rows, s in ((2, 0.5), (3, 0.7), (4, 0.9)):
        assert compiled(t(rows, 2), s)[1:] == program(t(rows, 2), s)[1:]


def test_infinity_among_the_constants() -> None:
    compiled = compile_fn(lambda x, s: (x * 1, s * math.inf, s + math.nan))
    for s in (0.5, 0.7, 0.9):
        _, infinite, nan = compiled(t(2), s)
        assert infinite == math.inf and nan != nan


def test_a_number_then_a_tensor() -> None:
    compiled = compile_fn(lambda x, s: x * s)
    for s in (2, torch.ones(1), 3, torch.ones(2), 4):
        assert torch.equal(compiled(torch.ones(2), s), torch.ones(2) * s)


def test_what_distributions_ask_of_constants_is_known() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        one = torch.distributions.Normal(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
        return torch.distributions.LogNormal(0.0, 0.1).log_prob(x) + one.log_prob(x)

    x = torch.ones(2)
    for _ in range(10):
        left = [torch.zeros((), dtype=torch.bool) for _ in range(200)]
        del left  # what a stand-in without data would find in its memory
        with jitney.CompileProfiler() as profile:
            found = jitney.compile(fn, backend="eager")(x)
        torch.testing.assert_close(found, fn(x))
        assert profile.graph_breaks == 0


NEW_TENSORS: dict[str, Any] = {
    "number": lambda x: x * x.new_tensor(2.0).item(),
    "arithmetic": lambda x: x * (x.new_tensor([2.0, 3.0]).sum() + 1).item(),
    "dtype": lambda x: (x * x.new_tensor(2.7, dtype=torch.int8).item(), x.int().new_tensor(2.7)),
    "branch": lambda x: x + 1 if x.new_tensor(3) > 2 else x,
    "gradient": lambda x: x * x.new_tensor([1.0, 2.0, 3.0], requires_grad=True),
}


@pytest.mark.parametrize("fn", NEW_TENSORS.values(), ids=NEW_TENSORS)
def test_the_numbers_that_new_tensor_is_given_are_known(fn: Any) -> None:
    check(fn, torch.ones(3), graphs=1, breaks=0)


def test_new_tensor_refuses_what_eager_refuses() -> None:
    check(lambda x: x.new_tensor([1, [2]]), torch.ones(3), raises=TypeError)


def read_before_a_write(x: torch.Tensor) -> Any:
    """Places of samples, as resizing computes them (piq)."""
    places = (torch.linspace(0, 7, 8) / 2).floor().long() - 1
    low, high = places.min(), places.max() + 3
    before = 0
    if low <= 0:
        before = (-low).item()
        places += before
    after = (high - 5).item() if high >= 5 else 0
    return torch.nn.functional.pad(x, (before, after))[places]


def written_in_between(x: torch.Tensor) -> Any:
    places = torch.arange(4)
    view, copy = places[1:], places + 1
    places *= 2
    later = places.max()
    return x * (1 if later > 3 else 2), x * (3 if view.max() > 3 else 4), x * (5 if copy.max() > 4 else 6)


def written_by_a_view(x: torch.Tensor) -> Any:
    places = torch.arange(4)
    before, view = places.max(), places[1:]
    view.zero_()
    return x * (1 if places.max() > 2 else 2), x * (3 if before > 2 else 4)


def written_by_out(x: torch.Tensor) -> Any:
    places = torch.arange(4)
    view = places[2:]
    torch.add(view, 5, out=view)
    return x * (1 if places.max() > 3 else 2)


def written_through_data(x: torch.Tensor) -> Any:
    places = torch.arange(4)
    places.data.mul_(2)
    return x * (1 if places.max() > 3 else 2)


@pytest.mark.parametrize(
    ("fn", "breaks"),
    [
        (read_before_a_write, 0),
        (written_in_between, None),
        (written_by_a_view, None),
        (written_by_out, None),
        (written_through_data, None),
    ],
)
def test_constants_that_are_written_to_after_they_were_read(fn: Callable[..., Any], breaks: int | None) -> None:
    x = torch.arange(8.0)
    with observe() as seen:
        found = jitney.compile(fn, backend="eager")(x)
    torch.testing.assert_close(found, fn(x))
    assert breaks is None or len(seen.breaks) == breaks
