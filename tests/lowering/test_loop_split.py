"""Loops whose variables are divided become several; what comes out is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flattened_programs import FLATTENED
from lowering.graphs import Captured, assert_same

import jitney
from jitney_lowering.index import Names
from jitney_lowering.ir.reference import run
from jitney_lowering.policy import CPU
from jitney_lowering.scheduler import schedule
from jitney_lowering.scheduler.loop_split import with_split_loops

POLICY = replace(CPU, scatters_in_order=True)


def divides(text: str) -> bool:
    return "//" in text or " % " in text


@pytest.mark.parametrize("name", FLATTENED)
def test_nothing_is_divided_any_more_and_results_are_the_same(name: str) -> None:
    fn, make = FLATTENED[name]
    args = make()
    captured = Captured(policy=POLICY)
    want = fn(*args)
    assert_same(jitney.compile(fn, backend=captured.backend, fullgraph=True)(*args), want)
    program = captured.program
    assert divides(str(schedule(program, policy=replace(POLICY, split_loop=0))))
    assert not divides(str(schedule(program, policy=POLICY)))
    split = replace(program, steps=with_split_loops(program.steps, Names(), 2))
    assert_same(list(run(split, args)), list(run(program, args)), exact=True)


def test_short_loops_and_scans_stay() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        short, long = (x[:, None] * y).reshape(-1), (x[:, None] * y.repeat(5)).reshape(-1)
        return [short.sum(), long.cumsum(0)]

    captured = Captured(policy=POLICY)
    args = torch.randn(20), torch.randn(3)
    assert_same(jitney.compile(fn, backend=captured.backend, fullgraph=True)(*args), fn(*args))
    steps = captured.program.steps
    assert with_split_loops(steps, Names(), 8) == steps
