"""Differential checks: the same function, eager and compiled, on equal copies of the same arguments.

``JITNEY_TEST_FRONTEND`` chooses what "compiled" means: ``jitney`` (the default), ``identity`` (the function itself:
does the test hold in plain Python?) or ``dynamo`` (torch.compile, the peer). Graph counts are compared for jitney, and
for dynamo when ``JITNEY_TEST_COUNTS=1``.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import io
import os
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from jitney_testing.pictures import Freezer, Values, differences

FRONTEND = os.environ.get("JITNEY_TEST_FRONTEND", "jitney")
BACKEND = os.environ.get("JITNEY_TEST_BACKEND", "eager")
# With JITNEY_CACHE=1 too: each program runs compiled twice, the second time with what the first has left on disk.
CACHED = os.environ.get("JITNEY_TEST_CACHED") == "1"
COUNTS = (FRONTEND == "jitney" and not CACHED) or (FRONTEND == "dynamo" and os.environ.get("JITNEY_TEST_COUNTS") == "1")
SEED = 1234


# --- the front end under test --------------------------------------------------------------------------------------


class CountingBackend:
    """A backend that runs the graph as it is and remembers every graph it was given."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward


def compile_fn(fn: Any, *, backend: Any = None, **options: Any) -> Any:
    """``fn`` behind the front end under test."""
    if FRONTEND == "identity":
        return fn
    if FRONTEND == "dynamo":
        return torch.compile(fn, backend=backend or BACKEND, **options)
    import jitney

    return jitney.compile(fn, backend=backend or BACKEND, **options)


def graph_break() -> None:
    """The front end's explicit graph break (nothing in eager)."""
    if FRONTEND == "dynamo":
        torch._dynamo.graph_break()
    elif FRONTEND == "jitney":
        import jitney

        jitney.graph_break()


def disable(fn: Any = None, **options: Any) -> Any:
    """The front end's ``disable``; in eager the function itself."""
    if FRONTEND == "dynamo":
        return torch._dynamo.disable(fn, **options)
    if FRONTEND == "jitney":
        import jitney

        return jitney.disable(fn, **options)
    return fn if fn is not None else (lambda inner: inner)


def reset() -> None:
    """Forget everything that was compiled."""
    if FRONTEND == "dynamo":
        torch._dynamo.reset()
    elif FRONTEND == "jitney":
        import jitney

        jitney.reset()


@dataclasses.dataclass
class Observed:
    """What the compiler said while a block ran."""

    graphs: list[torch.fx.GraphModule] = dataclasses.field(default_factory=list)
    breaks: list[str] = dataclasses.field(default_factory=list)
    skips: list[str] = dataclasses.field(default_factory=list)
    recompiles: list[str] = dataclasses.field(default_factory=list)
    kept: list[str] = dataclasses.field(default_factory=list)  # graphs that no ATen backend got, and why


@contextlib.contextmanager
def observe() -> Iterator[Observed]:
    """Collect graphs, graph breaks and skipped frames while the block runs."""
    seen = Observed()
    if FRONTEND == "dynamo":
        from torch._dynamo.utils import counters

        before = collections.Counter(counters["graph_break"])
        yield seen
        seen.breaks += list((collections.Counter(counters["graph_break"]) - before).elements())
        return
    if FRONTEND == "identity":
        yield seen
        return
    from jitney import events

    def listener(event: Any) -> None:
        if isinstance(event, events.FrameCaptured):
            if event.graph is not None:
                seen.graphs.append(event.graph)
            if event.graph_break is not None:
                where = [f"{f.name}:{f.lineno}" for f in event.graph_break.user_stack]
                seen.breaks.append(f"{event.graph_break.reason} (at {' > '.join(where)})")
        elif isinstance(event, events.FrameSkipped):
            seen.skips.append(f"{event.name} ({event.filename}:{event.line}): {event.reason}")
        elif isinstance(event, events.GraphKept):
            seen.kept.append(event.reason)
        elif isinstance(event, events.Recompiled):
            seen.recompiles.append(f"{event.name}: {event.guard}")

    with events.listen(listener):
        yield seen


@contextlib.contextmanager
def output_code() -> Iterator[list[str]]:
    """What backends generate while the block runs."""
    from jitney import events

    found: list[str] = []

    def note(event: Any) -> None:
        if isinstance(event, events.Artefact) and event.name == "output_code":
            found.append(event.text)

    with events.listen(note):
        yield found


# --- running one side ----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Outcome:
    """Everything that one call left behind, frozen."""

    picture: dict[str, Any]
    observed: Observed
    exception: BaseException | None


