"""``jitney.aot_compile``: what a call would run is compiled, and nothing of the program runs."""

from __future__ import annotations

import gc
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cache.again import begin
from torch import nn

import jitney
from jitney import events
from jitney.cache import frames
from jitney.errors import Unsupported
from jitney.runtime import dispatch, frame_cache

TEXT = """
    calls = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

        def forward(self, x, scale=1.0):
            calls.append(len(calls))
            return torch.softmax(self.norm(self.layer(x)), -1) * scale

    torch.manual_seed(0)
    fn = Net()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(frame_cache, "edited", lambda package: False)
    frames._cache.cache_clear()
    with jitney.config.patch(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path


@pytest.fixture
def phases() -> Iterator[list[str]]:
    """Each phase of compiling that there is."""
    found: list[str] = []

    def collect(event: events.Event) -> None:
        if isinstance(event, events.Phase):
            found.append(event.name)

    with events.listen(collect):
        yield found


def x(*sizes: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(sizes).numel()).reshape(sizes)


def step(net: Any, given: torch.Tensor) -> Any:
    """A training step: the result and what it leaves behind."""
    given = given.clone().requires_grad_()
    out = net(given)
    out.square().sum().backward()
    return out.detach(), given.grad, [p.grad for p in net.parameters()], dict(net.named_buffers())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
def test_a_module_is_compiled_and_not_run(backend: str, phases: list[str]) -> None:
    module, twin = begin(TEXT), begin(TEXT)
    net = module.fn
    compiled = jitney.compile(net, backend=backend)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    states = torch.get_rng_state()
    prepare = jitney.aot_compile(compiled)
    prepare(x(4, 6).requires_grad_())
    with torch.no_grad():
        prepare(x(4, 6))
    assert "capture" in phases and (backend == "eager" or f"backend {backend}, backward" in phases)
    torch.testing.assert_close(net.state_dict(), before)
    assert not module.calls and torch.equal(torch.get_rng_state(), states)
    phases.clear()
    prepare(x(4, 6).requires_grad_())  # it is there
    torch.testing.assert_close(step(compiled, x(4, 6)), step(twin.fn, x(4, 6)))
    assert not phases
    assert module.calls == twin.calls == [0]


def test_sizes_that_differ_or_are_marked_are_symbolic(phases: list[str]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).sum(-1)

    several, marked = (jitney.compile(fn, backend="aot_eager") for _ in range(2))
    for rows in (2, 3):
        jitney.aot_compile(several)(x(rows, 4))
    given = x(2, 4)
    jitney.mark_dynamic(given, 0)
    jitney.aot_compile(marked)(given)
    phases.clear()
    for compiled in (several, marked):
        for rows in (2, 3, 7, 11):
            torch.testing.assert_close(compiled(x(rows, 4)), fn(x(rows, 4)))
    assert not phases


class Holder:
    scale = 3.0

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x / self.scale


def test_methods_objects_modules_in_place_and_keyword_arguments(phases: list[str]) -> None:
    holder, net = Holder(), nn.Sequential(nn.Linear(3, 3))
    given = x(2, 3)
    for original, compiled in (
        (holder.scaled, jitney.compile(holder.scaled, backend="aot_eager")),
        (holder, jitney.compile(holder, backend="aot_eager")),
        (net, jitney.compile(net, backend="aot_eager")),
    ):
        expected = original(given)
        jitney.aot_compile(compiled)(given)
        phases.clear()
        torch.testing.assert_close(compiled(given), expected)
        assert not phases
    expected = net(input=given)
    jitney.aot_compile(jitney.compile(net, backend="aot_eager", inplace=True))(input=given)
    phases.clear()
    torch.testing.assert_close(net(input=given), expected)
    assert not phases


def test_a_function_that_was_given_other_defaults(phases: list[str]) -> None:
    def fn(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale

    compiled = jitney.compile(fn, backend="aot_eager")
    jitney.aot_compile(compiled)(x(3))
    fn.__defaults__ = (5.0,)
    jitney.aot_compile(compiled)(x(3))
    phases.clear()
    torch.testing.assert_close(compiled(x(3)), x(3) * 5)
    assert not phases


def test_a_graph_break_ends_what_is_compiled_with_one_warning() -> None:
    told: list[str] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        told.append(str(y))
        return y.cos()

    compiled = jitney.compile(fn, backend="aot_eager")
    with pytest.warns(UserWarning, match=r"test_ahead.py:\d+(.|\n)*fn is compiled ahead up to this graph break"):
        jitney.aot_compile(compiled)(x(3))
    assert not told
    torch.testing.assert_close(compiled(x(3)), x(3).sin().cos())
    assert len(told) == 1
    with pytest.raises(Unsupported, match="graph break"):
        jitney.aot_compile(jitney.compile(fn, backend="aot_eager", fullgraph=True))(x(3))
    assert len(told) == 1


def test_what_runs_eagerly_is_told_and_what_is_not_compiled_refused() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    compiled = jitney.compile(jitney.disable(fn, recursive=False), backend="aot_eager")
    with pytest.warns(UserWarning, match="disabled is not compiled ahead, this call runs eagerly: only what it"):
        jitney.aot_compile(compiled)(x(3))
    with pytest.raises(TypeError, match=r"returned by jitney.compile"):
        jitney.aot_compile(fn)
    with pytest.raises(TypeError, match=r"fn\(\) missing 1 required positional argument: 'x'"):
        jitney.aot_compile(jitney.compile(fn, backend="aot_eager"))()


def test_what_is_saved_serves_a_process_that_cannot_capture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace("calls.append(len(calls))", "")  # each call is the first
    module = begin(text)
    compiled = jitney.compile(module.fn.eval(), backend="llvm_cpu")
    with torch.no_grad():
        for rows in (1, 2):  # from the second on any, but one
            jitney.aot_compile(compiled)(x(rows, 6))
    path = jitney.save(compiled, folder / "net.jitney")
    twin, module = begin(text), begin(text)
    jitney.config.cache_dir = str(folder / "elsewhere")

    def no_capture() -> Any:
        raise AssertionError("this process does not capture")

    monkeypatch.setattr(dispatch, "compiler", no_capture)
    loaded = jitney.load(path, module.fn.eval(), compile=False)
    twin.fn.eval()
    with torch.no_grad():
        jitney.aot_compile(loaded)(x(2, 6))  # taken from the file, ahead
        for rows in (1, 2, 5, 9):
            torch.testing.assert_close(loaded(x(rows, 6)), twin.fn(x(rows, 6)))
    with torch.no_grad(), pytest.raises(jitney.errors.SavedError, match="no form of Net"):
        jitney.aot_compile(loaded)(x(2, 6).double())


def test_eight_threads_are_served_while_sizes_change() -> None:
    net = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)).eval()
    compiled = jitney.compile(net, backend="llvm_cpu")
    with torch.no_grad():
        for rows in (2, 3):
            jitney.aot_compile(compiled)(x(rows, 5))
    wrong: list[str] = []
    begin_all = threading.Barrier(8)

    def serve(number: int) -> None:
        begin_all.wait()
        try:
            with torch.no_grad():
                for i in range(40):
                    given = x(1 + (7 * number + i) % 13, 5) + number
                    torch.testing.assert_close(compiled(given), net(given))
        except BaseException as error:
            wrong.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=serve, args=(n,)) for n in range(8)]
    with warnings.catch_warnings():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(compiled._jitney_root.entries) <= 3  # a batch of one is a form of its own


def test_requests_of_many_lengths_leave_nothing_behind() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    compiled = jitney.compile(layer, backend="llvm_cpu")

    def serve(count: int) -> tuple[int, int]:
        with torch.no_grad():
            for i in range(count):
                compiled(torch.ones(1 + i % 3, 1 + (i * 7) % 50, 8))
        gc.collect()
        return len(compiled._jitney_root.entries), len(gc.get_objects())

    forms, before = serve(300)
    again, after = serve(300)
    assert again == forms <= 6
    assert after - before < 30  # of 300 requests


def test_both_threads_that_compile_ahead_find_it_compiled_once(phases: list[str]) -> None:
    compiled: Callable[..., Any] = jitney.compile(lambda x: x.sin() + 1, backend="aot_eager")
    threads = [threading.Thread(target=jitney.aot_compile(compiled), args=(x(3),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert phases.count("capture") == 1


OWN, MODERN = random.Random(5), np.random.default_rng(3)
WEIGHT = torch.ones(3, requires_grad=True)


def draws_from_python(x: torch.Tensor) -> Any:
    cards = [1, 2, 3, 4]
    random.shuffle(cards)
    return x * random.random(), random.randint(1, 9), random.choice([1, 2, 3]), cards, OWN.random()


def draws_from_numpy(x: torch.Tensor) -> Any:
    return x * 2, np.random.rand(), MODERN.random()


def draws_before_a_break(x: torch.Tensor) -> Any:
    y = x * random.random()
    print(end="")
    return torch.nn.functional.dropout(y) * random.random()


def drops_a_gradient(x: torch.Tensor) -> Any:
    WEIGHT.grad = None
    (WEIGHT * x * random.random()).sum().backward()
    return WEIGHT.grad


def begin_again() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    OWN.seed(5)
    MODERN.bit_generator.state = np.random.default_rng(3).bit_generator.state
    WEIGHT.grad = torch.full((3,), 7.0)


def outside() -> list[str]:
    states = [random.getstate(), np.random.get_state(), OWN.getstate(), MODERN.bit_generator.state]
    return [*map(str, states), str(torch.get_rng_state().tolist()), str(WEIGHT.grad)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_nothing_is_drawn_and_no_gradient_dropped_before_the_call(backend: str) -> None:
    for fn in (draws_from_python, draws_from_numpy, draws_before_a_break, drops_a_gradient):
        compiled = jitney.compile(fn, backend=backend)
        begin_again()
        before = outside()
        for _ in range(2):  # compiled, and found
            with warnings.catch_warnings(action="ignore"):  # of the break
                jitney.aot_compile(compiled)(x(3))
            assert outside() == before, fn.__name__
        ends = []
        for call in (fn, compiled):
            begin_again()
            ends.append(([str(call(x(3))) for _ in range(2)], outside()))
        assert ends[0] == ends[1], fn.__name__


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
        return x * scale

    def halved(self, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return (y + z) / 2


def test_a_call_that_a_module_does_not_take_leaves_nothing_behind() -> None:
    net = Scaled()
    compiled = jitney.compile(net, backend="eager")
    for args, kwargs, words in (
        ((), {}, r"Scaled.forward\(\) missing 1 required positional argument: 'x'"),
        ((x(3), x(3)), {}, r"Scaled.forward\(\) takes 2 positional arguments but 3"),
        ((x(3),), {"factor": 2.0}, r"Scaled.forward\(\) got an unexpected keyword argument 'factor'"),
    ):
        with pytest.raises(TypeError, match=words):
            jitney.aot_compile(compiled)(*args, **kwargs)
        with pytest.raises(TypeError, match=words):
            compiled(*args, **kwargs)
        compiled._jitney_root.forget()
    jitney.aot_compile(compiled)(x(3), scale=3.0)
    jitney.aot_compile(jitney.compile(net.halved, backend="eager"))(x(3), x(3))
    net.register_forward_pre_hook(lambda module, args, kwargs: ((x(3),), {}), with_kwargs=True)
    jitney.aot_compile(compiled)(x(3), x(3))  # the hook makes it a call that is taken
    assert torch.equal(compiled(x(3), x(3)), x(3) * 2)


def test_sizes_of_a_call_that_failed_are_forgotten() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        if x.size(0) == 2:
            print(end="")
        return y

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    with pytest.raises(Unsupported):
        jitney.aot_compile(compiled)(x(2))
    jitney.aot_compile(compiled)(x(3))
    assert compiled._jitney_root.observed.sizes["x"] == (3,)


def test_nothing_is_compiled_while_all_is_to_run_eagerly() -> None:
    compiled: Any = jitney.compile(lambda x: x.sin(), backend="eager")
    with jitney.set_stance("force_eager"), pytest.warns(UserWarning, match='compiled ahead: nothing is.*"force_eager"'):
        jitney.aot_compile(compiled)(x(3))
    assert not compiled._jitney_root.entries
