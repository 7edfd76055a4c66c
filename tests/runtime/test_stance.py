"""Stances: what compiled functions do instead of compiling."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe

import jitney
from jitney.errors import RecompileError
from jitney.runtime import stance
from jitney_tools.bisect import _uncompiled


@pytest.fixture(autouse=True)
def stays_default() -> Iterator[None]:
    yield
    assert (stance.active, stance.current(), stance.forced()) == (0, "default", False)
    assert stance.counts == {name: int(name == "default") for name in stance.STANCES}


class Counting:
    """A backend that counts graphs compiled, and calls of them."""

    def __init__(self) -> None:
        self.compiled = self.ran = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.compiled += 1

        def run(*given: Any) -> Any:
            self.ran += 1
            return graph.forward(*given)

        return run


def made(**options: Any) -> tuple[Any, Counting]:
    backend = Counting()
    return compile_fn(lambda x, n=1: x.sin() + n, backend=backend, **options), backend


X = torch.arange(3.0)


def counts(backend: Counting) -> tuple[int, int]:
    return backend.compiled, backend.ran


def test_force_eager_runs_the_function_itself() -> None:
    fn, backend = made()
    with jitney.set_stance("force_eager"):
        fn(X)
        assert counts(backend) == (0, 0)
    fn(X)
    with jitney.set_stance("force_eager"):
        torch.testing.assert_close(fn(X), X.sin() + 1)
        assert counts(backend) == (1, 1)
        with jitney.set_stance("default"):
            fn(X)
            assert counts(backend) == (1, 2)
        fn(X)
    fn(X)
    assert counts(backend) == (1, 3)


def test_eager_on_recompile_runs_what_there_is() -> None:
    fn, backend = made(dynamic=False)
    fn(X)
    with observe() as seen, jitney.set_stance("eager_on_recompile"):
        fn(X)
        torch.testing.assert_close(fn(X, 5), X.sin() + 5)
        made()[0](X)
    assert counts(backend) == (1, 2) and not seen.breaks
    fn(X, 5)
    assert counts(backend) == (2, 3)


def test_fail_on_recompile_names_the_guard() -> None:
    fn, backend = made(dynamic=False)
    fn(X)
    with jitney.set_stance("fail_on_recompile"):
        fn(X)
        with pytest.raises(RecompileError, match=r"compiled again: .*n.* \(found 5\)"):
            fn(X, 5)
        with pytest.raises(RecompileError, match="would be compiled\n"):
            made()[0](X)
    fn(X, 5)
    assert counts(backend) == (2, 3)


def test_as_a_function_and_as_a_decorator() -> None:
    fn, backend = made()
    jitney.set_stance("force_eager")
    try:
        fn(X)
        assert counts(backend) == (0, 0)
    finally:
        jitney.set_stance("default")
    fn(X)

    @jitney.set_stance("force_eager")
    def plainly(x: torch.Tensor) -> Any:
        """What it does."""
        with jitney.set_stance("default"):
            fn(x)
        return fn(x), stance.current()

    assert plainly.__doc__ == "What it does." and stance.current() == "default"
    for times in (1, 2):
        assert plainly(X)[1] == "force_eager"
        assert counts(backend) == (1, 1 + times)
    with pytest.raises(ValueError, match="no stance 'eager'; there are 'default'"):
        jitney.set_stance("eager")  # type: ignore[arg-type]


def test_a_block_is_of_its_thread() -> None:
    fn, backend = made()
    fn(X)
    told: list[Any] = []

    def other() -> None:
        fn(X)
        told.append((stance.current(), counts(backend)))
        with jitney.set_stance("fail_on_recompile"):
            fn(X)
        fn(X.double())
        told.append(counts(backend))

    with jitney.set_stance("force_eager"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        fn(X)
        assert told == [("default", (1, 2)), (2, 4)] and counts(backend) == (2, 4)
    fn(X.double())
    assert counts(backend) == (2, 5)


def test_a_stance_for_the_process_is_of_all_threads() -> None:
    fn, backend = made()
    jitney.set_stance("force_eager")
    try:
        thread = threading.Thread(target=fn, args=(X,))
        thread.start()
        thread.join()
    finally:
        jitney.set_stance("default")
    assert counts(backend) == (0, 0)


def test_with_graph_breaks_and_modules() -> None:
    backend = Counting()

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: int = 1) -> torch.Tensor:
            x = x.sin()
            jitney.graph_break()
            return x * n

    model = compile_fn(Model(), backend=backend, dynamic=False)
    model(X)
    compiled, ran = counts(backend)
    with jitney.set_stance("force_eager"):
        model(X)
    assert counts(backend) == (compiled, ran)
    with jitney.set_stance("eager_on_recompile"):
        torch.testing.assert_close(model(X, 3), X.sin() * 3)
    assert backend.compiled == compiled


def test_in_compiled_code_it_is_a_break() -> None:
    fn, backend = made()

    def program(x: torch.Tensor) -> Any:
        y = x.cos()
        with jitney.set_stance("force_eager"):
            name = stance.current()
            y = fn(y)
        return y * 2, name

    for _ in range(2):
        result, name = compile_fn(program, backend="eager")(X)
        torch.testing.assert_close(result, (X.cos().sin() + 1) * 2)
        assert name == "force_eager"


def test_originals_stay_originals_under_a_stance() -> None:
    fn, backend = made()
    fn(X)

    def program() -> None:
        with jitney.set_stance("force_eager"):
            fn(X)
        with jitney.set_stance("eager_on_recompile"):
            fn(X)
        fn(X)

    _uncompiled(program)()
    assert counts(backend) == (1, 1)
    fn(X)
    assert counts(backend) == (1, 2)


def test_the_stance_of_torch_compiler_is_followed() -> None:
    fn, backend = made(dynamic=False)
    with torch.compiler.set_stance("force_eager"):
        fn(X)
        assert counts(backend) == (0, 0)
    fn(X)
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(fn(X), X.sin() + 1)
        with jitney.set_stance("fail_on_recompile"):  # ours goes first
            fn(X)
    assert counts(backend) == (1, 2)
    with torch.compiler.set_stance("eager_on_recompile"):
        fn(X)
        torch.testing.assert_close(fn(X, 5), X.sin() + 5)
    assert counts(backend) == (1, 3)
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RecompileError):
        fn(X, 5)
    torch.compiler.set_stance("force_eager")  # as a function
    fn(X)
    torch.compiler.set_stance("default")
    fn(X, 5)
    assert counts(backend) == (2, 4)


@pytest.mark.parametrize("asked", [{"force_backend": "eager"}])
def test_what_torch_compilers_stances_have_more_is_said_once(asked: dict[str, str]) -> None:
    stance._ignored.cache_clear()
    fn, _ = made()
    with torch.compiler.set_stance(**asked):  # type: ignore[arg-type] # one of several words
        with pytest.warns(UserWarning, match="set_stance.*is torch.compile's alone"):
            torch.testing.assert_close(fn(X), X.sin() + 1)
        fn(X, 2.5)


@pytest.mark.parametrize("of_torch", [False, True])
@pytest.mark.parametrize("name", stance.THEN_COMPILE)
def test_compiles_from_the_second_call_on(name: Any, of_torch: bool) -> None:
    fn, backend = made()
    set_stance: Any = torch.compiler.set_stance if of_torch else jitney.set_stance
    with set_stance(name), observe() as seen:
        torch.testing.assert_close(fn(torch.arange(3.0)), torch.arange(3.0).sin() + 1)
        assert counts(backend) == (0, 0) and len(seen.graphs) == (name == "aot_eager_then_compile")
        for size in (5, 6, 7):  # the second call has another size: symbolic
            torch.testing.assert_close(fn(torch.arange(float(size))), torch.arange(float(size)).sin() + 1)
        assert counts(backend) == (1, 3)


def test_the_first_call_notes_what_changes() -> None:
    backend = Counting()
    fn = compile_fn(lambda xs, n: xs[1] * n, backend=backend)
    with jitney.set_stance("eager_then_compile"):
        for n in (2, 3, 4):
            torch.testing.assert_close(fn([0, torch.arange(float(n))], n), torch.arange(float(n)) * n)
    assert counts(backend) == (1, 2)


def test_a_call_that_the_function_refuses_is_refused() -> None:
    fn, _ = made()
    with jitney.set_stance("eager_then_compile"), pytest.raises(TypeError, match="required positional argument"):
        fn()


def test_rests_of_frames_are_compiled_with_them() -> None:
    backend = Counting()

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        jitney.graph_break()
        return y * 2

    fn = compile_fn(broken, backend=backend)
    with jitney.set_stance("eager_then_compile"):
        fn(X)
        assert counts(backend) == (0, 0)
        torch.testing.assert_close(fn(X), (X + 1) * 2)
    assert counts(backend) == (2, 2)