def seed_everything(seed: int = SEED) -> None:
    """Seed torch, random and numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _global_state() -> dict[str, Any]:
    return {
        "torch RNG": Values(torch.get_rng_state()),
        "random RNG": repr(hash(random.getstate())),
        "numpy RNG": repr(hash(np.random.get_state()[1].tobytes()) ^ int(np.random.get_state()[2])),  # type: ignore[index,union-attr,call-overload]
        "grad mode": repr(torch.is_grad_enabled()),
        "inference mode": repr(torch.is_inference_mode_enabled()),
        "autocast": repr((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))),
        "default dtype": repr(torch.get_default_dtype()),
        "deterministic": repr(torch.are_deterministic_algorithms_enabled()),
        "torch function modes": repr(torch._C._len_torch_function_stack()),
    }


@contextlib.contextmanager
def _global_state_restored() -> Iterator[None]:
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)


def outcome_of(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], state: Any) -> Outcome:
    """Call once and freeze the result, the arguments, the state, what was printed, warned and left in globals."""
    out, err = io.StringIO(), io.StringIO()
    result, exception = None, None
    with observe() as observed, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                result = fn(*args, **kwargs)
            except KeyboardInterrupt:
                raise
            except BaseException as e:
                exception = e
    globals_after = _global_state()
    freezer = Freezer()
    picture: dict[str, Any] = {}
    live = {"exception": exception, "result": result, "args": args, "kwargs": kwargs}
    live["state"] = state() if isinstance(state, types.FunctionType) else state
    for name, value in live.items():
        picture[name] = freezer.freeze(value, name)
    picture["printed"] = out.getvalue()
    if FRONTEND != "dynamo":
        picture["stderr"] = err.getvalue()
        # past the limit is a fact about the program, not a difference; tests/guards/test_cache.py holds the warning
        texts = [f"{w.category.__name__}: {w.message}" for w in warned]
        picture["warnings"] = repr([text for text in texts if "config.cache_size_limit" not in text])
    picture["global state"] = globals_after
    return Outcome(picture, observed, exception)


def _own_state(fn: Any) -> Any:
    """What a call of ``fn`` could change that is reachable from it: its object, its cells."""
    if isinstance(fn, types.FunctionType):
        return {"cells": fn.__closure__, "dict": fn.__dict__, "defaults": fn.__defaults__}
    return fn


# --- the checks ----------------------------------------------------------------------------------------------------


def check_made(
    make: Callable[[], Any],
    *args: Any,
    calls: int = 2,
    graphs: int | None = None,
    breaks: int | None = None,
    skips: int | None = 0,
    raises: type[BaseException] | None = None,
    compile_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    """``check`` for functions that need fresh state: ``make()`` builds the function anew for each side.

    ``make`` returns the function, or the function and its state: an object, or a function that returns one. The state
    is compared after every call.
    """
    __tracebackhide__ = True
    options = dict(compile_options or {})
    outcomes: dict[str, list[Outcome]] = {}
    counting = CountingBackend()
    if FRONTEND == "dynamo":
        reset()
        options["backend"] = counting
    for side in ("eager", *["before"] * CACHED, "compiled"):
        if CACHED:
            reset()
        made = make()
        fn, state = made if isinstance(made, tuple) else (made, None)
        own = (_own_state(fn), state)
        watched = (lambda own=own: (own[0], own[1]())) if isinstance(state, types.FunctionType) else own
        side_args, side_kwargs = copy.deepcopy((args, kwargs))
        called = compile_fn(fn, **options) if side != "eager" else fn
        seed_everything()
        outcomes[side] = []
        with _global_state_restored():
            for _ in range(calls):
                outcomes[side].append(outcome_of(called, side_args, side_kwargs, watched))
                if side == "compiled" and FRONTEND == "dynamo" and not outcomes[side][1:]:
                    outcomes[side][0].observed.graphs += counting.graphs
    raised = outcomes["eager"][0].exception
    if not isinstance(raised, (raises or (), type(None)) if raises is BaseException else raises or type(None)):
        raise AssertionError(f"the test itself: eager should raise {raises}, and raised {raised!r}") from raised
    found: list[str] = []
    for i, (eager, compiled) in enumerate(zip(outcomes["eager"], outcomes["compiled"], strict=True)):
        lines = list(differences(eager.picture, compiled.picture, f"call {i + 1}:"))
        found += lines[:12] + ([f"... and {len(lines) - 12} more"] if len(lines) > 12 else [])
        if found:
            break
    if COUNTS:
        found += _counts(outcomes["compiled"][0].observed, graphs, breaks, skips)
    if found:
        raise AssertionError("compiled differs from eager\n  " + "\n  ".join(found))


def _counts(observed: Observed, graphs: int | None, breaks: int | None, skips: int | None) -> Iterator[str]:
    if graphs is not None and len(observed.graphs) != graphs:
        yield f"graphs: expected {graphs}, got {len(observed.graphs)}"
        yield from (f"  break: {reason}" for reason in observed.breaks)
    if breaks is not None and len(observed.breaks) != breaks:
        yield f"breaks: expected {breaks}, got {len(observed.breaks)}"
        yield from (f"  break: {reason}" for reason in observed.breaks)
    if skips is not None and len(observed.skips) > skips:
        yield from (f"frame left eager: {skip}" for skip in observed.skips)


def check(
    fn: Any,
    *args: Any,
    calls: int = 2,
    graphs: int | None = None,
    breaks: int | None = None,
    skips: int | None = 0,
    raises: type[BaseException] | None = None,
    compile_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    """Assert that compiled ``fn`` does on copies of the arguments what eager ``fn`` does on other copies.

    Compared after each of ``calls`` calls: the result, the exception, arguments and keyword arguments (with what they
    reach, and who is the same object as whom), ``fn`` itself when it is a module or a method, closure cells, printed
    text, warnings, the state of random generators and torch's global modes. The arguments of a side live through all
    its calls. ``raises`` is what eager's first call must raise (BaseException: it may raise anything, or nothing).
    ``graphs`` and ``breaks`` are the numbers expected of the first call; ``skips`` is how many frames may be left
    eager (None: any number).
    """
    __tracebackhide__ = True
    check_made(
        lambda: copy.deepcopy(fn),
        *args,
        calls=calls,
        graphs=graphs,
        breaks=breaks,
        skips=skips,
        raises=raises,
        compile_options=compile_options,
        **kwargs,
    )


def check_scenario(scenario: Callable[[Callable[[Any], Any]], Any]) -> None:
    """Assert that a little story goes as in eager: it is given ``compile`` (or nothing of the kind) and tells its end.

    For programs that change the world between calls. Compared: what it returns, raises, prints and warns, the state
    of random generators and torch's global modes.
    """
    __tracebackhide__ = True
    pictures = []
    for wrap in (lambda fn: fn, compile_fn):
        seed_everything()
        reset()
        with _global_state_restored():
            told = outcome_of(lambda wrap=wrap: scenario(wrap), (), {}, None)
        if told.exception is not None:
            raise told.exception
        pictures.append(told.picture)
    lines = list(differences(*pictures, "scenario:"))
    if lines:
        raise AssertionError("compiled differs from eager\n  " + "\n  ".join(lines[:12]))


def check_logged(make: Callable[[list[Any]], Any]) -> None:
    """``check_scenario`` for a function that writes to a log: ``make(log)`` makes it, and it is called twice."""
    __tracebackhide__ = True

    def scenario(compile: Callable[[Any], Any]) -> Any:
        log: list[Any] = []
        called = compile(make(log))
        return [called(t()), called(t())], log

    check_scenario(scenario)


def storybook() -> tuple[Callable[[Any], Any], Any]:
    """A decorator that collects scenarios, and the test that checks each, by its name."""
    stories: list[Any] = []

    def story(fn: Any) -> Any:
        stories.append(fn)
        return fn

    @pytest.mark.parametrize("told", stories, ids=lambda fn: fn.__name__)
    def test_story(told: Any) -> None:
        check_scenario(told)

    return story, test_story


def outcome(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """What a call gives, or the exception that it raises, without its context."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return type(error)(*error.args)


