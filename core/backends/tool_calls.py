"""Calling the extensions that look at programs: graph checks, failed captures, bisection, settings of theirs.

The core does none of this itself: where nobody does what is asked for, the user is told what to install.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pluggy
from torch import fx

from jitney._util import callers
from jitney.backends.backend import CompileRequest
from jitney.backends.extension_calls import Extended
from jitney.backends.hookspecs import BisectReport, FailedFrame, GraphCheck
from jitney.backends.registry import registry
from jitney.config import SETTINGS_OF_TOOLS, config
from jitney.errors import JitneyError, PluginError

INSTALL = "pip install 'jitney[tools]'"


def warn_of_settings() -> None:
    """Warn of settings that are on and that no extension does the work of."""
    on = [name for name in SETTINGS_OF_TOOLS if getattr(config, name)]
    if on:
        hook = "jitney_settings"
        done = {name for implementation in registry.implementations(hook) for name in _call(hook, implementation, {})}
        for name in on:
            if name not in done:
                callers.warn(f"config.{name} does nothing: no extension that is loaded does its work\ntry: {INSTALL}")


def require(hook: str, what: str) -> None:
    """Raise ``PluginError`` if no extension has the hook that ``what``, which the user has asked for, needs."""
    if not registry.implementations(hook):
        raise PluginError(f"{what} needs an extension with the hook {hook}, and none is loaded", hint=INSTALL)


def graph_check(
    graph: fx.GraphModule, inputs: Sequence[Any], backend: Any, request: CompileRequest
) -> GraphCheck | None:
    """What looks at a graph that is about to be compiled; see ``jitney_check_graph``.

    Raises:
        BackendFailed: an extension raised, or returned something else; a ``JitneyError`` is raised as it is.
    """
    arguments = {"graph": graph, "inputs": inputs, "backend": backend, "request": request}
    for implementation in registry.implementations("jitney_check_graph"):
        package = registry.extension_package(implementation.plugin_name)
        extended = Extended("jitney_check_graph", implementation, request, package)
        found = extended.call(arguments)
        if isinstance(found, GraphCheck):
            return found
        if found is not None:
            raise extended.failed(f"returned a {type(found).__name__}, which is no GraphCheck")
    return None


def capture_failed(frame: FailedFrame) -> None:
    """Tell the extensions of a frame that cannot be captured; see ``jitney_capture_failed``."""
    for implementation in registry.implementations("jitney_capture_failed"):
        try:
            _call("jitney_capture_failed", implementation, {"frame": frame})
        except JitneyError as error:  # the program goes on as it would if nobody looked
            callers.warn(str(error))


def bisected(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    backend: Any,
    options: Mapping[str, Any] | None,
) -> BisectReport | None:
    """Which step of compiling makes a call go wrong; see ``jitney_bisect``.

    Raises:
        PluginError: no extension bisects, or one raised; a ``JitneyError`` is raised as it is.
    """
    require("jitney_bisect", "explain(..., bisect=True)")
    arguments = {"function": function, "args": args, "kwargs": kwargs, "backend": backend, "options": options}
    reports = (_call("jitney_bisect", found, arguments) for found in registry.implementations("jitney_bisect"))
    return next((report for report in reports if report is not None), None)


def _call(hook: str, implementation: pluggy.HookImpl, arguments: Mapping[str, Any]) -> Any:
    try:
        return implementation.function(*[arguments[name] for name in implementation.argnames])
    except JitneyError:
        raise
    except Exception as error:
        raise registry.extension_error(hook, implementation, error) from error
