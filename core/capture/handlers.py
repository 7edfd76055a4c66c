"""Who handles what: the one place where modules' tables, and those of packages, become those of the interpreter.

Opcodes have a table of their own, ``interpreter/opcodes/__init__.py``. What a package registers: see ``tables.py``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from jitney.backends.registry import registry
from jitney.capture import directive_rules
from jitney.capture.python import builtins, classes, copying, logs, serialization, signatures
from jitney.capture.tables import UNCAPTURED, Args, FunctionTable, Handlers, Kwargs
from jitney.capture.torch import control_flow, conversions, flex_attention, optimizers, parameters
from jitney.capture.torch.autograd import (
    backward,
    checkpoints,
    functions,
    gradients,
    hooks,
    scaled_steps,
    transforms,
    vjp,
)
from jitney.capture.torch.classes import torch_function
from jitney.capture.torch.distributed import data_parallel
from jitney.capture.torch.sequences import ctc, generators, packed, scans, spectrograms
from jitney.capture.world import context_variables, draws, host_comparisons, late_warnings

PYTHON = (
    builtins.special,
    classes.special,
    context_variables.special,
    copying.special,
    draws.special,
    host_comparisons.special,
    late_warnings.special,
    logs.special,
    serialization.special,
    signatures.special,
)
TORCH = (
    functions.special,
    gradients.special,
    backward.special,
    hooks.special,
    checkpoints.special,
    torch_function.special,
    control_flow.special,
    conversions.special,
    ctc.special,
    flex_attention.special,
    generators.special,
    optimizers.special,
    packed.special,
    parameters.special,
    scaled_steps.special,
    data_parallel.special,
    scans.special,
    spectrograms.special,
    transforms.special,
    vjp.special,
)
COMPILING = FunctionTable()
TABLES = (*PYTHON, *TORCH, directive_rules.special, COMPILING)

_log = logging.getLogger("jitney.plugins")


def handlers() -> Handlers:
    """All that there are now; packages that register some are imported, but for those that are disabled."""
    return _merged(tuple(registry.handlers(Handlers).items()))


@functools.cache
def _merged(packages: tuple[tuple[str, Handlers], ...]) -> Handlers:
    functions = {key: handler for table in TABLES for key, handler in table.functions.items()}
    codes = {key: handler for table in TABLES for key, handler in table.codes.items()}
    arrays = UNCAPTURED
    modules: set[str] = set()
    for name, own in packages:
        if functions.keys() & own.functions or codes.keys() & own.codes or UNCAPTURED not in (arrays, own.arrays):
            _log.warning("handlers %r are left out: others handle some of the same functions", name)
            continue
        functions |= own.functions
        codes |= own.codes
        parts = (*own.functions.values(), *own.codes.values(), *own.arrays.methods.values())
        modules |= {str(part.__module__) for part in parts}
        arrays = own.arrays if arrays is UNCAPTURED else arrays
    return Handlers(functions, codes, arrays, frozenset(modules))


def compile_inside(compile_function: Callable[..., Any]) -> None:
    """Register what ``jitney.compile`` is in compiled code: its argument, which is compiled as the rest is."""

    def handler(vm: Any, args: Args, kwargs: Kwargs) -> Any:
        model = args[0] if args else kwargs.get("model")
        if model is None:
            return vm.world.mark_fresh(functools.partial(compile_function, **kwargs))
        return model

    COMPILING.add(compile_function, handler)
