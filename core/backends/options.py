"""From the user's ``options={...}`` and ``mode=`` to the backend's dataclass, or an error that says what is valid."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_type_hints

from jitney._util import callers
from jitney._util.type_check import has_type, show
from jitney.backends.backend import Backend, ExtensionOptions
from jitney.errors import InvalidOption, nearest

# torch.compile's. "default" is the backend's own choice.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def check_kinds(options: object, mode: object) -> None:
    """Raise ``InvalidOption`` if ``options`` is no dictionary or ``mode`` is none of torch.compile's modes."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOption(f"options={options!r:.100} is no dictionary", hint='options={"name": value}')
    if mode is not None and mode not in MODES:
        listing = f"one of {', '.join(map(repr, MODES))}"
        hint = nearest(mode, MODES) if isinstance(mode, str) else ""
        raise InvalidOption(f"mode={mode!r:.100} is not {listing}", hint=hint or listing)


def take_extensions(
    backends: Sequence[Backend], options: Mapping[str, Any], owners: Mapping[str, type]
) -> tuple[dict[str, Any], ExtensionOptions]:
    """Part the user's options: what is left for the backends, and what extensions own, as instances.

    Args:
        backends: those chosen; a name that one of them has is theirs.
        options: what the user wrote in ``options=``.
        owners: by extension: the dataclass of its options.

    Raises:
        InvalidOption: a value that an extension's option cannot have; a name that two extensions own.
    """
    left = dict(options)
    taken = {f.name for b in backends if b.options is not None for f in dataclasses.fields(b.options)}
    given: dict[type, Any] = {}
    claimed: dict[str, str] = {}
    for name, owned in owners.items():
        own = {f.name for f in dataclasses.fields(owned)} - taken
        for option in own & options.keys():
            if claimed.setdefault(option, name) != name:
                raise InvalidOption(
                    f"option {option!r} is owned by two extensions, {claimed[option]!r} and {name!r}",
                    hint=f"config.plugins_disabled={name!r}, to do without one of them",
                )
            left.pop(option)
        if own & options.keys():
            given[owned] = _filled(f"extension {name!r}", owned, {k: v for k, v in options.items() if k in own})
    return left, ExtensionOptions(given)


def validate(
    backend: Backend, options: Mapping[str, Any] | None, mode: str | None = None, others: Iterable[str] = ()
) -> Any:
    """An instance of ``backend.options``; None if the backend has no options and none were given.

    Args:
        backend: whose options they are.
        options: what the user wrote in ``options=``.
        mode: what the user wrote in ``mode=``. A backend whose dataclass has a field ``mode`` gets it there; for
            another it does nothing, and a warning says so. ``default`` leaves the field as it is.
        others: names that extensions own, for the hint.

    Raises:
        InvalidOption: an option that does not exist, a value of the wrong type, two modes.
    """
    modes = backend.options is not None and any(f.name == "mode" for f in dataclasses.fields(backend.options) if f.init)
    given = _with_mode(backend.name, dict(options or {}), mode, modes)
    if backend.options is None:
        if given:
            taken = f"backend {backend.name!r} takes no options"
            hint = next(filter(None, (nearest(name, others) for name in given if isinstance(name, str))), "no options=")
            raise InvalidOption(f"{taken}, got {', '.join(map(repr, given))}", hint=hint)
        return None
    return _filled(f"backend {backend.name!r}", backend.options, given, others)


def _filled(owner: str, options: type, given: Mapping[str, Any], others: Iterable[str] = ()) -> Any:
    """An instance of a dataclass of options; ``owner`` is whose they are, for messages."""
    types = get_type_hints(options)
    fields = {field.name: field for field in dataclasses.fields(options) if field.init}
    for name, value in given.items():
        if name not in fields:
            hint = nearest(name, [*fields, *others]) if isinstance(name, str) else ""
            hint = hint or (f"one of {', '.join(map(repr, fields))}" if fields else "no options=")
            raise InvalidOption(f"{owner} has no option {name!r}; {_listing(fields, types)}", hint=hint)
        if not has_type(value, types[name]):
            wrong = f"option {name!r} of {owner} is {show(types[name])}, got {value!r}"
            raise InvalidOption(f"{wrong}; {_listing(fields, types)}", hint=_defaults(fields, [name]))
    try:
        return options(**given)
    except (TypeError, ValueError) as error:  # the dataclass's own __post_init__ refuses
        raise InvalidOption(f"{owner} refuses its options: {error}", hint=_defaults(fields, given)) from error


def validate_all(
    backends: Sequence[Backend], options: Mapping[str, Any] | None, mode: str | None = None, others: Iterable[str] = ()
) -> list[Any]:
    """``validate`` for each of several backends: an option goes to all that have it, a mode to all that have modes.

    Raises:
        InvalidOption: as ``validate`` does; an option that none of them has.
    """
    if len(backends) == 1:
        return [validate(backends[0], options, mode, others)]
    given = dict(options or {})
    known = [{f.name for f in dataclasses.fields(b.options)} if b.options is not None else set() for b in backends]
    unknown = [name for name in given if not any(name in names for names in known)]
    if unknown:
        everything = sorted(set().union(*known))
        listing = f"one of {', '.join(map(repr, everything))}" if everything else "no options="
        raise InvalidOption(
            f"none of the backends {', '.join(b.name for b in backends)} has an option {unknown[0]!r}",
            hint=nearest(str(unknown[0]), [*everything, *others]) or listing,
        )
    if mode not in (None, "default") and not any("mode" in names for names in known):
        warn_of_mode("+".join(b.name for b in backends), mode)
    return [
        validate(b, {k: v for k, v in given.items() if k in names}, mode if "mode" in names else None)
        for b, names in zip(backends, known, strict=True)
    ]


def _with_mode(backend: str, given: dict[str, Any], mode: str | None, has_modes: bool) -> dict[str, Any]:
    """The options, with the mode among them where the backend has modes."""
    if mode is None or mode == "default":
        return given
    if not has_modes:
        warn_of_mode(backend, mode)
        return given
    if given.get("mode", mode) != mode:
        both = f"mode={mode!r} and options={{'mode': {given['mode']!r}}}"
        raise InvalidOption(f"{both} are two modes", hint="one of the two")
    return {**given, "mode": mode}


def warn_of_mode(backend: str, mode: str | None) -> None:
    """Tell the user that this backend has no modes."""
    callers.warn(f"backend {backend!r} has no modes: mode={mode!r} does nothing")


def _defaults(fields: Mapping[str, dataclasses.Field[Any]], names: Iterable[str]) -> str:
    return f"options={ {name: default_of(fields[name]) for name in names} }, as by default"


def _listing(fields: Mapping[str, dataclasses.Field[Any]], types: Mapping[str, Any]) -> str:
    rows = [f"  {name}: {show(types[name])} = {default_of(field)!r}" for name, field in fields.items()]
    return "\n".join(["valid options:", *rows]) if rows else "it has no options"


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The value of an option that nobody gave."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
