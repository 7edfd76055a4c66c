"""Index arithmetic: every simplification means what Python's integers mean, and views of contiguous data collapse."""

import copy
import gc
import itertools
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jitney_lowering.index as ix
from jitney.errors import BackendFailed
from jitney_lowering.index import Names, Opaque, Size, Var, at_most, equal, expr, index, less, max_, min_

# --- programs of arithmetic: the same one is run on Index and on ints -------------------------------------------------

VARS = (Var("i0", 3), Var("i1", 4), Var("i2", 12), Var("i3", 1))
S, T = Size("s0", 1), Size("s1", 2)
SYMBOLIC = (S, T, Var("j0", S), Var("j1", T), Var("j2", S * T), Opaque("g0", -3, 5), Opaque("g1"))
BINARY = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "min": (min_, min),
    "max": (max_, max),
}
constants = st.integers(-9, 24)
divisors = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, S, T, S * T, 2 * S, S + 1, T - 1])


def numeric(x, table):
    return x.evaluate(table) if isinstance(x, ix.Index) else x


class Program:
    """An expression and, beside it, the same arithmetic on ints."""

    def __init__(self, made, run):
        self.made = made
        self.run = run


def leaf(x):
    return Program(index(x), lambda table: numeric(x, table))


def combine(name, a, b):
    made, plain = BINARY[name]
    return Program(made(a.made, b.made), lambda table: plain(a.run(table), b.run(table)))


def divide(a, by):
    return Program(a.made // by, lambda table: a.run(table) // numeric(by, table))


def remainder(a, by):
    return Program(a.made % by, lambda table: a.run(table) % numeric(by, table))


def scale(a, by):
    return Program(a.made * by, lambda table: a.run(table) * numeric(by, table))


def programs(atoms, by, depth=8):
    leaves = st.one_of(constants, st.sampled_from(atoms)).map(leaf)
    factors = st.one_of(constants, st.sampled_from(atoms))

    def grow(inner):
        return st.one_of(
            st.builds(combine, st.sampled_from(sorted(BINARY)), inner, inner),
            st.builds(combine, st.sampled_from("+-"), inner, inner),
            st.builds(scale, inner, factors),
            st.builds(divide, inner, by),
            st.builds(remainder, inner, by),
        )

    return st.recursive(leaves, grow, max_leaves=depth)


constant_programs = programs(VARS, st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]))
symbolic_programs = programs((*VARS, *SYMBOLIC), divisors)


def assignments(atoms):
    """All values of variables of constant size."""
    ranges = [range(a.size.value) for a in atoms]
    return (dict(zip(atoms, values)) for values in itertools.product(*ranges))


@st.composite
def symbolic_tables(draw):
    table = {S: draw(st.integers(1, 6)), T: draw(st.integers(2, 6))}
    table |= {v: draw(st.integers(0, v.size.evaluate(table) - 1)) for v in (*VARS, *SYMBOLIC[2:5])}
    return table | {SYMBOLIC[5]: draw(st.integers(-3, 5)), SYMBOLIC[6]: draw(st.integers(-50, 50))}


def within(value, bounds):
    low, high = bounds
    return (low is None or low <= value) and (high is None or value <= high)


@given(constant_programs)
def test_simplified_values_are_pythons_over_all_assignments(program):
    program.made.verify()
    for table in assignments(VARS):
        value = program.run(table)
        assert program.made.evaluate(table) == value
        assert within(value, program.made.bounds())


@given(symbolic_programs, st.lists(symbolic_tables(), min_size=10, max_size=10))
def test_simplified_values_are_pythons_with_symbolic_sizes(program, tables):
    program.made.verify()
    for table in tables:
        value = program.run(table)
        assert program.made.evaluate(table) == value
        assert within(value, program.made.bounds())


@given(constant_programs, constant_programs)
def test_what_is_proven_less_is_less(a, b):
    x, y = a.made, b.made
    for table in assignments(VARS):
        assert not less(x, y) or x.evaluate(table) < y.evaluate(table)
        assert not at_most(x, y) or x.evaluate(table) <= y.evaluate(table)
        assert not equal(x, y) or x.evaluate(table) == y.evaluate(table)


