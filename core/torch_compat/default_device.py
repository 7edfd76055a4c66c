"""torch's default device: `with torch.device(...)` and `torch.set_default_device`, which are torch function modes.

Captured operations name their device, so graphs do not depend on it: all of capturing and compiling runs without these
modes (``lifted``), but for what the program itself does. Other function modes are the program's own: nothing is
captured in one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from jitney.torch_compat import torch_private


def devices() -> tuple[torch.device, ...] | None:
    """What the active modes say, the outermost first; None if another function mode is active."""
    if not torch_private.function_mode_depth():
        return ()
    modes = torch_private.function_modes()
    return tuple([m.device for m in modes]) if all(type(m) is torch_private.DeviceContext for m in modes) else None


def innermost() -> torch.device:
    """The default device, whatever other modes are active."""
    chosen = [m.device for m in torch_private.function_modes() if type(m) is torch_private.DeviceContext]
    return chosen[-1] if chosen else torch.device("cpu")


@contextlib.contextmanager
def lifted() -> Iterator[list[Any]]:
    """Without the modes that choose a device, which are given; if there is another one too, all stay."""
    modes = torch_private.function_modes() if devices() else []
    torch_private.set_function_modes([]) if modes else None
    try:
        yield modes
    finally:
        if modes:
            torch_private.set_function_modes(modes)


@contextlib.contextmanager
def within(modes: list[Any]) -> Iterator[None]:
    """In modes that were lifted, asked before those that are active already; what is entered more is left."""
    before = torch_private.function_modes()
    torch_private.set_function_modes([*before, *modes])
    try:
        yield
    finally:
        torch_private.set_function_modes(before)


@contextlib.contextmanager
def asked_after_devices(mode: Any) -> Iterator[None]:
    """In another function mode that records operations: what it sees says its device."""
    before = torch_private.function_modes()
    count = next((i for i, m in enumerate(reversed(before)) if type(m) is not torch_private.DeviceContext), len(before))
    at = len(before) - count
    torch_private.set_function_modes([*before[:at], mode, *before[at:]])
    try:
        yield
    finally:
        torch_private.set_function_modes(before)


def enter_device(device: torch.device) -> None:
    """In a graph: begin a block with another default device. What is in the block says its device itself."""
    device.__enter__()


def exit_device(device: torch.device) -> None:
    """In a graph: end such a block."""
    device.__exit__(None, None, None)


DEVICE_CALLS = (enter_device, exit_device)  # compiling does not depend on them
