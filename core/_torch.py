"""Every private torch name that jitney uses, each with its reason. Checked with torch 2.11 to 2.13.

A name that a future torch drops fails here, at import, by name; nothing else in jitney reaches past torch's face.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

# ShapeEnv asks for a torch Source to name a symbol; the base class is part of its signature.
from torch._guards import Source as TorchSource

# Shapes, dtypes and devices of results without computing them.
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

# Symbolic sizes.
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)

# Turns a size expression into calls on FX proxies, and into Python text.
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

# The method table through which a tensor's C methods are recognised.
TensorBase: Any = torch._C.TensorBase
# The namespace of generated torch functions (torch.add, torch.ones ...): what is in it is an operation.
VariableFunctions: Any = torch._C._VariableFunctions
# Namespaces of operations behind torch.nn.functional, torch.fft, torch.linalg, torch.special.
OP_NAMESPACES: tuple[Any, ...] = (
    torch._C._VariableFunctions,
    torch._C._nn,
    torch._C._fft,
    torch._C._linalg,
    torch._C._special,
    torch._C._sparse,
    torch._C._nested,
)
# Changes the grad mode; what torch.no_grad calls.
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
# What torch.library.custom_op returns; its operator is what a graph records.
CustomOpDef: Any = torch._library.custom_ops.CustomOpDef
# The object behind torch.inference_mode.
InferenceModeGuard: Any = torch._C._InferenceMode
# How many torch function modes (such as `with torch.device(...)`) are active.
function_mode_depth: Callable[[], int] = torch._C._len_torch_function_stack
# How many dispatch modes are active.
dispatch_mode_depth: Callable[[], int] = torch._C._len_torch_dispatch_stack
# Is the module's forward being traced by torch.jit?
tracing_state: Callable[[], Any] = torch._C._get_tracing_state

_guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
# One C call that checks grad mode, autocast, default dtype, deterministic mode and their like.
GlobalStateGuard: Any = getattr(_guards, "GlobalStateGuard", None)
# One C call that checks the metadata of all tensors (13 us for 150).
TensorGuards: Any = getattr(_guards, "TensorGuards", None)


class NamedSource(TorchSource):
    """A torch Source that is a name and no more."""

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "_text", text)

    @property
    def _name_template(self) -> str:
        return str(self._text)  # type: ignore[attr-defined]

    @property
    def name(self) -> Any:  # torch 2.11 calls it, later versions read it
        return _Name(self._text)  # type: ignore[attr-defined]

    def is_ephemeral(self) -> bool:
        return False

    def __hash__(self) -> int:
        return hash(self._text)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSource) and other._text == self._text  # type: ignore[attr-defined]


class _Name(str):
    """A string that may also be called, as older ShapeEnvs do."""

    def __call__(self) -> str:
        return str(self)


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """Look at real tensors as they are, whatever modes are active."""
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        yield


__all__ = [
    "OP_NAMESPACES",
    "DataDependentOutputException",
    "DimDynamic",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "GlobalStateGuard",
    "GuardOnDataDependentSymNode",
    "NamedSource",
    "PythonPrinter",
    "PythonReferenceAnalysis",
    "ShapeEnv",
    "StatelessSymbolicContext",
    "TensorBase",
    "TensorGuards",
    "TorchSource",
    "UnsupportedFakeTensorException",
    "VariableFunctions",
    "dispatch_mode_depth",
    "function_mode_depth",
    "set_grad_enabled",
    "sympy_interp",
    "tracing_state",
    "without_modes",
]
