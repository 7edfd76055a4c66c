"""Calling an extension: what it raises, or returns against its hook's description, is an error that names it.

The core looks at no program itself: where no extension does what the user asks for, the user is told what to install.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pluggy
import torch
from torch import fx

from jitney import events
from jitney._util import callers
from jitney.backends.backend import CompileRequest
from jitney.backends.hookspecs import BisectReport, FailedFrame, GraphCheck, TrainingRun
from jitney.backends.registry import registry
from jitney.config import SETTINGS_OF_TOOLS, config
from jitney.errors import BackendFailed, JitneyError, PluginError


@dataclass(frozen=True)
class Extended:
    """One extension's implementation of one hook, for one graph.

    Args:
        hook: its name.
        implementation: as pluggy has it.
        request: of the graph.
        package: of the extension; empty for one of this process.
    """

    hook: str
    implementation: pluggy.HookImpl
    request: CompileRequest
    package: str = ""

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call it with those of the arguments that it takes.

        Raises:
            BackendFailed: it raised; a ``JitneyError`` is raised as it is.
        """
        with events.phase(f"extension {self.implementation.plugin_name}", self.request.frame):
            return self.run(self.implementation.function, *[arguments[n] for n in self.implementation.argnames])

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call something of the extension's; see ``call``."""
        try:
            return function(*arguments)
        except JitneyError:
            raise
        except Exception as error:
            raise self.failed(f"raised {type(error).__name__}: {error}") from error

    def failed(self, what: str) -> BackendFailed:
        """What to raise, having found that it did ``what``."""
        name = self.implementation.plugin_name
        return BackendFailed(
            f"{what} (in {self.hook}, while compiling the {self.request.kind} graph of {self.request.frame})",
            user_stack=self.request.user_stack,
            hint=f"JITNEY_PLUGINS_DISABLED={name}, to do without it" if self.package else "",
            phase=f"extension {name}" + (f" of package {self.package}" if self.package else ""),
        )


# ------------------------------------------------------------------ graphs


@dataclass(frozen=True)
class Form:
    """What extensions may not change of a graph: how many inputs, and what outputs it has."""

    inputs: int
    outputs: tuple[Any, ...]

    @classmethod
    def of(cls, graph: fx.GraphModule) -> Form:
        """Of a graph whose nodes know their FakeTensors."""
        placeholders = sum(node.op == "placeholder" for node in graph.graph.nodes)
        return cls(placeholders, tuple(map(_fake, _returned(graph))))


def transformed(extended: Extended, graph: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """What an extension makes of a graph (``jitney_transform_graph``, ``jitney_transform_aten``).

    Raises:
        BackendFailed: it raised, or returned something else than a whole graph of the same inputs and outputs.
    """
    form = Form.of(graph)
    found = extended.call({"graph": graph, "inputs": inputs, "request": extended.request})
    if found is None:
        return graph
    if not isinstance(found, fx.GraphModule):
        raise extended.failed(f"returned a {type(found).__name__}, not a GraphModule")
    try:
        found.graph.lint()
        found.recompile()
    except Exception as error:  # whatever it is that fx finds
        raise extended.failed(f"returned a broken graph: {error}") from error
    wrong = _difference(form, Form.of(found), extended.request.variant is not None)
    if wrong:
        raise extended.failed(f"returned another graph than it was given: {wrong}")
    return found


def _returned(graph: fx.GraphModule) -> Sequence[Any]:
    returned: Any = graph.graph.output_node().args[0]
    return returned if isinstance(returned, (tuple, list)) else (returned,)


def _fake(value: Any) -> Any:
    return value.meta.get("val", value.meta.get("example_value", ...)) if isinstance(value, fx.Node) else value


def _difference(old: Form, new: Form, may_add: bool) -> str:
    """What is not as it was; empty if nothing is. A form of the backward may make gradients where there were none."""
    if old.inputs != new.inputs:
        return f"it has {new.inputs} inputs, not {old.inputs}"
    if len(old.outputs) != len(new.outputs):
        return f"it has {len(new.outputs)} outputs, not {len(old.outputs)}"
    for number, (before, now) in enumerate(zip(old.outputs, new.outputs, strict=True)):
        if not isinstance(before, torch.Tensor) or not isinstance(now, torch.Tensor):
            if (before is None) != (now is None) and not (before is None and may_add) and ... not in (before, now):
                return f"output {number} is {_shown(now)}, not {_shown(before)}"
            continue
        sizes = zip(before.shape, now.shape, strict=False)
        fixed = all(a == b for a, b in sizes if type(a) is int and type(b) is int)
        if (before.dtype, before.device, before.dim()) != (now.dtype, now.device, now.dim()) or not fixed:
            return f"output {number} is {_shown(now)}, not {_shown(before)}"
    return ""


def _shown(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{value.dtype}[{', '.join(map(str, value.shape))}] on {value.device}"


# ------------------------------------------------------------------ training


class WatchedRun:
    """One run of a training graph, as an extension watches it; see ``TrainingRun``.

    Raises:
        BackendFailed: the extension's own raised, or has not what a ``TrainingRun`` has.
    """

    __slots__ = ("extended", "run")

    def __init__(self, extended: Extended, run: TrainingRun) -> None:
        self.extended = extended
        self.run = run

    @property
    def variant(self) -> Hashable:
        """As the extension says."""
        found = self.extended.run(getattr, self.run, "variant")
        self.extended.run(hash, found)
        return found

    def finished(self, gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        """What the extension makes of the gradients."""
        found = self.extended.run(self.run.finished, gradients)
        kinds = [type(g).__name__ for g in found] if isinstance(found, tuple) else [type(found).__name__]
        wanted = [isinstance(g, torch.Tensor) for g in gradients]
        if not isinstance(found, tuple) or [isinstance(g, torch.Tensor) for g in found] != wanted:
            raise self.extended.failed(f"made {', '.join(kinds) or 'nothing'} of {len(gradients)} gradients")
        return found


def watched(extended: Extended) -> Callable[[], WatchedRun | None] | None:
    """What is called at each run of a training graph, if the extension watches it (``jitney_watch_training``)."""
    started = extended.call({"request": extended.request})
    if started is None:
        return None
    if not callable(started):
        raise extended.failed(f"returned a {type(started).__name__}, which is not callable")

    def start() -> WatchedRun | None:
        run = extended.run(started)
        return None if run is None else WatchedRun(extended, run)

    return start


# ------------------------------------------------------------------ tools: what looks at programs and changes nothing

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
