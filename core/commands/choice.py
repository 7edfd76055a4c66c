"""Which backend a command is about, and its options: ``--backend`` and ``--option``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from jitney.errors import JitneyError

_WORDS = {"True": True, "False": False, "None": None}


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the arguments ``--backend`` and ``--option`` to a command."""
    parser.add_argument(
        "--backend", default="auto", help="a name, or MODULE:OBJECT of one that is not installed (default: auto)"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the backend; may be repeated"
    )


def load_backend(text: str, phase: str) -> Any:
    """A name as it is, or the object that ``MODULE:OBJECT`` leads to.

    Raises:
        JitneyError: there is no such module or object.
    """
    owner, _, path = text.partition(":")
    if not path:
        return text
    sys.path.insert(0, "")  # as `python` does
    try:
        found: Any = importlib.import_module(owner)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        hint = "MODULE:OBJECT, as in my_backend:compile"
        raise JitneyError(f"--backend {text}: {error}", hint=hint, phase=phase) from error
    finally:
        sys.path.remove("")
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