class Compiled:
    """A compiled function whose every call is compared with eager, and whose compilations are counted."""

    def __init__(self, fn: Any, **options: Any) -> None:
        if FRONTEND == "dynamo":
            reset()
        self.backend = CountingBackend()
        self.eager = fn
        self.compiled = compile_fn(fn, backend=self.backend, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call both sides on copies of tensors and containers; modules and other objects are shared."""
        __tracebackhide__ = True
        eager_args, compiled_args = _copied((args, kwargs)), _copied((args, kwargs))
        seed_everything()
        expected = outcome_of(self.eager, *eager_args, None)
        seed_everything()
        results: list[Any] = []

        def keep(*args: Any, **kwargs: Any) -> Any:
            results.append(self.compiled(*args, **kwargs))
            return results[0]

        got = outcome_of(keep, *compiled_args, None)
        lines = list(differences(expected.picture, got.picture, "call:"))
        if lines:
            raise AssertionError("compiled differs from eager\n  " + "\n  ".join(lines[:12]))
        return results[0] if results else None

    def expect(self, graphs: int) -> None:
        """Assert how many graphs the backend was given so far."""
        __tracebackhide__ = True
        if FRONTEND != "identity" and COUNTS and len(self.backend.graphs) != graphs:
            raise AssertionError(f"expected {graphs} compiled graphs so far, got {len(self.backend.graphs)}")


def _copied(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return copy.deepcopy(x) if x.is_leaf else x
    if type(x) in (list, tuple):
        return type(x)(_copied(item) for item in x)
    if type(x) is dict:
        return {key: _copied(value) for key, value in x.items()}
    return x


def t(*shape: int, requires_grad: bool = False) -> torch.Tensor:
    """A small float tensor with distinct, exactly representable values around zero."""
    shape = shape or (3,)
    n = int(np.prod(shape))
    values = (torch.arange(n, dtype=torch.float32) - n // 3) / 4 + 0.125
    return values.reshape(shape).requires_grad_(requires_grad)
