"""How much lives at a time, before there is a plan."""

from __future__ import annotations

from lowering.test_schedule import Maker

from jitney_lowering.index import Names
from jitney_lowering.ir import apply
from jitney_lowering.policy import GPU
from jitney_lowering.scheduler.fuse import fuse
from jitney_lowering.scheduler.memory.peak import peak

ROW = 64 * 64 * 4


def test_what_nobody_reads_later_is_gone() -> None:
    m = Maker()
    x = m.input(64, 64)
    one = m.pointwise((64, 64), lambda i, j: apply("exp", m.at(x, i, j)))
    two = m.pointwise((64, 64), lambda i, j: apply("sin", m.at(one, j, i)))
    three = m.pointwise((64, 64), lambda i, j: apply("cos", m.at(two, j, i)))
    m.output(three)
    assert peak(m.program, fuse(m.program.steps, m.program, Names(), GPU)) == 2 * ROW


def test_what_only_its_own_group_reads_is_not_there() -> None:
    m = Maker()
    x = m.input(64, 64)
    one = m.pointwise((64, 64), lambda i, j: apply("exp", m.at(x, i, j)))
    two = m.pointwise((64, 64), lambda i, j: apply("sin", m.at(one, i, j)))
    m.output(two)
    assert peak(m.program, fuse(m.program.steps, m.program, Names(), GPU)) == ROW
