"""Process groups and functional collectives, imported when one is captured."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def process_groups() -> Any:
    """What knows the process groups: its ``default_pg`` is the group of all. Its public face guards no reading."""
    return importlib.import_module("torch.distributed.distributed_c10d")._world


def functional_collectives() -> Any:
    """The module of collectives that give new tensors; imported when one is captured."""
    return importlib.import_module("torch.distributed._functional_collectives")


def wait_for_collective() -> Callable[[Any], Any]:
    """From the result of a functional collective, which may wait when it is looked at, to a plain tensor."""
    functions = functional_collectives()

    def wait(value: Any) -> Any:
        return functions.wait_tensor(value)

    return wait
