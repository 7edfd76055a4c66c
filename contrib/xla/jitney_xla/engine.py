"""JAX as this package uses it: where it computes, and how XLA is told to keep to the operators' numbers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import jax

# XLA's algebraic simplifier takes liberties: a / 3 becomes a * (1 / 3), exp(a) * exp(b) becomes exp(a + b), (a / b) / c
# becomes a / (b * c). Halves are rounded where the graph says so, not later. What it gives to YNNPACK has ended in
# segmentation faults without the simplifier (the softmax of 4,096 numbers), so nothing goes there.
STRICT = {
    "xla_cpu_enable_fast_math": False,  # whatever XLA_FLAGS says
    "xla_cpu_enable_fast_min_max": False,
    "xla_disable_hlo_passes": "algsimp",
    "xla_allow_excess_precision": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
}

# XLA's threads do not come along into a forked process.
_process = os.getpid()

# JAX warns whoever forks, once it has threads. Compiled graphs work in the child: they run without XLA there.
warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)


def forked() -> bool:
    """Is this a child of the process in which XLA was started?"""
    return os.getpid() != _process


def settings() -> ExitStack:
    """A block in which JAX has 64-bit types and computes on the CPU, whatever the program has set for itself."""
    stack = running()
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
    stack.enter_context(jax.default_matmul_precision("highest"))
    return stack


def running() -> ExitStack:
    """A block in which compiled code runs: with 64-bit types, and without what looks for JAX's own mistakes."""
    stack = ExitStack()
    stack.enter_context(jax.enable_x64(True))
    config: Any = jax.config
    if config.jax_debug_nans or config.jax_debug_infs or config.jax_disable_jit:
        stack.enter_context(jax.debug_nans(False))
        stack.enter_context(jax.debug_infs(False))
        stack.enter_context(jax.disable_jit(False))
    if config.jax_transfer_guard_host_to_device is not None:
        stack.enter_context(jax.transfer_guard("allow"))
    return stack


def compiled(function: Callable[..., Sequence[Any]], inputs: Sequence[tuple[tuple[int, ...], Any]]) -> Any:
    """The function as XLA's code.

    Args:
        function: of JAX arrays, gives JAX arrays.
        inputs: shape and dtype of each argument.
    """
    with settings():
        given = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in inputs]
        return jax.jit(function).lower(*given).compile(compiler_options=STRICT)


def call(code: Any, arrays: Sequence[Any]) -> list[Any]:
    """Runs what ``compiled`` gave, and waits for it: the arguments may change or die afterwards."""
    with running():
        return list(jax.block_until_ready(code(*arrays)))
