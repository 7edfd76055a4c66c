"""Settings: one typed object, patched for a while or set from the environment.

``jitney.config.cache_size_limit = 16`` sets a field for the process, ``with jitney.config.patch(...)`` for a while,
``JITNEY_CACHE_SIZE_LIMIT=16`` from outside. Reading a field is a plain attribute access.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal, get_origin, get_type_hints

from jitney._util.callers import warn
from jitney._util.type_check import has_type, show
from jitney.errors import InvalidOption, nearest

_PREFIX = "JITNEY_"


Limits = tuple[float, float | None]  # the least and the most; None: as much as one likes


def _setting(default: Any, doc: str, limits: Limits | None = None, *, tools: bool = False) -> Any:
    """A field; ``tools``: an extension does its work (``jitney_settings``), such as that of jitney-tools."""
    return dataclasses.field(default=default, metadata={"doc": doc, "limits": limits, "tools": tools})


@dataclasses.dataclass
class Config:
    """Every setting of the process; see the documentation of each field with ``jitney doctor``.

    Assigning an unknown field or a value of the wrong type or out of range raises ``InvalidOption``.
    """

    cache_size_limit: int = _setting(
        8, "entries kept per compiled callable and group of source lines; past it, calls run eagerly", (0, None)
    )
    suppress_errors: bool = _setting(
        False, "where capture, AOT or a backend fails, warn and run the frame eagerly, or the graph as it was captured"
    )
    progress: bool = _setting(True, "on a terminal, a line says what is compiled once that takes over two seconds")
    verbose: bool = _setting(False, "print internal tracebacks along with messages")
    debug_function: str = _setting("", "compile only functions of this name; everything else runs eagerly; empty: all")
    repro_after: Literal["", "capture", "aot"] = _setting(
        "",
        "write graphs that fail, for `jitney minify`: as captured, or those that AOT makes for the backend",
        tools=True,
    )
    repro_level: int = _setting(
        2,
        "which graphs: 1 those that raise, as they are; 2 those, to be minified; 3 every graph, before it is compiled; "
        "4 also those with wrong numbers",
        (1, 4),
    )
    minifier_seconds: float = _setting(
        60.0, "how long a graph is made smaller; what is found by then is written", (0, None)
    )
    minifier_try_seconds: float = _setting(
        30.0,
        "how long one compiled graph may take when it is minified or bisected: longer is a graph that hangs",
        (0, None),
    )
    replay_record_enabled: bool = _setting(
        False, "write a record of a frame whose capture failed, for `jitney replay`", tools=True
    )
    replay_record_data: bool = _setting(False, "such a record has the numbers of tensors, too")
    automatic_dynamic_shapes: bool = _setting(True, "a size, int or float that takes a second value becomes symbolic")
    capture_scalar_outputs: bool = _setting(
        False,
        "numbers read from tensors (item, int, float, tolist) stay in the graph; torch's optimizers' always do",
    )
    capture_dynamic_output_shape_ops: bool = _setting(
        False,
        "operators whose result's size depends on data (nonzero, masks, unique) stay in the graph even where more than "
        "themselves runs as captured for it",
    )
    assume_static_by_default: bool = _setting(True, "sizes are constants until they change or are marked dynamic")
    activation_memory_budget: float = _setting(
        1.0,
        "what a forward keeps for its backward: 1 what makes it fast, 0 the least; the rest is computed again",
        (0, 1),
    )
    max_trace_steps: int = _setting(
        2_000_000, "instructions interpreted in one frame before it is left eager", (1, None)
    )
    error_on_recompile: bool = _setting(
        False, "a call that no compiled form fits, of something compiled before, raises RecompileError"
    )
    base_dir: str = _setting("jitney_compile_debug", "the folder where debug files go")
    compile_debug: bool = _setting(
        False, "write what is compiled into a folder below base_dir; `jitney report` makes a page of it", tools=True
    )
    watch: bool = _setting(False, "tell `jitney watch` what is compiled, in a file for this user alone", tools=True)
    trace_fx_graph: bool = _setting(True, "debug folder: captured graphs, readable")
    trace_fx_graph_runnable: bool = _setting(True, "debug folder: captured graphs as programs that run")
    trace_fx_graph_transformed: bool = _setting(True, "debug folder: graphs as extensions have changed them")
    trace_aten_graphs: bool = _setting(True, "debug folder: joint, forward, backward and inference graphs")
    trace_ir_pre_fusion: bool = _setting(True, "debug folder: loops before fusion")
    trace_ir_post_fusion: bool = _setting(True, "debug folder: kernels after fusion")
    trace_output_code: bool = _setting(True, "debug folder: what was generated, by us and by backends")
    trace_graph_svg: bool = _setting(True, "debug folder: graphs as pictures")
    trace_debug_log: bool = _setting(True, "debug folder: debug.log, with all that JITNEY_LOGS can show")
    profiler_markers: bool = _setting(
        False, "what is compiled from now on names its graphs, kernels and operators to torch's profiler, one by one"
    )
    cache_dir: str = _setting(
        "", "the folder of what later processes use again, such as compiled kernels; empty: the user's cache folder"
    )
    cache: bool = _setting(True, "what is captured and compiled is kept on disk, and later processes begin with it")
    plugins_disabled: str = _setting("", 'comma-separated backends and extensions never to import, or "all"')
    trace_numpy: bool = _setting(True, "functions of NumPy on arrays are captured as operations on tensors")
    verify: bool = _setting(False, "check every intermediate representation after each pass")
    logs: str = _setting("", 'what to log, as in "capture,+guards,recompiles"; see set_logs')

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _TYPES:
            hint = nearest(name, _TYPES) or "`jitney doctor` lists every setting"
            raise InvalidOption(f"config has no field {name!r}", hint=hint, phase="config")
        if not _is_valid(name, value):
            hint = f"config.{name} = {_default(name)!r}, the default"
            raise InvalidOption(f"config.{name} is {wanted(name)}, got {value!r}", hint=hint, phase="config")
        object.__setattr__(self, name, value)

    @property
    def trace(self) -> Switches:
        """What a debug folder gets: ``config.trace.graph_svg`` is the field ``trace_graph_svg``."""
        return Switches(self, "trace_")

    def patch(self, **changes: Any) -> Patch:
        """Set fields until the ``with`` block or the decorated function ends; all threads see it."""
        return Patch(self, changes)

    def load_environment(self, environ: Mapping[str, str]) -> dict[str, InvalidOption]:
        """Set each field whose variable ``JITNEY_<FIELD>`` is present; by variable, what is wrong with it.

        A field whose variable does not fit stays as it is.
        """
        problems = {}
        for name in _TYPES:
            text = environ.get(variable(name))
            if text is None:
                continue
            try:
                setattr(self, name, _parse(name, text))
            except ValueError:
                problems[variable(name)] = _refused(name, text)
        return problems


class Switches:
    """The fields of a ``Config`` that begin with a prefix, without it: to read and to write."""

    __slots__ = ("_config", "_prefix")

    def __init__(self, config: Config, prefix: str) -> None:
        object.__setattr__(self, "_config", config)
        object.__setattr__(self, "_prefix", prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, self._prefix + name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._config, self._prefix + name, value)


# The annotations are strings here (postponed evaluation); __setattr__ needs the types.
_TYPES: dict[str, Any] = {}
_TYPES.update(get_type_hints(Config))
_FIELDS = {field.name: field for field in dataclasses.fields(Config)}
SETTINGS_OF_TOOLS = tuple(name for name, field in _FIELDS.items() if field.metadata["tools"])


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


def wanted(name: str) -> str:
    """What a field takes, for people: ``a float from 0 to 1``."""
    low, high = _FIELDS[name].metadata["limits"] or (None, None)
    limits = "" if low is None else f" of at least {low}" if high is None else f" from {low} to {high}"
    if get_origin(_TYPES[name]) is Literal:
        return f"one of {show(_TYPES[name])}"
    return f"{'an' if _TYPES[name] is int else 'a'} {show(_TYPES[name])}{limits}"


def _is_valid(name: str, value: Any) -> bool:
    low, high = _FIELDS[name].metadata["limits"] or (None, None)
    if not has_type(value, _TYPES[name]):
        return False
    return (low is None or value >= low) and (high is None or value <= high)


def _default(name: str) -> Any:
    return _FIELDS[name].default


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def _parse(name: str, text: str) -> object:
    """The value that a variable's text says; ``ValueError`` if it is none for this field."""
    annotation, value = _TYPES[name], text.strip().lower()
    if annotation is str:
        return text
    if get_origin(annotation) is Literal:
        if not _is_valid(name, value):
            raise ValueError(text)
        return value
    if annotation is bool:
        if value not in _TRUE + _FALSE:
            raise ValueError(text)
        return value in _TRUE
    number = int(value) if annotation is int else float(value)
    if not _is_valid(name, number):
        raise ValueError(text)
    return number


def _refused(name: str, text: str) -> InvalidOption:
    default = int(_default(name)) if _TYPES[name] is bool else _default(name)
    return InvalidOption(
        f"environment variable {variable(name)} is {wanted(name)}, got {text!r}",
        hint=f"{variable(name)}={default}, the default",
        phase="config",
    )


config = Config()
for _problem in config.load_environment(os.environ).values():
    warn(f"{_problem}\n(the default is used)")
