"""Which modules handle what: the one place where their tables become those of the interpreter.

Opcodes have a table of their own, ``interpreter/opcodes/__init__.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jitney.capture import directive_rules
from jitney.capture.numpy import (
    attributes,
    composites,
    creation,
    indexing,
    reductions,
    shapes,
    ufuncs,
)
from jitney.capture.numpy.calls import ArrayTable
from jitney.capture.python import builtins, classes, copying, logs, signatures
from jitney.capture.tables import Args, ArrayHandlers, Handlers, Kwargs
from jitney.capture.torch import (
    checkpoints,
    control_flow,
    functional_calls,
    optimizers,
    scans,
    transforms,
    vjp,
)

PYTHON = (builtins.special, classes.special, copying.special, logs.special, signatures.special)
TORCH = (
    checkpoints.special,
    control_flow.special,
    functional_calls.special,
    optimizers.special,
    scans.special,
    transforms.special,
    vjp.special,
)
NUMPY: tuple[ArrayTable, ...] = (
    composites.table,
    creation.table,
    reductions.table,
    shapes.table,
    ufuncs.table,
)
TABLES = (*PYTHON, *TORCH, *NUMPY, directive_rules.special)

HANDLERS = Handlers(
    functions={key: handler for table in TABLES for key, handler in table.functions.items()},
    codes={key: handler for table in TABLES for key, handler in table.codes.items()},
    arrays=ArrayHandlers(
        attr=attributes.array_attr,
        call=attributes.call_method,
        length=attributes.length,
        getitem=indexing.getitem,
        setitem=indexing.setitem,
        from_tensor=creation.from_tensor,
        methods={name: handler for table in NUMPY for name, handler in table.methods.items()},
    ),
)


def compile_inside(compile_function: Callable[..., Any]) -> None:
    """Register what ``jitney.compile`` is in compiled code: its argument, which is compiled as the rest is."""

    def handler(vm: Any, args: Args, kwargs: Kwargs) -> Any:
        model = args[0] if args else kwargs.get("model")
        if model is None:
            return vm.world.mark_fresh(functools.partial(compile_function, **kwargs))
        return model

    HANDLERS.functions[id(compile_function)] = handler
