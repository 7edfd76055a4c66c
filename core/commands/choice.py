"""Which backend a command is about, and its options: ``--backend`` and ``--option``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from jitney.errors import JitneyError

_WORDS = {"True": True, "False": False, "None": None}


def add_backend(parser: argparse.ArgumentParser, otherwise: str = "auto") -> None:
    """Add the arguments ``--backend`` and ``--option`` to a command; ``otherwise``: what it takes without them."""
    parser.add_argument(
        "--backend",
        help="a name, or MODULE:OBJECT of one that is not installed (default: that of the function, if it is compiled "
        f"already, with its options; else {otherwise})",
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the backend; may be repeated"
    )


def load_backend(text: str | None, phase: str) -> Any:
    """A name as it is, or the object that ``MODULE:OBJECT`` leads to; None for None.

    Raises:
        JitneyError: there is no such module or object.
    """
    owner, _, path = (text or "").partition(":")
    if not path:
        return text
    if "" not in sys.path:  # as `python` does; it stays there: backends import when they compile, too
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(owner)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        hint = "MODULE:OBJECT, as in my_backend:compile"
        raise JitneyError(f"--backend {text}: {error}", hint=hint, phase=phase) from error
    return found


def load_options(texts: Sequence[str], phase: str) -> dict[str, Any] | None:
    """The options: numbers, True, False and None as such, anything else as text; None if there are none.

    Raises:
        JitneyError: one is not ``NAME=VALUE``.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise JitneyError(f"--option {text} is not NAME=VALUE", hint="--option mode=max-autotune", phase=phase)
        found[name] = _value(value)
    return found or None


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
