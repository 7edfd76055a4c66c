"""Parts of a concatenation are computed where they belong, if that moves less."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from lowering.test_masks import compare
from lowering.test_schedule import Maker, kernels

from jitney_lowering.index import Size, Var, index
from jitney_lowering.ir import Kernel, Value, apply, load, masked
from jitney_lowering.policy import GPU
from jitney_lowering.scheduler import Schedule, schedule
from jitney_lowering.scheduler.traffic import estimate
from jitney_lowering.scheduler.traffic.placement import parts_of

ALWAYS_KEPT = replace(GPU, recompute=1e-9)  # no operation is done twice


@pytest.fixture(autouse=True)
def launches_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "LAUNCH", 0)


def chosen(m: Maker, rows: tuple[int, int], *, read_again: bool = False, input_part: bool = False) -> Schedule:
    """Two parts one after the other, the second one computed of what is summed."""
    first, second = rows
    x, y = m.input(first, 64), m.input(second, 64)
    total = m.reduce("sum", (first, 64), {0, 1}, lambda r, c: m.at(x, r, c))
    one = m.pointwise((first, 64), lambda r, c: apply("div", m.at(x, r, c), m.at(total)))
    other = y if input_part else m.pointwise((second, 64), lambda r, c: apply("exp", m.at(y, r, c)))

    def element(r: Var, c: Var) -> Value:
        before, after = compare("lt", r, first), compare("ge", r, first)
        return apply("where", before, masked(m.at(one, r, c), before), masked(m.at(other, r - first, c), after))

    out = m.pointwise((first + second, 64), element)
    if read_again:
        rows_of = m.reduce("sum", (64, first), {1}, lambda c, r: m.at(one, r, c), order=(0, 1))
        return schedule(m.output(out, rows_of), policy=ALWAYS_KEPT)
    return schedule(m.output(out), policy=ALWAYS_KEPT)


def stores(made: Schedule) -> dict[str, str]:
    """What is stored in a part of something -> of what."""
    homes = {name: b.home[0] for name, b in made.program.buffers.items() if b.home is not None}
    written = frozenset().union(*(k.writes for k in kernels(made)))
    return {name: home for name, home in homes.items() if name in written}


def test_both_parts_are_written_into_the_whole() -> None:
    made = chosen(Maker(), (8, 4))
    out = made.program.outputs[0].buffer  # type: ignore[union-attr]
    assert list(stores(made).values()) == [out, out]
    assert all(isinstance(item, Kernel) for item in made.items)


def test_an_input_is_copied_to_its_part() -> None:
    made = chosen(Maker(), (8, 4), input_part=True)
    assert len(stores(made)) == 2


def test_who_else_reads_a_part_reads_it_there() -> None:
    made = chosen(Maker(), (8, 4), read_again=True)
    assert len(stores(made)) == 2 and len(made.memory.blocks) <= 1  # the sum


def test_what_costs_less_otherwise_stays() -> None:
    m = Maker()
    x, y = m.input(8, 64), m.input(8, 64)

    def element(r: Var, c: Var) -> Value:
        before = compare("lt", r, 8)
        return apply("where", before, masked(m.at(x, r, c), before), masked(m.at(y, r - 8, c), compare("ge", r, 8)))

    out = m.pointwise((16, 64), element)
    (kernel,) = kernels(schedule(m.output(out), policy=ALWAYS_KEPT))
    assert kernel.writes == {out.name}


def test_the_parts_of_a_choice() -> None:
    n, m = Size("n"), Size("m")
    i, j = Var("i", n + m), Var("j", 10)
    a, b, c = (load(name, index(0), torch.float32) for name in "abc")
    var, parts = parts_of(apply("where", compare("lt", i, n), a, b), (i, j)) or (None, [])
    assert var is i and [(p.low, p.high, p.value) for p in parts] == [(index(0), n, a), (n, n + m, b)]
    inside = apply("and", compare("ge", j, 3), compare("lt", j, 7))
    var, parts = parts_of(apply("where", inside, a, apply("where", compare("ge", j, 9), b, c)), (i, j)) or (None, [])
    assert var is j and [(p.low.value, p.high.value, p.value) for p in parts] == [
        (0, 3, c), (3, 7, a), (7, 9, c), (9, 10, b)
    ]  # fmt: skip
    assert parts_of(apply("where", compare("lt", i, m), a, apply("where", compare("lt", i, n), b, c)), (i, j)) is None
    assert parts_of(apply("where", compare("eq", j * 2, 4), a, b), (i, j)) is None
