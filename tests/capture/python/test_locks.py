"""Locks: taking one and giving it back are graph breaks, so what is between happens while it is held, as in eager."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import FRONTEND, check, check_made, compile_fn, graph_break, t

LOCK = threading.Lock()
OTHER = threading.RLock()


class Box:
    """An object with attributes."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Counter:
    """Guards its count with a lock of its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0

    def __deepcopy__(self, memo: Any) -> Counter:
        made = Counter()
        made.count = self.count
        return made

    def add(self, n: int) -> int:
        """The count after it has grown."""
        with self.lock:
            self.count += n
            return self.count


@pytest.fixture(autouse=True)
def _free() -> Any:
    yield
    assert LOCK.acquire(False), "the lock was not given back"
    LOCK.release()
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: taken.append(OTHER.acquire(False)) or (taken[0] and OTHER.release()))
    thread.start()
    thread.join()
    assert taken == [True], "the reentrant lock was not given back"


def test_region_around_writes() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        y = x + 1
        with LOCK:
            box.n += 1
            box.seen.append(y)
        return y * box.n

    check(fn, t(), Box(n=0, seen=[]), calls=4, graphs=2, breaks=2)


def test_return_inside_and_exceptions() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        with LOCK:
            if box.n > 1:
                return x + box.n
            try:
                box.n += 1
                raise KeyError("inside")
            except KeyError:
                box.caught = True
        try:
            with OTHER:
                box.n += 1
                raise ValueError("through the region")
        except ValueError as error:
            return x * 2, str(error)

    check(fn, t(), Box(n=0), calls=3, graphs=1, breaks=5)


def test_exception_that_leaves_the_frame() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        y = x + 1
        with LOCK:
            box.n += 1
            if box.n == 2:
                raise ValueError("second call")
            box.n += 0
        return y

    def always(x: torch.Tensor, box: Box) -> Any:
        with LOCK:
            box.n += 1
            raise ValueError("always")

    check(fn, t(), Box(n=0), calls=3, graphs=1, breaks=2)
    check(always, t(), Box(n=0), raises=ValueError, graphs=0, breaks=3)


def test_break_inside() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        x = x + 1
        with LOCK:
            box.n += 1
            print("inside", LOCK.locked())
            box.n += 1
        return x * box.n

    def in_callee(x: torch.Tensor, box: Box) -> Any:
        def inner() -> None:
            graph_break()
            box.n += 1

        for _ in range(2):
            with LOCK:
                inner()
        return x * box.n

    check(fn, t(), Box(n=0), graphs=2, breaks=4)
    check(in_callee, t(), Box(n=0))


def test_break_before_and_after() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        graph_break()
        with LOCK:
            box.n += 1
        x = x * box.n
        print("after")
        with LOCK:
            box.n += 1
        return x * box.n

    check(fn, t(), Box(n=0), graphs=2, breaks=6)


def test_held_by_generators_and_context_managers() -> None:
    @contextlib.contextmanager
    def locked(box: Box) -> Any:
        with LOCK:
            box.n += 1
            yield box.n

    def numbers(box: Box) -> Any:
        with LOCK:
            box.n += 1
            yield 1
            yield 2
        yield 3

    def entered(x: torch.Tensor, box: Box) -> Any:
        with locked(box) as n:
            box.n += n
        return x * box.n

    def consumed(x: torch.Tensor, box: Box) -> Any:
        return x * box.n, list(numbers(box)), sum(numbers(box))

    def dropped(x: torch.Tensor, box: Box) -> Any:
        made = numbers(box)
        first = next(made)
        del made
        return x * box.n, first

    def suspended(x: torch.Tensor, box: Box) -> Any:
        made = numbers(box)
        first = next(made)
        graph_break()
        return x * box.n, first, list(made)

    check(entered, t(), Box(n=0), graphs=1, breaks=2)
    check(consumed, t(), Box(n=0), graphs=1, breaks=2)
    check(dropped, t(), Box(n=0), skips=1)  # a generator that waits in a ``with`` at a break: the frame runs eagerly
    check(suspended, t(), Box(n=0), skips=1)


def test_tensors_computed_inside() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        with LOCK:
            box.total = box.total + x
            box.n += 1
        return box.total * box.n

    def written(x: torch.Tensor, box: Box) -> Any:
        x.add_(1)
        with LOCK:
            box.n += 1
        return x * box.n

    check(fn, t(), Box(n=0, total=torch.zeros(3)), calls=3, graphs=2, breaks=2)
    check(written, t(), Box(n=0), calls=3, graphs=2, breaks=2)


def test_nested_and_several() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        with OTHER, LOCK, OTHER:
            box.n += 1
            with OTHER:
                box.n += 1
        with LOCK:
            box.n += 1
        return x * box.n

    check(fn, t(), Box(n=0), calls=3, graphs=1, breaks=10)


def test_acquire_and_release_by_name() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        got = LOCK.acquire()
        try:
            box.n += 1
        finally:
            LOCK.release()
        return x * box.n, got

    def released_twice(x: torch.Tensor) -> Any:
        with LOCK:
            pass
        try:
            LOCK.release()
        except RuntimeError as error:
            return x + 1, str(error)
        return x

    def only_if_free(x: torch.Tensor) -> Any:
        got = LOCK.acquire(blocking=False)
        if got:
            LOCK.release()
        return x + got

    check(fn, t(), Box(n=0), graphs=1, breaks=2)
    check(released_twice, t(), graphs=0, breaks=3)
    check(only_if_free, t(), graphs=1, breaks=2)


def test_taken_in_one_call_and_given_back_in_another() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        box.n += 1
        if box.n % 2:
            LOCK.acquire()
        else:
            LOCK.release()
        return x * box.n, LOCK.locked()

    # the two sides share the lock: calls go by pairs, and each side makes all of its own before the other begins
    check(fn, t(), Box(n=0), calls=4, graphs=1, breaks=2)


def test_held_by_the_caller() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        with OTHER:
            box.n += 1
        return x * box.n

    compiled = compile_fn(fn)
    box = Box(n=0)
    for i in range(3):
        with OTHER:
            assert torch.equal(compiled(t(), box), t() * (i + 1))


def test_a_lock_for_each_object() -> None:
    def fn(x: torch.Tensor, counters: list[Counter]) -> Any:
        for i, counter in enumerate(counters):
            x = x * counter.add(i)
        return x

    check(fn, t(), [Counter(), Counter(), Counter()], calls=3, graphs=3, breaks=5)


def test_many_tensors() -> None:
    def fn(xs: list[torch.Tensor], box: Box) -> Any:
        y = sum(xs[1:], xs[0])
        with LOCK:
            box.n += 1
        return y * box.n

    check(fn, [t() * i for i in range(20)], Box(n=0), calls=4, graphs=2, breaks=2)


def _meanwhile(act: Callable[[], None], backend_runs: list[int]) -> Any:
    """A backend whose graphs do something in another thread, once the guards have held."""

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            backend_runs.append(1)
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
            return graph.forward(*args)

        return run

    return backend


@pytest.mark.skipif(FRONTEND != "jitney", reason="what another thread does between guards and writes")
def test_changed_by_another_thread_between_guards_and_writes() -> None:
    box = Box(n=0)
    runs: list[int] = []

    def act() -> None:
        with LOCK:
            box.n += 10

    def fn(x: torch.Tensor) -> Any:
        y = x + torch.rand(3)
        with LOCK:
            box.n += 1
        return y, box.n

    torch.manual_seed(0)
    compiled = compile_fn(fn, backend=_meanwhile(act, runs))
    for i in range(3):
        torch.manual_seed(i)
        got, n = compiled(t())
        torch.manual_seed(i)
        assert n == box.n == (i + 1) * 11
        assert torch.equal(got, t() + torch.rand(3))
    assert len(runs) == 3


@pytest.mark.skipif(FRONTEND != "jitney", reason="what another thread does between guards and writes")
def test_taken_by_another_thread_between_guards_and_writes() -> None:
    box = Box(n=0)
    release = threading.Timer(0.05, LOCK.release)

    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        with torch.no_grad():
            y = y * 2
        with LOCK:
            box.n += 1
        return y

    def act() -> None:
        LOCK.acquire()
        release.start()

    compiled = compile_fn(fn, backend=_meanwhile(act, []))
    assert torch.equal(compiled(t()), (t() + 1) * 2)
    assert box.n == 1
    release.join()


@pytest.mark.parametrize("when", [0, 1])
def test_held_by_another_thread_at_the_call(when: int) -> None:
    box = Box(n=0)

    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        with LOCK:
            box.n += 1
        return y * box.n

    compiled = compile_fn(fn)
    for i in range(4):
        if i == when:
            LOCK.acquire()
            threading.Timer(0.05, LOCK.release).start()
        assert torch.equal(compiled(t()), (t() + 1) * (i + 1))
        assert not LOCK.locked()


def test_many_threads_count() -> None:
    counter = Counter()
    results: list[int] = []

    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        return y, counter.add(1)

    compiled = compile_fn(fn)
    compiled(t())
    compiled(t())
    compiled(t())

    def work() -> None:
        for _ in range(50):
            results.append(compiled(t())[1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(4, 204))
    assert counter.count == 203


def test_graph_that_fails() -> None:
    def fn(x: torch.Tensor, box: Box) -> Any:
        with LOCK:
            box.n += 1
        y = x[torch.tensor([0, 100])]
        with LOCK:
            box.n += 1
        return y

    check(fn, t(), Box(n=0), raises=IndexError)


def test_objects_made_inside_and_hooks() -> None:
    def make() -> Any:
        model = torch.nn.Linear(3, 3)
        torch.nn.init.ones_(model.weight)
        found: list[Any] = []

        def fn(x: torch.Tensor) -> Any:
            if not getattr(model, "ready", False):
                with LOCK:
                    if not getattr(model, "ready", False):
                        model.register_forward_hook(lambda module, args, output: output * 2)
                        model.ready = True
                        found.append({"made": [x]})
            return model(x)

        return fn, lambda: (found, len(model._forward_hooks), model.ready)

    check_made(make, t(2, 3), calls=3, graphs=1, breaks=2)
