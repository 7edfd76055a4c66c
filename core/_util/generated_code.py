"""Functions made of text: debuggers and tracebacks find the text, for as long as the function lives."""

from __future__ import annotations

import linecache
import weakref
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True)
class Text:
    """What a function was made of: ``source`` defines it as ``name``."""

    source: str
    name: str


_texts: weakref.WeakKeyDictionary[FunctionType, Text] = weakref.WeakKeyDictionary()


def build(source: str, filename: str, namespace: dict[str, Any], name: str) -> FunctionType:
    """Run ``source`` in ``namespace``; the function that it defines as ``name``, taken out of the namespace.

    Args:
        source: Python text.
        filename: what tracebacks show; unique in the process.
        namespace: the function's globals.
        name: which of the functions that the text defines.
    """
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    function: FunctionType = namespace.pop(name)
    _texts[function] = Text(source, name)
    weakref.finalize(function, linecache.cache.pop, filename, None).atexit = False
    return function


def text_of(function: FunctionType) -> Text | None:
    """What ``build`` made a function of; None for any other."""
    return _texts.get(function)
