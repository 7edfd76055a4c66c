"""torch's global state that programs switch on and off, grad mode and autocast; and the lock around tracing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

from jitney._util.forks import reentrant_lock
from jitney._util.interrupts import postponement
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import devices


class Tracing:
    """A context for one thread at a time, which may enter it again: a capture or a trace. Ctrl-C waits meanwhile.

    FakeTensor conversion touches process-wide state (warning filters); for Ctrl-C see ``interrupts``.
    """

    def __init__(self) -> None:
        self._lock = reentrant_lock()

    def __enter__(self) -> None:
        postponement.__enter__()
        try:
            self._lock.acquire()
        except BaseException:
            postponement.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._lock.release()
        finally:
            postponement.__exit__()


TRACING = Tracing()


@contextlib.contextmanager
def without_anomaly_mode() -> Iterator[None]:
    """While tracing, autograd's engine looks for no NaN: FakeTensors have no numbers; its warnings would be false."""
    if not torch.is_anomaly_enabled():
        yield
        return
    with torch.autograd.set_detect_anomaly(False):
        yield


class StateKeeper:
    """Grad mode, autocast and torch function modes as they are now; ``restore`` brings them back."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        self.autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in self.devices]
        self.cache = torch.is_autocast_cache_enabled()
        torch.autocast_increment_nesting()
        self.nesting = torch.autocast_decrement_nesting()
        self.modes = torch_private.function_modes()

    def changed(self) -> bool:
        """Is grad mode or autocast different now?"""
        now = StateKeeper()
        return (now.grad, now.autocast, now.nesting) != (self.grad, self.autocast, self.nesting)

    def restore(self) -> None:
        """Put back what has changed since."""
        torch_private.set_grad_enabled(self.grad)
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
        if torch_private.function_modes() != self.modes:
            torch_private.set_function_modes(self.modes)


def enter_inference_mode(mode: bool) -> Any:
    """In a graph: begin an inference-mode block; the result ends it."""
    scope = torch_private.InferenceModeGuard(mode)
    scope.__enter__()
    return scope


def exit_inference_mode(scope: Any) -> None:
    """In a graph: end an inference-mode block."""
    scope.__exit__(None, None, None)


def state_check() -> Callable[[], bool]:
    """A call that tells whether torch's global state is as it is now."""
    inference = torch.is_inference_mode_enabled()
    depth, dispatch, places = torch_private.function_mode_depth(), torch_private.dispatch_mode_depth(), devices()
    is_inference, function_depth = torch.is_inference_mode_enabled, torch_private.function_mode_depth
    dispatch_depth = torch_private.dispatch_mode_depth
    if torch_private.GlobalStateGuard is not None:
        state = torch_private.GlobalStateGuard().check
    else:
        wanted = (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"))

        def state() -> bool:
            return (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu")) == wanted

    transforms, tracing = torch_private.transforms_active, torch_private.tracing_state

    def check() -> bool:
        modes = function_depth() == depth and dispatch_depth() == dispatch and not transforms() and tracing() is None
        return modes and state() and is_inference() is inference

    def check_with_devices() -> bool:
        return check() and devices() == places

    return check_with_devices if places else check


def state_text() -> str | None:
    """torch's global state that ``state_check`` looks at, as text that is equal in two processes; None if unknown."""
    described = getattr(torch_private.GlobalStateGuard, "__getstate__", None)
    places = devices()
    if described is None or places is None or torch_private.dispatch_mode_depth() or torch_private.transforms_active():
        return None
    default = ",".join(map(str, places)) or "cpu"
    return f"{described(torch_private.GlobalStateGuard())} {torch.is_inference_mode_enabled()} {default}"


def state_difference(text: str, now: str | None) -> str:
    """What differs between two descriptions by ``state_text``, for people."""
    if now is None:
        return "a mode of torch's is active"
    (old, inference, device), (new, is_inference, is_device) = text.rsplit(" ", 2), now.rsplit(" ", 2)
    told = [f"inference mode is {is_inference}, was {inference}"] if inference != is_inference else []
    told += [f"the default device is {is_device}, was {device}"] if device != is_device else []
    try:
        before, after = json.loads(old), json.loads(new)
        told += [
            f"{name} is {after.get(name)}, was {before[name]}" for name in before if before[name] != after.get(name)
        ]
    except (ValueError, AttributeError):  # torch describes it in another way
        pass
    return ", ".join(told) or "torch's global state is another one"
