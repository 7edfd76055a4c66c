"""Around a compiled graph: global state is put back if it raises, and its first result is checked."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney.cache.recipes import RECIPE, call
from jitney.torch_compat.global_state import StateKeeper

# An attribute of operations that look at tensors' values: torch-level graphs hold them, ATen graphs cannot.
RUNS_EAGERLY = "_jitney_runs_eagerly"
# An attribute of operations around graphs (``graphs``): makes the same operation over other functions in their place.
OVER = "_jitney_over"


def runs_eagerly(target: Any) -> bool:
    """Is this target of a node an operation that no ATen graph can hold?"""
    return bool(getattr(target, "__dict__", {}).get(RUNS_EAGERLY))


class InferenceScope:
    """Stands for torch's inference-mode guard object while capturing; ``node`` is its entry in the graph."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.node: Any = None
        self.real: Any = None

    def __enter__(self) -> None:
        """Interpreted specially."""

    def __exit__(self, *error: object) -> None:
        """Interpreted specially."""


def run_function(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    """A function that stands for ``cls.apply`` in a graph, named after the class."""
    found = _applied.get(cls, _nothing)()
    if found is None:

        def found(*args: Any) -> Any:
            return cls.apply(*args)

        found.__name__ = found.__qualname__ = f"{cls.__name__}_apply"
        _applied[cls] = weakref.ref(found)  # the function holds the class
    return found


def _nothing() -> None:
    return None


def run_function_with(cls: type[torch.autograd.Function], functions: dict[int, Any]) -> Callable[..., Any]:
    """The same with some arguments that graphs cannot hold, by position: ``cls.apply`` of these and of the others."""

    def found(*args: Any) -> Any:
        rest = iter(args)
        return cls.apply(*(functions[i] if i in functions else next(rest) for i in range(len(args) + len(functions))))

    found.__name__ = found.__qualname__ = f"{cls.__name__}_apply"
    return found


_applied: weakref.WeakKeyDictionary[type, Callable[[], Any]] = weakref.WeakKeyDictionary()


def keeping_state(compiled: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """A graph that changes grad mode or autocast: undone if it raises."""

    def run(*inputs: Any) -> Sequence[Any]:
        keeper = StateKeeper()
        try:
            return compiled(*inputs)
        except BaseException:
            keeper.restore()
            raise

    run.__dict__[RECIPE] = lambda writer: call(
        "jitney.capture.codegen.graph_runner:keeping_state", writer.ref(compiled)
    )
    return run


def checked_once(
    compiled: Callable[..., Sequence[Any]], check: Callable[[Any], None], settle: Callable[[Any], None]
) -> Callable[..., Sequence[Any]]:
    """Check the first result with ``check``, then let ``settle`` put the bare callable in place."""

    def run(*inputs: Any) -> Sequence[Any]:
        outputs = compiled(*inputs)
        check(outputs)
        settle(compiled)
        return outputs

    run.__dict__[RECIPE] = lambda writer: writer.ref(compiled)  # of one that is stored before it has run
    return run
