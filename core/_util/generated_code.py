"""Functions made of text: debuggers and tracebacks find the text, for as long as the function lives."""

from __future__ import annotations

import keyword
import linecache
import unicodedata
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


def is_name(text: str) -> bool:
    """Does this, as a name in Python text, mean itself? The parser takes keywords, and reads other letters for some."""
    fits = text.isidentifier() and not keyword.iskeyword(text) and text != "__debug__"
    return fits and (text.isascii() or unicodedata.normalize("NFKC", text) == text)


def variable(name: str) -> str:
    """What text calls a variable of the program's: its name, but for those that no text can say (pytest makes some)."""
    return name if is_name(name) else f"_n{name.encode('utf-8', 'surrogatepass').hex()}"


def build(source: str, filename: str, namespace: dict[str, Any], name: str) -> FunctionType:
    """Run ``source`` in ``namespace``; the function that it defines as ``name``, taken out of the namespace.

    Args:
        source: Python text.
        filename: what tracebacks show; unique in the process.
        namespace: the function's globals.
        name: which of the functions that the text defines.
    """
    filename = filename.replace("\0", "\\0")  # a name of the program's is part of it
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    function: FunctionType = namespace.pop(name)
    _texts[function] = Text(source, name)
    weakref.finalize(function, linecache.cache.pop, filename, None).atexit = False
    return function


def text_of(function: FunctionType) -> Text | None:
    """What ``build`` made a function of; None for any other."""
    return _texts.get(function)
