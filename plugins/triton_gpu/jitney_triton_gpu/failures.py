"""Kernels that could not be made: which operators they were, and a file that shows how Triton fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import triton
from torch import fx

from jitney.config import config
from jitney_lowering import Kernel
from jitney_triton_gpu.code import Function

_PROGRAM = '''\
"""A kernel of jitney's triton_gpu that Triton {version} cannot compile: python {file} ends in the same error.

{error}
"""

{header}
{text}

if __name__ == "__main__":
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(
        fn={name},
        signature={signature},
        constexprs={constexprs},
        attrs={attributes},
    )
    triton.compile(source, target={target}, options={options})
'''


class NotCompiled(Exception):
    """Triton, or the driver, refused some functions: ``errors`` has what each raised, ``details`` what it was given."""

    def __init__(self, errors: Mapping[str, Exception], details: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(", ".join(errors))
        self.errors = errors
        self.details = details


class KernelFailed(Exception):
    """A kernel that cannot be made.

    Args:
        reason: for ``explain``.
        nodes: the operators that it would have been.
        error: what Triton raised; None where we have no code for it.
        repro: writes what reproduces it; see ``write_repro``.
        shapes: the canonical kernels that Triton refused.
    """

    def __init__(
        self,
        reason: str,
        nodes: Collection[fx.Node],
        error: Exception | None = None,
        repro: Callable[[], Path | None] = lambda: None,
        shapes: Sequence[Kernel] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.nodes = nodes
        self.error = error
        self.repro = repro
        self.shapes = tuple(shapes)


def first_line(error: Exception) -> str:
    """What it says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]


def write_repro(function: Function, header: str, error: Exception, details: Mapping[str, Any]) -> Path | None:
    """A program that compiles the function alone, in ``config.base_dir``; None if it cannot be written there."""
    digest = hashlib.sha256(f"{function.text}{details}".encode()).hexdigest()[:8]
    path = Path(config.base_dir) / f"triton_{function.name}_{digest}.py"
    text = _PROGRAM.format(
        version=triton.__version__,
        file=path.name,
        error=first_line(error).replace("\\", "/").replace('"""', "'''"),
        header=header,
        text=function.text,
        name=function.name,
        **details,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError:
        return None
    return path
