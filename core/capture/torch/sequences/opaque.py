"""Operators that run as they are, of whose results torch's own rules say nothing, or something wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def like(given: Any, sizes: Any, others: tuple[Any, ...] = ()) -> Any:
    """A stand-in of these sizes that has come of ``given`` or of others: autograd knows it."""
    made = given.new_empty(sizes)
    of = [tensor for tensor in others or (given,) if tensor.requires_grad]
    return functools.reduce(lambda total, tensor: total + tensor.sum(), of, made)


def recorded(
    vm: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stand_ins: Callable[[], Any]
) -> Any:
    """The operator in the graph, and what stands for its results."""
    for value in (*args, *kwargs.values()):
        vm.tracer.check_argument(value)
    vm.tracer.pause = True
    try:
        made = vm.tracer.run(stand_ins, (), {})
    finally:
        vm.tracer.pause = False
    vm.tracer.record(function, args, kwargs, made).meta["opaque"] = True
    return made
