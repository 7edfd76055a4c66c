"""A compiled graph has raised: is it the program's fault, or the backend's? The graph as it was captured tells."""

from __future__ import annotations

import contextlib
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from jitney._util import callers
from jitney.cache.recipes import RECIPE, call
from jitney.config import config
from jitney.errors import JitneyError
from jitney.torch_compat import torch_private
from jitney.torch_compat.global_state import StateKeeper
from jitney.torch_compat.out_of_memory import advise


def error_text(error: BaseException) -> str:
    """An error as a warning tells it; with ``config.verbose``, with the traceback of its cause."""
    if not config.verbose:
        return str(error)
    return f"{error}\n{''.join(traceback.format_exception(error.__cause__ or error)).rstrip()}"


def raises_too(graph: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Does this graph raise on these inputs? Random generators and torch's global state are put back, no warning shown.

    Args:
        graph: what does the same without a backend, and writes to none of its inputs.
        inputs: tensors and numbers.
    """
    keeper = StateKeeper()
    devices = sorted({t.device.index for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda})
    try:
        with torch.random.fork_rng(devices), _quiet():
            graph(*inputs)
    except Exception:
        return True
    finally:
        keeper.restore()
    return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Show none of this thread's warnings; those that are errors are raised.

    Not by ``catch_warnings``, after which each place in the program warns once more.
    """
    shown, thread = warnings.showwarning, threading.get_ident()

    def show(*args: Any, **kwargs: Any) -> None:
        if threading.get_ident() != thread:
            shown(*args, **kwargs)

    warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:
            warnings.showwarning = shown


def with_blame(
    compiled: Callable[..., Sequence[Any]], graph: Callable[..., Any], failure: Callable[[Exception], Exception]
) -> Callable[..., Sequence[Any]]:
    """``compiled``; what it raises and ``graph`` does not is raised as ``failure`` says, with the cause."""

    def run(*inputs: Any) -> Sequence[Any]:
        try:
            return compiled(*inputs)
        except Exception as error:
            if isinstance(error, (JitneyError, torch_private.STOPS_RECOMPUTATION)) or raises_too(graph, inputs):
                raise
            raise failure(error) from error

    run.__dict__[RECIPE] = lambda writer: writer.ref(compiled)
    return run


class Unwritten(Exception):
    """A graph that writes to its inputs has raised ``error`` before it did: its frame may run eagerly."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def captured_fallback(
    eagerly: Callable[..., Sequence[Any]], blame: Callable[[Exception], Exception], restarts: bool = False
) -> Callable[[Exception, Sequence[Any]], Sequence[Any]]:
    """What a graph that writes to its inputs does when its compiled forward has raised, before any of these writes.

    It runs as it was captured, to fail as eager does, with eager's message and eager's writes up to there. If that does
    not fail, the backend has, and one warning says so.

    Args:
        eagerly: the graph as it was captured.
        blame: what blames the backend for an error.
        restarts: does who calls it run the whole frame eagerly instead, on ``Unwritten``?
    """

    def run(error: Exception, inputs: Sequence[Any]) -> Sequence[Any]:
        if isinstance(error, (JitneyError, torch_private.STOPS_RECOMPUTATION)):
            raise error
        if restarts and raises_too(eagerly, _copies(inputs)):
            raise Unwritten(error) from error
        try:
            outputs = eagerly(*inputs)
        except Exception as own:
            advise(own, "a graph that writes to its inputs")
            raise own from None
        callers.warn(f"{error_text(blame(error))}\n(calls for which it raises run as captured)")
        return outputs

    run.__dict__[RECIPE] = lambda writer: call(
        "jitney.backends.faults:captured_fallback", writer.ref(eagerly), writer.ref(unknown), restarts
    )
    return run


def _copies(inputs: Sequence[Any]) -> list[Any]:
    """The inputs in memory of their own, shared among them as it is."""
    memory: dict[int, Any] = {}
    return [_copy(x, memory) if type(x) in (torch.Tensor, torch.nn.Parameter) else x for x in inputs]


def _copy(x: torch.Tensor, memory: dict[int, Any]) -> torch.Tensor:
    with torch.no_grad():
        whole = x.untyped_storage()
        copy = memory.get(whole._cdata)
        if copy is None:
            copy = memory[whole._cdata] = whole.clone()
        made = torch.empty(0, dtype=x.dtype, device=x.device)
        return made.set_(copy, x.storage_offset(), x.shape, x.stride())


def unknown(error: Exception) -> Exception:
    """The blame for a graph of an earlier process, of which nobody knows any more where it was."""
    return JitneyError(f"a graph that was kept on disk raised {type(error).__name__}: {error}", phase="backend")
