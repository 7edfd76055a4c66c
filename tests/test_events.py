import threading

import pytest
import torch

import jitney
from jitney import events
from jitney.events import Event


def test_a_phase_knows_what_phases_within_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 4.0, 5.0, 10.0])  # outer, first begins and ends, second begins and ends, outer ends
    monkeypatch.setattr("jitney.events.time.perf_counter", lambda: next(clock))
    told: list[Event] = []
    with events.listen(told.append), events.phase("outer", "f"):
        for name in ("first", "second"):
            with events.phase(name, "f"):
                pass
    here = threading.get_ident()
    assert told == [
        events.Phase("first", "f", 2.0, 2.0, 1.0, here),
        events.Phase("second", "f", 1.0, 1.0, 4.0, here),
        events.Phase("outer", "f", 10.0, 7.0, 0.0, here),
    ]


def test_each_frame_has_a_number_and_its_backward_the_same() -> None:
    numbers: dict[str, set[int]] = {}

    def collect(event: Event) -> None:
        if isinstance(event, (events.AtenGraph, events.FrameCaptured)):
            kind = event.kind if isinstance(event, events.AtenGraph) else "captured"
            numbers.setdefault(kind, set()).add(events.subject())

    compiled = jitney.compile(lambda x: (x * x).sum(), backend="aot_eager")
    with events.listen(collect), jitney.config.patch(cache=False):
        compiled(torch.ones(3, requires_grad=True)).backward()
        assert events.subject() == 0
        compiled(torch.ones(2, 3, requires_grad=True))
    (first,) = numbers["backward"]
    assert numbers["captured"] == numbers["joint"] == numbers["forward"] and len(numbers["captured"]) == 2
    assert first in numbers["captured"] and 0 not in numbers["captured"]


def test_details_are_wanted_as_long_as_anybody_wants_them() -> None:
    assert not events.detailed()
    with events.details(), events.details():
        pass
    with events.details():
        assert events.detailed()
    assert not events.detailed()
