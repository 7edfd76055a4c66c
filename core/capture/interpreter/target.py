"""What is captured: a code object with its globals, and the parameters of the function that stands for it."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from jitney._util.generated_code import variable

VARARGS, VARKEYWORDS = 0x04, 0x08


@dataclass(frozen=True, slots=True)
class Target:
    """A code object to capture. A resume function has no ``function``: its cells arrive as leading arguments."""

    code: types.CodeType
    globals: dict[str, Any]
    function: types.FunctionType | None  # None for resume functions: their cells differ from call to call

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return self.code.co_name

    def lend(self, emitted: types.FunctionType) -> None:
        """Give an emitted function the user's defaults, and the name by which TypeErrors of calls go."""
        own = self.function
        if own is not None:
            own_names = {variable(name): name for name in parameters(self.code)}
            if any(text != name for text, name in own_names.items()):  # text cannot say them, calls do
                made = emitted.__code__
                varnames, cells = ([own_names.get(n, n) for n in ns] for ns in (made.co_varnames, made.co_cellvars))
                emitted.__code__ = made.replace(co_varnames=tuple(varnames), co_cellvars=tuple(cells))
            emitted.__defaults__, emitted.__kwdefaults__ = own.__defaults__, own.__kwdefaults__
            emitted.__qualname__ = own.__qualname__

    def signature(self) -> str:
        """The emitted function's parameters: the user's, or cells and locals by position."""
        code = self.code
        if self.function is None:
            return ", ".join([*(f"_cell{i}" for i in range(len(code.co_freevars))), *map(variable, parameters(code))])
        names = [*map(variable, parameters(code))]
        count, posonly = code.co_argcount, code.co_posonlyargcount
        parts = names[:count]
        defaults = len(self.function.__defaults__ or ())
        parts = [f"{n}=None" if i >= count - defaults else n for i, n in enumerate(parts)]
        if posonly:
            parts.insert(posonly, "/")
        at = count + code.co_kwonlyargcount
        keyword = names[count:at]
        if code.co_flags & VARARGS:
            parts.append("*" + names[at])
            at += 1
        elif keyword:
            parts.append("*")
        given = {*map(variable, self.function.__kwdefaults__ or {})}
        parts += [f"{n}=None" if n in given else n for n in keyword]
        if code.co_flags & VARKEYWORDS:
            parts.append("**" + names[at])
        return ", ".join(parts)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The values of its parameters in a call.

        Raises:
            TypeError: the function does not take such arguments; in Python's words.
        """
        namespace: dict[str, Any] = {}
        exec(f"def bind({self.signature()}): return locals()", namespace)
        binder = namespace["bind"]
        binder.__qualname__ = self.name
        self.lend(binder)
        bound: dict[str, Any] = binder(*args, **kwargs)
        return bound


def parameters(code: types.CodeType) -> tuple[str, ...]:
    """All parameter names, ``*args`` and ``**kwargs`` included, in ``co_varnames`` order."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & VARARGS) + bool(code.co_flags & VARKEYWORDS)
    return code.co_varnames[:count]
