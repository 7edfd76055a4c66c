"""The face: what users import."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from jitney._util.old_spellings import named_in_errors
from jitney.backends import resolve
from jitney.backends.options import check_kinds
from jitney.backends.resolve import Spec
from jitney.capture import marks
from jitney.errors import InvalidOption
from jitney.runtime import wrappers
from jitney.runtime.entry import Session
from jitney.runtime.stance import set_stance
from jitney.runtime.wrappers import running_originals as running_originals

F = TypeVar("F", bound=Callable[..., Any])


@named_in_errors(nopython="it is called fullgraph=True")
def compile(
    model: Any = None,
    *,
    backend: Spec = "auto",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    disable: bool = False,
    inplace: bool = False,
) -> Any:
    """Compile a function, method or module; without ``model``, a decorator.

    Args:
        model: what to compile. A module keeps its parameters, attributes and state.
        backend: an installed backend's name, a callable ``(graph_module, example_inputs) -> callable``, a
            ``Backend``, or ``"auto"``.
        fullgraph: a graph break is an error (``errors.Unsupported``) instead, and numbers and sizes that only the
            running graph knows stay in it.
        dynamic: True makes every size symbolic, False none, None those that change between calls.
        options: for the backend, checked against what it has.
        mode: one of torch.compile's modes, for the backend: the field ``mode`` of its options, or the keyword
            ``mode`` of a callable. A backend without modes does not use it, and one warning says so.
        disable: return ``model`` as it is.
        inplace: compile the calls of the module ``model``, wherever they come from, and return ``model`` itself, as
            torch's ``nn.Module.compile()`` does. Copies of it are not compiled.

    Raises:
        TypeError: ``model`` is not callable; or, with ``inplace``, no module, or one whose class has a ``__call__`` of
            its own.
        BackendNotFound, PluginError, InvalidOption: see ``jitney.errors``.
    """
    check_kinds(options, mode)
    if dynamic is not None and not isinstance(dynamic, bool):
        raise InvalidOption(f"dynamic={dynamic!r} is not True, False or None", hint="dynamic=None, as by default")
    if model is None:
        return functools.partial(
            compile, backend=backend, fullgraph=fullgraph, dynamic=dynamic, options=options, mode=mode, disable=disable,
            inplace=inplace,
        )  # fmt: skip
    if not callable(model):
        kind = type(model).__name__
        raise TypeError(f"jitney.compile takes a function or a module, and backend= by keyword; this is a {kind}")
    if disable:
        return model
    session = Session(resolve(backend, options, mode), fullgraph, dynamic)
    return wrappers.compile_in_place(model, session) if inplace else wrappers.wrap(model, session)


marks.compile_functions.append(compile)


def run(fn: Any) -> Callable[..., Any]:
    """``fn`` with what is compiled already: nothing new, eager where no entry fits.

    Of a function that is not compiled itself, this holds for the compiled functions that it calls.
    """
    session = getattr(fn, "_jitney_session", None) or getattr(getattr(fn, "__func__", None), "_jitney_session", None)
    if not callable(fn):
        raise TypeError(f"jitney.run: a {type(fn).__name__} is not callable; give a function or a module")
    if session is None:
        return set_stance("eager_on_recompile")(fn)

    @functools.wraps(getattr(fn, "_jitney_original", fn))
    def frozen(*args: Any, **kwargs: Any) -> Any:
        before = session.frozen.on
        session.frozen.on = True
        try:
            return fn(*args, **kwargs)
        finally:
            session.frozen.on = before

    return frozen


def reset() -> None:
    """Forget everything compiled in this process."""
    wrappers.forget_everything()


def disable(fn: Any = None, recursive: bool = True) -> Any:
    """Never compile ``fn``: a call breaks the graph. With ``recursive=False`` only its own frame, not what it calls."""
    if fn is None:
        return functools.partial(disable, recursive=recursive)
    if isinstance(fn, torch.nn.Module):
        module = fn
        module.forward = disable(module.forward, recursive)
        return module

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    (marks.mark_disabled if recursive else marks.mark_frame_only)(disabled)
    return disabled


def allow_in_graph(fn: F | Sequence[F]) -> Any:
    """Record calls of ``fn`` (or of each of a list) as one node of the graph, without looking inside."""
    return _mark(fn, marks.mark_allowed)


def disallow_in_graph(fn: F | Sequence[F]) -> Any:
    """Break the graph at calls of this function, method or operator of torch's (or of each of a list).

    A custom operator, its packet (``torch.ops.lib.name``) and the packet's overloads are one operator.
    """
    return _mark(fn, marks.mark_disallowed)


def _mark(fn: Any, mark: Callable[[Any], None]) -> Any:
    if isinstance(fn, (list, tuple)):
        return [_mark(one, mark) for one in fn]
    if not callable(fn):
        raise TypeError(f"a {type(fn).__name__} is not callable: it cannot be in a graph")
    mark(fn)
    return fn
