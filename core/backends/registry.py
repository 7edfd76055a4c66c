"""Which backends, extensions and handlers are installed: listed from metadata, imported only when asked for."""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
import logging
import re
import sys
import traceback
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Literal, TypeVar

import pluggy

from jitney import events
from jitney._util.distributions import SIBLINGS
from jitney._util.forks import reentrant_lock
from jitney.backends.backend import Backend, options_problem
from jitney.backends.hookspecs import GRAPH_HOOKS, HOOK_API_VERSION, PROJECT, Hooks
from jitney.config import config
from jitney.errors import BackendNotFound, PluginError, nearest

BACKENDS = f"{PROJECT}.backends"  # groups of entry points
EXTENSIONS = f"{PROJECT}.extensions"
HANDLERS = f"{PROJECT}.handlers"  # of functions that capture meets

Status = Literal["installed", "loaded", "broken", "disabled", "duplicate", "in-process"]
"""``installed``: not imported yet. ``duplicate``: of several packages. ``in-process``: by ``register_backend``."""

_log = logging.getLogger("jitney.plugins")
T = TypeVar("T")


@dataclass(frozen=True)
class Listing:
    """One row of ``jitney backends``."""

    name: str
    package: str
    version: str
    status: Status
    error: str = ""  # why it is not usable: a traceback if it failed to import
    entry_points: tuple[str, ...] = ()  # ``module:object``; several if ``duplicate``


