"""Index arithmetic: every simplification means what Python's integers mean, and views of contiguous data collapse."""

import copy
import itertools
import pickle
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitney.errors import BackendFailed
from jitney.lowering import index as ix
from jitney.lowering.index import Names, Opaque, Size, Var, at_most, equal, index, is_zero, less, max_, min_

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
