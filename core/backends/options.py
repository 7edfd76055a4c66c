"""From the user's ``options={...}`` to an instance of the backend's dataclass, or an error that lists what is valid."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

from jitney.backends.backend import Backend
from jitney.errors import InvalidOption, nearest
from jitney.fits import fits, show


def validate(backend: Backend, options: Mapping[str, Any] | None) -> Any:
    """An instance of ``backend.options``; None if the backend has no options and none were given.

    Raises:
        InvalidOption: an option that does not exist or a value of the wrong type.
    """
    given = dict(options or {})
    if backend.options is None:
        if given:
            raise InvalidOption(f"backend {backend.name!r} takes no options, got {', '.join(map(repr, given))}")
        return None
    types = get_type_hints(backend.options)
    fields = {field.name: field for field in dataclasses.fields(backend.options) if field.init}
    for name, value in given.items():
        if name not in fields:
            hint = nearest(name, fields) if isinstance(name, str) else ""
            raise InvalidOption(
                f"backend {backend.name!r} has no option {name!r}; {_listing(fields, types)}", hint=hint
            )
        if not fits(value, types[name]):
            wrong = f"option {name!r} of backend {backend.name!r} is {show(types[name])}, got {value!r}"
            raise InvalidOption(f"{wrong}; {_listing(fields, types)}")
    try:
        return backend.options(**given)
    except (TypeError, ValueError) as error:  # the dataclass's own __post_init__ refuses
        raise InvalidOption(f"backend {backend.name!r} refuses its options: {error}") from error


def _listing(fields: Mapping[str, dataclasses.Field[Any]], types: Mapping[str, Any]) -> str:
    rows = [f"  {name}: {show(types[name])} = {_default(field)!r}" for name, field in fields.items()]
    return "\n".join(["valid options:", *rows]) if rows else "it has no options"


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