class Registry:
    """Backends by name, and the extensions' hooks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        self._in_process: dict[str, Backend] = {}
        self._loaded: dict[str, Backend] = {}
        self._points: dict[str, dict[str, list[EntryPoint]]] = {}
        self._hooks: pluggy.PluginManager | None = None
        self._handlers: dict[str, Any] = {}
        self._errors: dict[tuple[str, str], str] = {}  # of what is left out, by group and name

    def register_backend(self, backend: Backend, *, replace: bool = False) -> None:
        """Make a backend known for the rest of the process; an existing name needs ``replace=True``."""
        with self._lock:
            if backend.name in self.names() and not replace:
                raise PluginError(f"there is a backend {backend.name!r} already", hint="register it with replace=True")
            self._in_process[backend.name] = backend

    def unregister_backend(self, name: str) -> None:
        """Undo ``register_backend``."""
        with self._lock:
            if self._in_process.pop(name, None) is None:
                raise BackendNotFound(f"no backend {name!r} was registered in this process")

    def names(self) -> list[str]:
        """Every known name, usable or not, sorted; imports nothing."""
        return sorted({*self._in_process, *self._entry_points(BACKENDS)})

    def usable(self) -> list[str]:
        """The names that may be asked for: not disabled, not claimed twice; imports nothing."""
        return [row.name for row in self.listings() if row.status in ("installed", "loaded", "in-process")]

    def get(self, name: str) -> Backend:
        """The backend of this name, imported now if it was not.

        Raises:
            BackendNotFound: nobody offers it.
            PluginError: it is disabled, offered by two packages, fails to import or has another hook version.
        """
        with self._lock:
            if name in self._in_process:
                return self._in_process[name]
            if name in self._loaded and not self._disabled_by(BACKENDS, name):
                return self._loaded[name]
            point = self._single_point(name)
            loaded = _load(point)
            if not isinstance(loaded, Backend):
                raise PluginError(f"{_describe(point)} is not a jitney.backends.Backend but {type(loaded).__name__}")
            if loaded.name != name:
                raise PluginError(f"{_describe(point)} calls itself {loaded.name!r}: the two names must be equal")
            self._loaded[name] = loaded
            return loaded

    def backend_package(self, backend: Backend) -> str:
        """The package that a backend came from; empty for one of this process."""
        known = self._loaded.get(backend.name)
        points = self._entry_points(BACKENDS).get(backend.name, [])
        return _packages(points) if points and known is not None and known.compile is backend.compile else ""

    def required_siblings(self, backend: Backend) -> list[str]:
        """Import names of the distributions released with the core that a backend's package itself requires."""
        points = self._entry_points(BACKENDS).get(backend.name, [])
        required = {name for point in points if point.dist for name in _required(point.dist.requires)}
        return [name for name in SIBLINGS if name in required]

    def listings(self, *, load: bool = False) -> list[Listing]:
        """One row per name; with ``load`` every plugin is imported, so that the broken ones show."""
        return [self._row(name, load) for name in self.names()]

    def extension_listings(self, *, load: bool = False) -> list[Listing]:
        """One row per extension; with ``load`` they are imported."""
        if load:
            self.hooks()
        loaded = () if self._hooks is None else dict(self._hooks.list_name_plugin())
        return self._rows(EXTENSIONS, loaded)

    def handlers(self, kind: type[T]) -> dict[str, T]:
        """What packages register for capture by name, imported now; one that fails is logged and left out."""
        with self._lock:
            acting = [name for name in self._entry_points(HANDLERS) if not self._disabled_by(HANDLERS, name)]
            for name in acting:
                if name not in self._handlers and (HANDLERS, name) not in self._errors:
                    self._load_or_leave_out(HANDLERS, name, functools.partial(self._add_handlers, kind))
            return {name: self._handlers[name] for name in acting if name in self._handlers}

    def handler_listings(self) -> list[Listing]:
        """One row for each name under which handlers are registered; imports nothing."""
        return self._rows(HANDLERS, self._handlers)

    def handler_packages(self, name: str) -> list[str]:
        """Import names of the packages that have handlers under this name; imports nothing."""
        return [point.module.partition(".")[0] for point in self._entry_points(HANDLERS)[name]]

    def hooks(self) -> pluggy.PluginManager:
        """The plugin manager, with all extensions loaded; an extension that fails is logged and left out."""
        with self._lock:
            if self._hooks is None:
                self._hooks = pluggy.PluginManager(PROJECT)
                self._hooks.add_hookspecs(Hooks)
                for name in self._entry_points(EXTENSIONS):
                    if not self._disabled_by(EXTENSIONS, name):
                        self._load_or_leave_out(EXTENSIONS, name, functools.partial(self._add_extension, self._hooks))
            return self._hooks

    def register_extension(self, extension: object, name: str | None = None) -> None:
        """Add an object with hook implementations for the rest of the process."""
        self._add_extension(self.hooks(), extension, name or str(getattr(extension, "__name__", repr(extension))))

    def unregister_extension(self, extension: object) -> None:
        """Undo ``register_extension``."""
        self.hooks().unregister(extension)

    def implementations(self, hook: str) -> list[pluggy.HookImpl]:
        """Who implements a hook, in the order in which they are called."""
        found: list[pluggy.HookImpl] = getattr(self.hooks().hook, hook).get_hookimpls()
        return found[::-1]  # pluggy keeps them last-called first

    def acting(self, hook: str) -> list[pluggy.HookImpl]:
        """``implementations``, without those of extensions that do not act now (``jitney_acts``)."""
        return [found for found in self.implementations(hook) if self._acts(found)]

    def changes_graphs(self) -> bool:
        """Does an extension act that may change graphs? Then what is on disk is not what would be compiled."""
        return any(self.acting(hook) for hook in GRAPH_HOOKS)

    def extension_options(self) -> dict[str, type]:
        """By extension: the dataclass of the options that it owns.

        Raises:
            PluginError: what it returned is no dataclass with a default for every field.
        """
        return {found.plugin_name: self._options_of(found) for found in self.implementations("jitney_options")}

    def options_of_extension(self, name: str) -> type | None:
        """The dataclass of the options that an extension owns; None if it owns none.

        Raises:
            PluginError: what it returned is no dataclass with a default for every field.
        """
        own = [found for found in self.implementations("jitney_options") if found.plugin_name == name]
        return self._options_of(own[0]) if own else None

    def _options_of(self, implementation: pluggy.HookImpl) -> type:
        try:
            options: Any = implementation.function()
        except Exception as error:
            raise self.extension_error("jitney_options", implementation, error) from error
        problem = options_problem(options, f"extension {implementation.plugin_name!r}")
        if problem:
            raise PluginError(problem)
        found: type = options
        return found

    def extension_package(self, name: str) -> str:
        """The package of an installed extension; empty for one of this process."""
        points = self._entry_points(EXTENSIONS).get(name, [])
        return _packages(points) if points else ""

    def extension_error(self, hook: str, implementation: pluggy.HookImpl, did: str | Exception) -> PluginError:
        """What to raise for what an extension did or raised in a hook that is about no graph."""
        what = f"raised {type(did).__name__}: {did}" if isinstance(did, Exception) else did
        name = implementation.plugin_name
        package = self.extension_package(name)
        hint = f"JITNEY_PLUGINS_DISABLED={name}, to do without it" if package else ""
        of = f" of package {package}" if package else ""
        return PluginError(f"extension {name!r}{of} {what} (in {hook})", hint=hint)

    def _acts(self, implementation: pluggy.HookImpl) -> bool:
        asked = getattr(implementation.plugin, "jitney_acts", None)
        try:
            return asked is None or bool(asked())
        except Exception as error:
            raise self.extension_error("jitney_acts", implementation, error) from error

    def _entry_points(self, group: str) -> dict[str, list[EntryPoint]]:
        if not self._points:  # the metadata of all packages is read once
            self._points = {BACKENDS: {}, EXTENSIONS: {}, HANDLERS: {}}
            installed = importlib.metadata.entry_points()
            for own, found in self._points.items():
                for point in installed.select(group=own):
                    found.setdefault(point.name, []).append(point)
        return self._points[group]

    def _disabled_by(self, group: str, name: str) -> str:
        """The entry of ``config.plugins_disabled`` that keeps this entry point from being imported; empty if none does.

        A disabled name is a promise that its module is not imported, so it takes what is in that module with it.
        """
        disabled = {part.strip() for part in config.plugins_disabled.split(",")} - {""}
        direct = next((entry for entry in ("all", name) if entry in disabled), "")
        if direct or not disabled:
            return direct
        mine = [f"{point.module}." for point in self._entry_points(group).get(name, ())]
        for known in (BACKENDS, EXTENSIONS, HANDLERS):
            for other in sorted(disabled & self._entry_points(known).keys()):
                theirs = tuple(f"{point.module}." for point in self._entry_points(known)[other])
                if any(module.startswith(theirs) for module in mine):
                    return other
        return ""

    def _single_point(self, name: str) -> EntryPoint:
        points = self._entry_points(BACKENDS).get(name)
        if not points:
            raise _not_found(name, self.names())
        disabled = self._disabled_by(BACKENDS, name)
        if disabled:
            why = "" if disabled in (name, "all") else f" needs the module of {disabled!r}, which"
            raise PluginError(
                f"backend {name!r}{why} is disabled by JITNEY_PLUGINS_DISABLED or config.plugins_disabled",
                hint=f"take {disabled!r} out of config.plugins_disabled={config.plugins_disabled!r}",
            )
        if len(points) > 1:
            raise PluginError(_conflict(name, points), hint=f"uninstall all but one of them: {_packages(points)}")
        return points[0]

    def _row(self, name: str, load: bool) -> Listing:
        if name in self._in_process:
            return Listing(name, "(this process)", self._in_process[name].version, "in-process")
        points = self._entry_points(BACKENDS)[name]
        package, version = _packages(points), ", ".join(_version(point) for point in points)
        places = tuple(point.value for point in points)
        if self._disabled_by(BACKENDS, name):
            return Listing(name, package, version, "disabled", entry_points=places)
        if len(points) > 1:
            return Listing(name, package, version, "duplicate", _conflict(name, points), places)
        if load:
            try:
                self.get(name)
            except PluginError as error:
                return Listing(name, package, version, "broken", _explain(error), places)
        return Listing(name, package, version, "loaded" if name in self._loaded else "installed", entry_points=places)

    def _rows(self, group: str, loaded: Container[str]) -> list[Listing]:
        """The rows of a group whose broken plugins are left out."""
        rows = []
        for name, points in sorted(self._entry_points(group).items()):
            error = self._errors.get((group, name), "")
            status: Status = "broken" if error else "loaded" if name in loaded else "installed"
            if self._disabled_by(group, name):
                status, error = "disabled", ""
            versions, places = ", ".join(map(_version, points)), tuple(point.value for point in points)
            rows.append(Listing(name, _packages(points), versions, status, error, places))
        return rows

    def _load_or_leave_out(self, group: str, name: str, add: Callable[[Any, str], None]) -> None:
        points = self._entry_points(group)[name]
        try:
            if len(points) > 1:
                raise PluginError(_conflict(name, points))
            add(_load(points[0]), name)
        except PluginError as error:
            self._errors[group, name] = _explain(error)
            what = group.rpartition(".")[2].removesuffix("s")
            _log.warning("%s %r of %s is left out: %s", what, name, _packages(points), error.reason)

    def _add_handlers(self, kind: type, found: Any, name: str) -> None:
        if not isinstance(found, kind):
            wanted = f"{kind.__module__}.{kind.__qualname__}"
            raise PluginError(f"handler {name!r} is not a {wanted} but {type(found).__name__}")
        self._handlers[name] = found

    def _add_extension(self, manager: pluggy.PluginManager, extension: object, name: str) -> None:
        try:
            manager.register(extension, name)
            manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            if manager.get_plugin(name) is extension:
                manager.unregister(extension)
            raise PluginError(f"extension {name!r} does not fit the hooks: {error}") from error
        if hasattr(extension, "jitney_observe"):
            events.subscribe(_Observer(manager, extension, name))