@given(symbolic_programs, symbolic_programs, st.lists(symbolic_tables(), min_size=10, max_size=10))
def test_what_is_proven_less_with_symbolic_sizes_is_less(a, b, tables):
    x, y = a.made, b.made
    for table in tables:
        assert not less(x, y) or x.evaluate(table) < y.evaluate(table)
        assert not equal(x, y) or x.evaluate(table) == y.evaluate(table)


# What may stand for a variable: expressions within its range.
INSTEAD = {
    "numbers": {VARS[0]: 2, VARS[1]: 3, VARS[2]: 7},
    "variables": {VARS[0]: Var("k", 3), VARS[1]: VARS[1], VARS[2]: VARS[1] * 3 + VARS[0]},
    "swapped": {VARS[1]: VARS[2] // 3, VARS[2]: VARS[1] * 3},
    "parts": {VARS[0]: VARS[2] % 3, VARS[2]: VARS[0] * 4 + VARS[1]},
}


@given(constant_programs, st.sampled_from(sorted(INSTEAD)))
def test_substitution_commutes_with_evaluation(program, which):
    instead = INSTEAD[which]
    replaced = program.made.substitute(instead)
    replaced.verify()
    for table in assignments((*VARS, Var("k", 3))):
        values = {v: numeric(instead.get(v, v), table) for v in VARS}
        assert replaced.evaluate(table) == program.run(values)


@given(symbolic_programs, st.integers(1, 6), st.integers(2, 6))
def test_sizes_may_become_numbers(program, s, t):
    replaced = program.made.substitute({S: s, T: t})
    assert replaced.atoms.isdisjoint({S, T})
    table = {v: 0 for v in (*VARS, *SYMBOLIC)} | {S: s, T: t}
    assert replaced.evaluate(table) == program.run(table)


@given(symbolic_programs, st.sampled_from((*VARS, *SYMBOLIC[2:5])), symbolic_tables())
def test_a_stride_is_what_one_step_of_the_variable_adds(program, var, table):
    x = program.made
    step = x.stride(var)
    if step is None:
        return
    rest = x - step * var
    assert var not in step.atoms and var not in rest.atoms
    assert x.evaluate(table) == step.evaluate(table) * table[var] + rest.evaluate(table)


@given(symbolic_programs, symbolic_tables())
def test_texts_mean_what_the_expression_means(program, table):
    x = program.made
    names = {atom.name: value for atom, value in table.items()}
    calls = {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max}
    assert eval(str(x), names | calls) == x.evaluate(table)
    assert eval(ix.render(x, lambda atom: f"({atom.name})"), names | calls) == x.evaluate(table)


@given(symbolic_programs)
def test_a_copy_is_the_same_object(program):
    x = program.made
    assert copy.deepcopy(x) is x and copy.copy(x) is x
    assert pickle.loads(pickle.dumps(x)) is index(x)


@given(symbolic_programs, st.permutations(range(4)), st.lists(st.sampled_from(SYMBOLIC), min_size=4, max_size=4))
def test_sums_and_products_do_not_depend_on_the_order(program, order, atoms):
    parts = [program.made, *(atom * 3 for atom in atoms[1:])]
    assert sum((parts[i] for i in order), index(0)) is sum(parts, index(0))
    products = [program.made * 1, *atoms[1:]]
    assert prod((products[i] for i in order), start=index(1)) is prod(products, start=index(1))


# --- nodes ------------------------------------------------------------------------------------------------------------

A, B, C = Size("A"), Size("B"), Size("C")
i, j = Var("i", 8), Var("j", 16)
a, b = Var("a", A), Var("b", B)
g, k = Opaque("g"), Var("k", 64)


def test_strides_over_products_of_sizes():
    flat = (a * B + b) * C + 5
    assert flat.stride(a) is B * C
    assert flat.stride(b) is C
    assert flat.stride(i) == 0
    assert (a + b).stride(a) == 1 and index(a).stride(a) == 1


@pytest.mark.parametrize("made", [i * i, g // 4 * i + i % 5, (i + g) % 3, min_(i, g), i * (i // 3)])
def test_no_stride_where_it_is_not_affine(made):
    assert made.stride(i) is None


def test_render_has_every_parenthesis():
    made = (g * 3 - i * j * 2) // 7 % 5 - 4 + min_(i, g) * -1
    assert ix.render(made, lambda atom: f"v_{atom.name}") == (
        "((mod(floordiv(((v_g * 3) - ((v_i * v_j) * 2)), 7), 5) - min(v_i, v_g)) - 4)"
    )
    assert ix.render(index(-3), str) == "-3"
    assert ix.render(g * -1, str) == "(g * -1)"


def test_atoms_are_found_inside_of_operations():
    assert ((a * 3 + g) // 4 % A + min_(i, j) * 0 + max_(i, g)).atoms == {a, g, A, i}
    assert index(3).atoms == frozenset()


def test_visit_gives_each_expression_once_and_parts_first():
    made = (g + 1) // 4 * i + (g + 1) // 4
    nodes = list(ix.visit(made))
    assert len(nodes) == len(set(nodes)) and nodes[-1] is made
    for place, node in enumerate(nodes):
        assert set(node.children) <= set(nodes[:place])


def test_names_are_numbered_for_each_prefix():
    names = Names()
    assert [names.var(3).name, names.var(A, "r").name, names.var(4).name] == ["i0", "r0", "i1"]


def test_names_that_others_have_given_are_not_given_again():
    names = Names({"c0": ..., "c2": ...})
    assert [names.name("c"), names.name("c"), names.name("b")] == ["c1", "c3", "b0"]


def test_equal_atoms_are_the_same_object():
    assert Var("i", 8) is i and Var("i", 9) is not i and Var("a", Size("A")) is a
    assert Opaque("g") is g and Opaque("g", 0) is not g


def test_a_constant_equals_its_int():
    assert index(3) == 3 and 3 == index(3) and {3: "x"}[index(3)] == "x"
    assert index(3).value == 3 and (i - i).value == 0
    assert i != 3 and i.value is None and (i == Var("i", 8)) is True


def test_expressions_that_nobody_holds_are_freed():
    made = weakref.ref((Var("only here", 77) * 3 + 1) // 5)
    gc.collect()
    assert made() is None


def test_threads_make_the_same_objects():
    def make(_):
        v = Var("of threads", 1000)
        return [(v * n + 7) // 13 for n in range(200)]

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(make, range(8))
    assert all(x is y for other in others for x, y in zip(first, other))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: i // 0, ValueError),
        (lambda: i % -3, ValueError),
        (lambda: i // (-A), ValueError),
        (lambda: index(1.5), TypeError),
        (lambda: i + 1.5, TypeError),
        (lambda: i < 3, TypeError),
        (lambda: bool(i), TypeError),
        (lambda: ix.Sum(), TypeError),
        (lambda: ix.FloorDiv(i, j), TypeError),
        (lambda: Var("x", -1), ValueError),
        (lambda: Size("x", 5, 4), ValueError),
        (lambda: min_(), ValueError),
        (lambda: (i + j).evaluate({i: 3}), KeyError),
    ],
)
def test_what_makes_no_sense_raises(wrong, error):
    with pytest.raises(error):
        wrong()


@pytest.mark.parametrize(
    "made",
    [
        lambda: expr.compound(ix.FloorDiv, i * 4, index(2)),
        lambda: expr.compound(ix.Mod, index(i), index(8)),
        lambda: expr.compound(ix.Min, index(j), index(99)),
        lambda: expr.node(((1, (j,)), (1, (i,))), 0),
        lambda: expr.node(((0, (i,)),), 3),
        lambda: expr.node(((1, ()),), 3),
        lambda: expr.node(((4, (g // 4,)), (1, (g % 4,))), 0),
        lambda: expr.node(((2, (expr.compound(ix.Mod, index(i), index(8)),)),), 1),
    ],
)
def test_verify_catches_what_arithmetic_does_not_make(made):
    with pytest.raises(BackendFailed, match="canonical"):
        made().verify()


@pytest.mark.parametrize(
    ("place", "along", "step"),
    [
        (i * 7 + j, j, 1),
        (i * 7 + j, i, 7),
        (i * g + j, i, None),
        (k // 4 * 32 + k % 4, k, 1),
        ((k + 1) % 8 * 3, k, 3),
        (g % 2 * 5, i, 0),
        (k // 4, k, 0),
    ],
)
def test_the_step_at_most_places(place, along, step):
    assert ix.usual_step(index(place), along) == step
