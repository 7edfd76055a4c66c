"""Blocks without the garbage collector, and blocks in which it sees everything."""

from __future__ import annotations

import gc

import torch

import jitney
from jitney._util.garbage import without_collector, without_freeze


def test_the_last_of_overlapping_blocks_switches_collections_on() -> None:
    assert gc.isenabled()
    one, other = without_collector(), without_collector()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert not gc.isenabled()
    other.__exit__(None, None, None)
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_is_collected_while_a_frame_is_compiled() -> None:
    seen: list[bool] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        seen.append(gc.isenabled())
        return graph.forward

    compiled = jitney.compile(lambda x: x.sin() + 1, backend=backend)
    compiled(torch.ones(3))
    assert seen == [False] and gc.isenabled()


def test_objects_that_are_frozen_are_seen_and_frozen_again() -> None:
    class Thing:
        pass

    thing = Thing()
    before = gc.get_freeze_count()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        assert not any(found is thing for found in gc.get_objects())
        with without_freeze():
            assert any(found is thing for found in gc.get_objects())
            assert gc.get_freeze_count() == 0
        assert gc.get_freeze_count() >= frozen
    finally:
        if not before:
            gc.unfreeze()
    with without_freeze():
        assert any(found is thing for found in gc.get_objects())
    assert bool(gc.get_freeze_count()) == bool(before)