class _Observer:
    """Brings events to one extension, until it raises or is unregistered."""

    def __init__(self, manager: pluggy.PluginManager, extension: Any, name: str) -> None:
        self._manager, self._extension, self._name = manager, extension, name
        self._alive = True

    def __call__(self, event: events.Event) -> None:
        if not self._alive or not self._manager.is_registered(self._extension):
            return
        try:
            self._extension.jitney_observe(event)
        except Exception:
            self._alive = False
            _log.warning("extension %r raised in jitney_observe; it is not called again", self._name, exc_info=True)


def _load(point: EntryPoint) -> Any:
    """Import what the entry point names; everything that goes wrong is a ``PluginError`` that names the package."""
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{_describe(point)} failed to import: {type(error).__name__}: {error}",
            hint=f"repair or reinstall {_package(point)}; `jitney backends` shows the traceback",
        ) from error
    declared = getattr(loaded, "jitney_hook_api", getattr(sys.modules[point.module], "jitney_hook_api", None))
    _check_version(point, declared)
    return loaded


def _check_version(point: EntryPoint, declared: Any) -> None:
    """``declared`` is what the plugin says of the hook API: a version, or a tuple of those that it works with.

    Raises:
        PluginError: this version is not among them.
    """
    versions = declared if isinstance(declared, tuple) else (declared,)
    understood = [version for version in versions if type(version) is int]
    if HOOK_API_VERSION in understood:
        return
    said = "declares no jitney_hook_api" if declared is None else f"was written for hook API {declared!r}"
    newer = bool(understood) and min(understood) > HOOK_API_VERSION
    hint = "upgrade jitney, or " if newer else ""
    raise PluginError(
        f"{_describe(point)} {said}; this jitney has hook API {HOOK_API_VERSION}",
        hint=f"{hint}install a release of {_package(point)} made for this jitney",
    )


