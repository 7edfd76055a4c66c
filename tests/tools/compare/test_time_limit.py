import signal
import threading
import time

import pytest

from jitney_tools.compare.time_limit import TimeLimit, time_limit


def test_what_takes_too_long_is_stopped():
    begin = time.monotonic()
    with pytest.raises(TimeLimit, match="longer than 0.05 s"), time_limit(0.05):
        while time.monotonic() - begin < 30:
            try:
                time.sleep(0.01)
            except Exception:  # it is none
                pass
    assert time.monotonic() - begin < 30


def test_what_is_fast_is_left_alone_and_no_timer_stays():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_limit_around_another_goes_on_counting():
    with pytest.raises(TimeLimit, match="0.2 s"), time_limit(0.2):
        with time_limit(60):
            time.sleep(0.01)
        time.sleep(30)


def test_a_timer_of_the_programs_is_put_back_with_its_interval():
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 500, 600)
        with time_limit(60):
            pass
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 400 < left <= 500 and interval == 600
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_limit_that_a_callback_swallows_goes_off_again():
    class Slow:
        def __del__(self):
            time.sleep(0.2)

    with pytest.raises(TimeLimit), time_limit(0.05):
        value = Slow()
        del value  # what is raised there, Python prints and drops
        time.sleep(30)


def test_in_another_thread_there_is_no_limit():
    done = []

    def run():
        with time_limit(0.01):
            time.sleep(0.05)
        done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]
