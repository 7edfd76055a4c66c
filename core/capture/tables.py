"""Tables of handlers. A module fills its own; ``handlers.py`` says which of them make up the interpreter.

A package registers more with an entry point of the group ``jitney.handlers``, which names a ``Handlers``. The handler
of a function is called in the function's place while a frame is captured, with

- the interpreter: ``vm.call`` interprets a call, ``vm.world`` is what is older than the frame, ``vm.handlers`` all that
  there are;
- the arguments as the program has them: stand-ins for tensors (what is computed with them becomes the graph), ``Array``
  for arrays of NumPy, and otherwise the program's own values, which may be older than the frame: ``expose`` looks into
  them under guards, ``specialise`` makes constants of symbols.

It returns what the function would return, and raises ``Break`` wherever it does not know that. What else is in the
modules of handlers is capture's too, and no code of the program's. Entry points are called from the first capture on,
and must declare ``jitney_hook_api`` as all plugins do.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from jitney.capture.interpreter.signals import Break
from jitney.capture.original_functions import is_known

Args = list[Any]
Kwargs = dict[str, Any]
Handler = Callable[[Any, Args, Kwargs], Any]  # of the interpreter and the arguments of the call
CodeHandler = Callable[[Any, types.FunctionType, Args, Kwargs], Any]


class FunctionTable:
    """What is called in the place of certain functions, by the identity of the function or of its code."""

    def __init__(self) -> None:
        self.functions: dict[int, Handler] = {}
        self.codes: dict[int, CodeHandler] = {}  # for functions of torch's that are made anew for each use
        self._alive: list[Any] = []  # an identity must stay its function's own

    def __call__(self, *functions: Any) -> Callable[[Handler], Handler]:
        """Register the handler of these very functions, but for those that the program has put in torch's place."""

        def register(handler: Handler) -> Handler:
            for fn in functions:
                if not isinstance(fn, types.FunctionType) or is_known(fn):
                    self.add(fn, handler)
            return handler

        return register

    def add(self, fn: Any, handler: Handler) -> None:
        """Register the handler of a function, whoever has written it."""
        self.functions[id(fn)] = handler
        self._alive.append(fn)


@dataclass(frozen=True, slots=True)
class ArrayHandlers:
    """What the interpreter does with the stand-ins of arrays."""

    attr: Callable[[Any, Any, str], Any]
    call: Callable[[Any, Any, Args, Kwargs], Any]  # of a bound method
    length: Callable[[Any], Any]
    getitem: Callable[[Any, Any, Any], Any]
    setitem: Callable[[Any, Any, Any, Any], None]
    from_tensor: Callable[[Any, Any], Any]
    methods: dict[str, Callable[[Any, Any, Args, Kwargs], Any]]  # by name


def _uncaptured(*args: Any) -> NoReturn:
    raise Break("an array is made, and nothing installed captures NumPy", INSTALL)


INSTALL = "pip install 'jitney[numpy]'"
UNCAPTURED = ArrayHandlers(*(_uncaptured,) * 6, {})  # where no package has any


@dataclass(frozen=True, slots=True, eq=False)
class Handlers:
    """All that an interpreter has handlers for, besides the opcodes; or a package's part of it, by identities."""

    functions: dict[int, Handler]
    codes: dict[int, CodeHandler]
    arrays: ArrayHandlers = UNCAPTURED
    modules: frozenset[str] = frozenset()  # those in which packages have written their handlers