@functools.cache
def published() -> frozenset[str]:
    """The plugins that are released with the core, by name: those that its own package has extras for."""
    try:
        requirements = importlib.metadata.requires(PROJECT) or ()
    except importlib.metadata.PackageNotFoundError:
        return frozenset()
    names = _required(requirements) - {*SIBLINGS}
    return frozenset(n.removeprefix(f"{PROJECT}_") for n in names if n.startswith(f"{PROJECT}_"))


def _required(requirements: Iterable[str] | None) -> set[str]:
    """The packages that these lines of metadata require, by their names as Python would import them (PEP 503)."""
    names = (re.match(r"[\w.-]+", text) for text in requirements or ())
    return {re.sub(r"[-_.]+", "_", name[0]).lower() for name in names if name}


def _not_found(name: str, known: list[str]) -> BackendNotFound:
    missing = [plugin for plugin in published() if plugin not in known]
    hint = nearest(name, known)
    if not hint or name in missing:
        close = difflib.get_close_matches(name, missing, n=1)
        hint = f"pip install jitney-{close[0].replace('_', '-')}" if close else hint
    installed = ", ".join(known) or "none"
    return BackendNotFound(
        f"no installed package offers a backend {name!r} (installed: {installed})",
        hint=hint or "`jitney backends` lists what is installed",
    )


def _conflict(name: str, points: list[EntryPoint]) -> str:
    return f"{name!r} is offered by several packages: {_packages(points)}"


def _explain(error: PluginError) -> str:
    cause: BaseException = error.__cause__ or error
    return "".join(traceback.format_exception(cause)).rstrip() if error.__cause__ else str(error)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "(unknown package)"


def _version(point: EntryPoint) -> str:
    return point.dist.version if point.dist is not None else ""


def _packages(points: list[EntryPoint]) -> str:
    return ", ".join(sorted(map(_package, points)))


def _describe(point: EntryPoint) -> str:
    return f"{point.name!r} of package {_package(point)} (entry point {point.group}: {point.value})"


registry = Registry()


def list_backends(*, load: bool = False) -> list[Listing]:
    """Name, package, version and status of every backend; with ``load`` they are imported, so that failures show."""
    return registry.listings(load=load)


def register_backend(backend: Backend, *, replace: bool = False) -> None:
    """Make a backend known for the rest of the process; an existing name needs ``replace=True``."""
    registry.register_backend(backend, replace=replace)
