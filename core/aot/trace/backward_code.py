"""What the program's own code does while the engine runs backward: autograd functions and hooks.

They may write to the gradient that they are given, or to what the forward has kept. In eager whoever holds that tensor
sees the write, in a functional graph nobody does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from jitney.aot.signals import NotSplit
from jitney.aot.trace import functionalization
from jitney.aot.trace.results import root_of
from jitney.aot.trace.tracer import FORWARD, AtenTracer


class BackwardCode(TorchFunctionMode):
    """Sees what Python calls meanwhile: the engine's own operators do not come by."""

    def __init__(self, tracer: AtenTracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.written = ""  # the first operation that has written to what is older than the backward

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = [(value, functionalization.unwrapped(value)) for value in functionalization.tensors((args, kwargs))]
        result = func(*args, **kwargs)
        for value, inner in before:
            if functionalization.unwrapped(value) is not inner and self._is_older(inner):
                self.written = self.written or getattr(func, "__name__", str(func))
        return result

    def _is_older(self, inner: torch.Tensor) -> bool:
        node = self.tracer.nodes.get(id(inner))
        root = None if node is None else root_of(node)
        return root is None or root.op != "call_function" or root.meta["phase"] is FORWARD

    def refuse(self) -> None:
        """Raise ``NotSplit`` if there was such a write: the program may have caught what was raised at it."""
        if self.written:
            raise NotSplit(f"its backward writes to what is older ({self.written})")
