"""The cache of entries: its limit, shared code objects, run(), reset(), threads."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import BACKEND, FRONTEND, Compiled, CountingBackend, compile_fn, observe, reset, t

only_jitney = pytest.mark.skipif(FRONTEND != "jitney", reason="jitney's own names")


def test_many_layers_share_one_code_object_without_exhausting_the_cache() -> None:
    class Layer(torch.nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(n, n + 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            print("layer")
            return torch.relu(y)

    model = torch.nn.Sequential(*[Layer(n) for n in range(2, 26)])
    with observe() as seen:
        compiled = Compiled(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(t(2, 2))
            first = len(compiled.backend.graphs)
            compiled(t(2, 2))
    assert len(compiled.backend.graphs) <= first + 1
    assert not seen.skips
    if FRONTEND == "jitney":
        assert first <= 26


@only_jitney
def test_past_the_limit_runs_eagerly_with_one_warning_that_names_the_guard() -> None:
    import jitney

    def fn(x: torch.Tensor, mode: str) -> torch.Tensor:
        return x + len(mode)

    with jitney.config.patch(cache_size_limit=3), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        compiled = compile_fn(fn, backend=(backend := CountingBackend()))
        for i in range(8):
            assert torch.equal(compiled(t(), "m" * i), t() + i)
        for i in range(3):
            assert torch.equal(compiled(t(), "m" * i), t() + i)
    assert len(backend.graphs) == 3
    assert len(warned) == 1
    assert "mode" in str(warned[0].message) and "test_cache.py" in str(warned[0].message)


@only_jitney
@pytest.mark.parametrize("as_module", [False, True])
def test_the_warning_points_at_the_call_and_names_no_line_of_jitneys(as_module: bool) -> None:
    import jitney

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor, mode: str) -> torch.Tensor:
            return x + len(mode)

    compiled = compile_fn(Scaled() if as_module else Scaled().forward)
    with jitney.config.patch(cache_size_limit=1), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        compiled(t(), "a")
        compiled(t(), "aa"); here = sys._getframe().f_lineno  # fmt: skip  # noqa: E702
    (found,) = warned
    assert (found.filename, found.lineno) == (__file__, here)
    assert str(found.message).startswith(f"{__file__}:{Scaled.forward.__code__.co_firstlineno}, in ")
    assert os.path.dirname(jitney.__file__) not in str(found.message)


@only_jitney
@only_jitney
@pytest.mark.filterwarnings("ignore:.*config.cache_size_limit")
def test_past_the_limit_nothing_is_looked_for_until_a_setting_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import jitney
    from jitney.runtime import dispatch

    def fn(x: torch.Tensor, mode: str) -> torch.Tensor:
        return x + len(mode)

    def fail(*args: Any) -> Any:
        raise AssertionError("a reason is looked for")

    compiled = compile_fn(fn, backend=(backend := CountingBackend()))
    with jitney.config.patch(cache_size_limit=2):
        for i in range(4):
            compiled(t(), "m" * i)
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "recompile_reason", fail)
            assert torch.equal(compiled(t(), "abcdef"), t() + 6)
        with jitney.config.patch(error_on_recompile=True), pytest.raises(jitney.errors.RecompileError):
            compiled(t(), "abcdef")
    assert len(backend.graphs) == 2
    compiled(t(), "abcdef")
    assert len(backend.graphs) == 3


def test_limit_counts_per_compiled_callable() -> None:
    import jitney

    def fn(x: torch.Tensor, mode: str) -> torch.Tensor:
        return x + len(mode)

    with jitney.config.patch(cache_size_limit=2), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            compiled = compile_fn(fn)
            for i in range(2):
                assert torch.equal(compiled(t(), "m" * i), t() + i)


@only_jitney
def test_run_uses_what_exists_and_compiles_nothing() -> None:
    import jitney

    backend = CountingBackend()
    compiled = jitney.compile(lambda x, mode: x + len(mode), backend=backend)
    compiled(t(), "a")
    frozen = jitney.run(compiled)
    with observe() as seen:
        assert torch.equal(frozen(t(), "a"), t() + 1)
        assert torch.equal(frozen(t(), "bb"), t() + 2)
        assert torch.equal(frozen(t(2, 2), "a"), t(2, 2) + 1)
    assert len(backend.graphs) == 1 and not seen.graphs
    compiled(t(), "bb")
    assert len(backend.graphs) == 2
    assert torch.equal(frozen(t(), "bb"), t() + 2)


@only_jitney
def test_run_of_a_function_that_breaks() -> None:
    import jitney

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        jitney.graph_break()
        return y * 2

    backend = CountingBackend()
    compiled = jitney.compile(fn, backend=backend)
    compiled(t())
    assert torch.equal(jitney.run(compiled)(t()), (t() + 1) * 2)
    assert torch.equal(jitney.run(compiled)(t(2, 2)), (t(2, 2) + 1) * 2)
    assert len(backend.graphs) == 2


@only_jitney
def test_reset_forgets() -> None:
    backend = CountingBackend()
    compiled = compile_fn(lambda x: x + 1, backend=backend)
    compiled(t())
    reset()
    assert torch.equal(compiled(t()), t() + 1)
    assert len(backend.graphs) == 2


def _in_threads(work: Callable[[int], None], count: int) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(i: int) -> None:
        try:
            barrier.wait(timeout=30)
            work(i)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    if errors:
        raise errors[0]


def test_concurrent_first_calls_compile_once() -> None:
    compiled = Compiled(lambda x, items: torch.relu(x + len(items)) * 2)
    results: list[Any] = [None] * 8

    def work(i: int) -> None:
        results[i] = compiled.compiled(t() + i, ["a"])

    _in_threads(work, 8)
    for i, result in enumerate(results):
        assert torch.equal(result, torch.relu(t() + i + 1) * 2)
    compiled.expect(1)


def test_concurrent_calls_with_different_guards() -> None:
    compiled = Compiled(lambda x, mode: x * len(mode))
    wrong: list[Any] = []

    def work(i: int) -> None:
        for round_ in range(10):
            mode = "m" * (1 + (i + round_) % 3)
            if not torch.equal(compiled.compiled(t(), mode), t() * len(mode)):
                wrong.append((i, round_))

    _in_threads(work, 6)
    assert not wrong
    compiled.expect(3)


def test_threads_keep_their_own_grad_mode_and_breaks() -> None:
    def fn(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
        y = x * 2
        log.append(torch.is_grad_enabled())
        n = y.sum().item()
        return y + n

    compiled = Compiled(fn)
    logs: list[list[Any]] = [[] for _ in range(6)]
    grads: list[Any] = [None] * 6

    def work(i: int) -> None:
        with torch.set_grad_enabled(i % 2 == 0):
            for _ in range(5):
                grads[i] = compiled.compiled(t(3, requires_grad=True), logs[i]).requires_grad

    _in_threads(work, 6)
    assert logs == [[i % 2 == 0] * 5 for i in range(6)]
    assert grads == [i % 2 == 0 for i in range(6)]


def test_recursive_call_of_the_compiled_function_itself() -> None:
    holder: list[Any] = []

    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        if n == 0:
            return x
        return holder[0](x + 1, n - 1) * 2

    holder.append(compile_fn(fn))
    expected = t()
    for _ in range(3):
        expected = expected + 1
    assert torch.equal(holder[0](t(), 3), expected * 8)


def test_two_compiled_versions_of_one_function_are_independent() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    first, second = Compiled(fn), Compiled(fn)
    first(t())
    first.expect(1)
    second(t())
    second.expect(1 if FRONTEND == "jitney" else len(second.backend.graphs))
    first.expect(1)


def test_backend_named_in_environment_is_used() -> None:
    assert torch.equal(compile_fn(lambda x: x * 2, backend=BACKEND)(t()), t() * 2)
