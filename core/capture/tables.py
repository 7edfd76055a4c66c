"""Tables of handlers. A module fills its own; ``handlers.py`` says which of them make up the interpreter."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Handlers:
    """All that an interpreter has handlers for, besides the opcodes."""

    functions: dict[int, Handler]
    codes: dict[int, CodeHandler]
    arrays: ArrayHandlers
