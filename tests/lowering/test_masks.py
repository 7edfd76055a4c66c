"""What a mask says of loop variables, and what is computed where its reader is confined by one."""

from __future__ import annotations

import torch
from lowering.test_schedule import AGAIN, Maker, kernels

from jitney_lowering.index import Size, Var, index
from jitney_lowering.ir import Load, Value, apply, constant, load, masked, position, walk
from jitney_lowering.ir.values import Checked, checked, indirect
from jitney_lowering.scheduler import schedule
from jitney_lowering.scheduler.traffic.masks import exact_range, narrowed, ranges

N, M = Size("n"), Size("m")
i, j = Var("i", N + M), Var("j", 10)


def compare(op: str, var: object, bound: object, dtype: torch.dtype = torch.int64) -> Value:
    return apply(op, position(index(var), dtype), position(index(bound), dtype))  # type: ignore[arg-type]


def test_bounds_of_one_variable_each() -> None:
    both = apply("and", compare("ge", j, 3), compare("lt", j, 7))
    assert ranges(both) == {j: (index(3), index(7))}
    assert ranges(apply("and", both, compare("ge", i, N))) == {j: (index(3), index(7)), i: (N, N + M)}
    assert ranges(compare("eq", j, 4)) == {j: (index(4), index(5))}
    assert ranges(compare("gt", 8, j)) == {j: (index(0), index(8))}
    assert ranges(apply("and", compare("lt", j, 7), compare("lt", j, 12))) == {j: (index(0), index(7))}
    assert ranges(compare("le", 9 - j, 4)) == {j: (index(5), index(10))}


def test_what_says_nothing() -> None:
    k = Var("k", 10)
    assert ranges(compare("lt", j + k, 7)) == {}
    assert ranges(compare("lt", j * 2, 7)) == {}
    assert ranges(apply("or", compare("lt", j, 7), compare("ge", k, 3))) == {}
    assert ranges(apply("not", compare("lt", j, 7))) == {}
    assert ranges(compare("lt", j, 7, torch.int8)) == {}  # eight bits may hold another number
    assert ranges(compare("ge", j, 12)) == {}  # nowhere


def test_ranges_in_which_a_mask_is_true_and_nowhere_else() -> None:
    both = apply("and", compare("ge", j, 3), compare("lt", j, 7))
    assert exact_range(both, j) == (index(3), index(7))
    assert exact_range(apply("and", both, compare("lt", j, 12)), j) == (index(3), index(7))
    assert exact_range(compare("lt", i, N), i) == (index(0), N)
    assert exact_range(compare("lt", j, M), j) is None  # which is less?
    assert exact_range(apply("and", both, compare("lt", j, M)), j) is None
    assert exact_range(apply("and", both, compare("lt", i, N)), j) is None
    assert exact_range(apply("not", both), j) is None and exact_range(apply("or", both, both), j) is None


def test_there_and_back() -> None:
    there, back = narrowed(apply("and", compare("ge", i, N), compare("ge", j, 0)))
    ((var, narrow),) = there.items()
    assert var == i and narrow.substitute(back) == i
    (inner,) = back
    assert isinstance(inner, Var) and inner.size == M


def test_what_the_mask_is_made_of_is_not_masked() -> None:
    where = load("w", index(j), torch.int64)
    there = apply("lt", where, constant(5, torch.int64))
    atom, number = indirect(where, 0, 9)
    element = load("x", atom * 2 + j, torch.float32, ((atom, number),))
    made = masked(apply("add", element, load("y", index(j), torch.float32)), there)
    loads = {v.buffer: v for v in walk(made) if isinstance(v, Load)}
    assert loads["w"].mask is None and {loads["x"].mask, loads["y"].mask} == {there}
    assert loads["x"].index == element.index


def test_what_a_mask_demands_is_true_where_it_is_read() -> None:
    x, y = (load(name, index(j), torch.float32) for name in "xy")
    first, late = compare("lt", j, 7), compare("ge", j, 3)
    both = apply("and", first, late)
    chosen = apply("where", late, x, y)
    assert masked(chosen, both) is masked(x, both)
    assert masked(apply("where", compare("lt", j, 5), x, y), both) is not masked(x, both)
    wrong = apply("where", late, x, checked(y, compare("lt", j, 2), "no", IndexError))
    assert any(isinstance(v, Checked) for v in walk(masked(wrong, both)))  # eager raises, whatever is chosen


def test_choices_by_the_same_condition_are_one() -> None:
    x, y, z = (load(name, index(j), torch.float32) for name in "xyz")
    here = compare("lt", j, 7)
    assert apply("where", here, apply("where", here, x, y), z) is apply("where", here, x, z)
    assert apply("where", here, x, apply("where", here, y, z)) is apply("where", here, x, z)
    stops = checked(y, compare("lt", j, 2), "no", IndexError)
    kept = apply("where", here, x, apply("where", here, stops, z))
    assert any(isinstance(v, Checked) for v in walk(kept))


def test_parts_are_computed_by_who_joins_them() -> None:
    m = Maker()
    x, y = m.input(8, 64), m.input(4, 64)
    one = m.pointwise((8, 64), lambda r, c: apply("exp", m.at(x, r, c)))
    other = m.pointwise((4, 64), lambda r, c: apply("sin", m.at(y, r, c)))

    def element(r: Var, c: Var) -> Value:
        first = compare("lt", r, 8)
        late = compare("ge", r, 8)
        return apply("where", first, masked(m.at(one, r, c), first), masked(m.at(other, r - 8, c), late))

    out = m.pointwise((12, 64), element)
    (kernel,) = kernels(schedule(m.output(out), policy=AGAIN))
    assert kernel.reads == {x.name, y.name}
