import pytest

from jitney import events
from jitney.debug import compile_times, reset_compile_times


@pytest.fixture(autouse=True)
def clean():
    reset_compile_times()
    yield
    reset_compile_times()


def test_phases_are_summed_and_counted_the_most_expensive_first():
    for name, seconds in (("capture", 0.25), ("backend eager", 2.0), ("capture", 0.5)):
        events.emit(events.Phase(name, "f", seconds))
    assert compile_times() == (
        "phase            calls    seconds\nbackend eager        1     2.0000\ncapture              2     0.7500"
    )


def test_nothing_compiled_is_said():
    assert compile_times() == "nothing was compiled yet"
    events.emit(events.Phase("capture", "f", 0.1))
    reset_compile_times()
    assert compile_times() == "nothing was compiled yet"


def test_a_phase_is_counted_even_if_it_raises():
    with pytest.raises(ValueError), events.phase("emit", "f"):
        raise ValueError
    assert "emit" in compile_times()
