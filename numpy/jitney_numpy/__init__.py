"""NumPy's functions, methods and operators in terms of torch's: handlers that jitney's capture finds by entry point."""

from __future__ import annotations

from jitney.capture.tables import ArrayHandlers, Handlers
from jitney_numpy import attributes, composites, constants, creation, draws, grids, indexing, reductions, shapes, ufuncs
from jitney_numpy.calls import ArrayTable

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1

TABLES: tuple[ArrayTable, ...] = (
    composites.table,
    constants.table,
    creation.table,
    draws.table,
    grids.table,
    reductions.table,
    shapes.table,
    ufuncs.table,
)

handlers = Handlers(
    functions={key: handler for table in TABLES for key, handler in table.functions.items()},
    codes={key: handler for table in TABLES for key, handler in table.codes.items()},
    arrays=ArrayHandlers(
        attr=attributes.array_attr,
        call=attributes.call_method,
        length=attributes.length,
        getitem=indexing.getitem,
        setitem=indexing.setitem,
        from_tensor=creation.from_tensor,
        methods={name: handler for table in TABLES for name, handler in table.methods.items()},
    ),
)
