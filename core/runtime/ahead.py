"""Compiling before the first call: ``jitney.aot_compile``."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from jitney import events
from jitney._util import callers
from jitney.capture.interpreter.target import Target
from jitney.errors import describe_frame
from jitney.runtime import stance
from jitney.runtime.dispatch import Root
from jitney.runtime.wrappers import module_of, root_of
from jitney.torch_compat import torch_private


def aot_compile(compiled: Any) -> Callable[..., None]:
    """``aot_compile(compiled)(*args, **kwargs)`` compiles what a call with these arguments would run, and runs nothing.

    The call is compiled as it would be here and now: in this grad mode, this autocast, for these sizes and those marked
    by ``mark_dynamic``. Call it once for each kind of request: sizes that differ between two are symbolic from the
    second on. Where gradients are on, so is the backward for gradients of all results; others are compiled at the
    backward that has them. ``jitney.save`` takes what was compiled so.

    What is after a graph break depends on what the program does there: it is compiled at the first call that gets that
    far, and one warning says so. Numbers of random generators are drawn by the call. A function with a cache
    (``functools.lru_cache``) is the exception: its cache is filled now, as compiling the call would fill it.

    Args:
        compiled: made by ``jitney.compile`` or ``jitney.load``; its program's code is not run, its arguments are only
            looked at.

    Raises:
        TypeError: it was not made by ``jitney.compile``, or an extension runs its calls in its own way; or it does not
            take such arguments.
        JitneyError: as the call itself would. Later calls are compiled as if this one had not been.
    """
    root = root_of(compiled)
    if root is None:
        raise TypeError("jitney.aot_compile: an extension runs this module's calls in its own way")
    if isinstance(compiled, types.MethodType):
        return functools.partial(_compile, root, None, compiled.__self__)
    module = module_of(compiled)
    return functools.partial(_compile, root, module, *([] if module is None else [module]))


def _compile(root: Root, module: torch.nn.Module | None, /, *args: Any, **kwargs: Any) -> None:
    thread = threading.get_ident()
    breaks: list[events.GraphBreak] = []

    def collect(event: events.Event) -> None:
        if type(event) is events.GraphBreak and threading.get_ident() == thread:
            breaks.append(event)

    name = root.target.name
    if stance.current() == "force_eager":
        callers.warn(f'{name} is not compiled ahead: nothing is compiled under set_stance("force_eager")')
        return
    if module is not None:
        _check_forward(module, args, kwargs)
    noted = root.observed.copy()
    try:
        with events.listen(collect):
            reason = root.compile_ahead(args, kwargs)
    except Exception:
        root.observed = noted
        raise
    if reason:
        callers.warn(f"{name} is not compiled ahead, this call runs eagerly: {reason}")
    for stop in breaks[:1]:
        line = describe_frame(stop.user_stack[-1]) if stop.user_stack else name
        callers.warn(
            f"{line}: {stop.reason}\n{name} is compiled ahead up to this graph break: what follows is compiled at the "
            f"first call{f'. To have it whole: {stop.hint}' if stop.hint else ''}"
        )


def _check_forward(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A call's own TypeError, where a module's ``forward`` gets the arguments as they are and refuses them."""
    forward: Any = module.forward
    changed = module._forward_pre_hooks or any(torch_private.global_module_hooks().values())
    if changed or type(module).__call__ is not torch.nn.Module.__call__:
        return
    function = forward.__func__ if type(forward) is types.MethodType else None
    if type(function) is not types.FunctionType:
        return
    Target(function.__code__, function.__globals__, function).bind((forward.__self__, *args[1:]), kwargs)
