"""Settings: one typed object, patched for a while or set from the environment.

``jitney.config.cache_size_limit = 16`` sets a field for the process, ``with jitney.config.patch(...)`` for a while,
``JITNEY_CACHE_SIZE_LIMIT=16`` from outside. Reading a field is a plain attribute access.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any, get_type_hints

from jitney.errors import InvalidOption, nearest
from jitney.fits import fits, show

_PREFIX = "JITNEY_"


def _setting(default: Any, doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"doc": doc})


@dataclasses.dataclass
class Config:
    """Every setting of the process; see the documentation of each field with ``jitney doctor``.

    Assigning an unknown field or a value of the wrong type raises ``InvalidOption``.
    """

    cache_size_limit: int = _setting(
        8, "entries kept per compiled callable and group of source lines; past it, calls run eagerly"
    )
    suppress_errors: bool = _setting(False, "when capture fails by a bug of ours, run the frame eagerly")
    verbose: bool = _setting(False, "print internal tracebacks along with messages")
    automatic_dynamic_shapes: bool = _setting(True, "a size, int or float that takes a second value becomes symbolic")
    capture_scalar_outputs: bool = _setting(
        False, "Tensor.item() of a float stays in the graph, for arithmetic; torch's own optimizers always do so"
    )
    assume_static_by_default: bool = _setting(True, "sizes are constants until they change or are marked dynamic")
    activation_memory_budget: float = _setting(
        1.0, "what a forward keeps for its backward: 1 what makes it fast, 0 the least; the rest is computed again"
    )
    max_trace_steps: int = _setting(2_000_000, "instructions interpreted in one frame before it is left eager")
    base_dir: str = _setting("jitney_compile_debug", "the folder where debug files go")
    plugins_disabled: str = _setting("", 'comma-separated backends and extensions never to import, or "all"')
    verify: bool = _setting(False, "check every intermediate representation after each pass")
    logs: str = _setting("", 'what to log, as in "capture,+guards,recompiles"; see set_logs')

    def __setattr__(self, name: str, value: object) -> None:
        annotation = _TYPES.get(name)
        if annotation is None:
            raise InvalidOption(f"config has no field {name!r}", hint=nearest(name, _TYPES), phase="config")
        if not fits(value, annotation):
            raise InvalidOption(f"config.{name} is {show(annotation)}, got {value!r}", phase="config")
        object.__setattr__(self, name, value)

    def patch(self, **changes: Any) -> Patch:
        """Set fields until the ``with`` block or the decorated function ends; all threads see it."""
        return Patch(self, changes)

    def load_environment(self, environ: Mapping[str, str]) -> None:
        """Set each field whose variable ``JITNEY_<FIELD>`` is present; raises ``InvalidOption`` on a wrong value."""
        for name, annotation in _TYPES.items():
            text = environ.get(variable(name))
            if text is not None:
                setattr(self, name, _parse(variable(name), text, annotation))


# The annotations are strings here (postponed evaluation); __setattr__ needs the types.
_TYPES: dict[str, Any] = {}
_TYPES.update(get_type_hints(Config))


class Patch(contextlib.ContextDecorator):
    """What ``config.patch`` returns; may be entered again and again."""

    def __init__(self, config: Config, changes: dict[str, Any]) -> None:
        self._config = config
        self._changes = changes
        self._saved: list[dict[str, Any]] = []
        for name, value in changes.items():  # refuse now, not when a decorated function runs
            setattr(Config(), name, value)

    def __enter__(self) -> Config:
        self._saved.append({name: getattr(self._config, name) for name in self._changes})
        for name, value in self._changes.items():
            setattr(self._config, name, value)
        return self._config

    def __exit__(self, *exc: object) -> None:
        for name, value in self._saved.pop().items():
            setattr(self._config, name, value)


def variable(name: str) -> str:
    """The environment variable of a field."""
    return _PREFIX + name.upper()


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """``JITNEY_`` variables that no field reads, each with a hint (maybe empty): misspelt settings.

    ``JITNEY_TEST_`` variables are the test suites', jitney's own and those of backends: no setting begins so.
    """
    known = [variable(name) for name in _TYPES]
    found = [name for name in environ if name.startswith(_PREFIX) and not name.startswith(_PREFIX + "TEST_")]
    found = [name for name in found if name not in known]
    return {name: nearest(name, known) for name in sorted(found)}


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def _parse(name: str, text: str, annotation: Any) -> object:
    lower = text.strip().lower()
    if annotation is str:
        return text
    if annotation is bool and lower in _TRUE + _FALSE:
        return lower in _TRUE
    if annotation in (int, float):
        with contextlib.suppress(ValueError):
            return int(text) if annotation is int else float(text)
    raise InvalidOption(f"environment variable {name} is {show(annotation)}, got {text!r}", phase="config")


config = Config()
config.load_environment(os.environ)
