"""Around a compiled graph: global state is put back if it raises, and its first result is checked."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney import _torch


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


def enter_inference_mode(mode: bool) -> Any:
    """In a graph: begin an inference-mode block; the result ends it."""
    scope = _torch.InferenceModeGuard(mode)
    scope.__enter__()
    return scope


def exit_inference_mode(scope: Any) -> None:
    """In a graph: end an inference-mode block."""
    scope.__exit__(None, None, None)


def run_function(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    """A function that stands for ``cls.apply`` in a graph, named after the class."""
    found = _applied.get(cls)
    if found is None:

        def found(*args: Any) -> Any:
            return cls.apply(*args)

        found.__name__ = found.__qualname__ = f"{cls.__name__}_apply"
        _applied[cls] = found
    return found


_applied: weakref.WeakKeyDictionary[type, Callable[..., Any]] = weakref.WeakKeyDictionary()


class StateKeeper:
    """Grad mode and autocast as they are now; ``restore`` brings them back."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        self.autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in self.devices]
        self.cache = torch.is_autocast_cache_enabled()
        torch.autocast_increment_nesting()
        self.nesting = torch.autocast_decrement_nesting()

    def restore(self) -> None:
        """Put back what has changed since."""
        _torch.set_grad_enabled(self.grad)
        for device, enabled, dtype in self.autocast:
            if torch.is_autocast_enabled(device) != enabled:
                torch.set_autocast_enabled(device, enabled)
            if torch.get_autocast_dtype(device) != dtype:
                torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.cache)
        torch.autocast_increment_nesting()
        nesting = torch.autocast_decrement_nesting()
        while nesting > self.nesting:
            nesting = torch.autocast_decrement_nesting()
        while nesting < self.nesting:
            nesting = torch.autocast_increment_nesting()


def keeping_state(compiled: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """A graph that changes grad mode or autocast: undone if it raises."""

    def run(*inputs: Any) -> Sequence[Any]:
        keeper = StateKeeper()
        try:
            return compiled(*inputs)
        except BaseException:
            keeper.restore()
            raise

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

    return run
