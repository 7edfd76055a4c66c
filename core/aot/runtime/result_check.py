"""Does a backend return what its graph says? Asked at the first call, and at every one under ``config.verify``.

A graph that is stored before its first call, as ``jitney.aot_compile`` does, is asked where it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney.cache.recipes import RECIPE, Recipe, Writer, call
from jitney.config import config
from jitney.errors import BackendFailed

ANYTHING: Any = object()  # an output that is not looked at
# What an output must be: dtype, device and sizes of a tensor, None for those that may change; another value's class; or
# nothing.
Fact = tuple[()] | tuple[str] | tuple[torch.dtype, str, tuple[int | None, ...]]


def checked(
    compiled: Callable[..., Sequence[Any]], expected: Sequence[Any], seen: int, reject: Callable[[str], None]
) -> Callable[..., Sequence[Any]]:
    """``compiled``, its first result compared with ``expected`` (FakeTensors, symbols, None, numbers).

    Args:
        compiled: what the backend made.
        expected: the graph's outputs as traced: number, dtypes, devices and fixed sizes count.
        seen: how many of them the program sees; the others are saved for the backward.
        reject: called with what is wrong; raises.
    """
    return _checked(compiled, tuple(map(_fact, expected)), seen, reject)


def _checked(
    compiled: Callable[..., Sequence[Any]], facts: Sequence[Fact], seen: int, reject: Callable[[str], None]
) -> Callable[..., Sequence[Any]]:
    looked = False

    def run(*inputs: Any) -> Sequence[Any]:
        return look(compiled(*inputs))

    def look(outputs: Sequence[Any]) -> Sequence[Any]:
        nonlocal looked
        if not looked or config.verify:
            reason = _difference(outputs, facts, seen)
            if reason:
                reject(reason)
            looked = True
        return outputs

    if hasattr(compiled, "located"):
        located = compiled.located
        run.located = lambda *inputs: look(located(*inputs))  # type: ignore[attr-defined] # see Backend
    run.boxed = getattr(compiled, "boxed", None)  # type: ignore[attr-defined] # see Backend
    run.filled = getattr(compiled, "filled", frozenset())  # type: ignore[attr-defined] # see CompileRequest.updates

    def recipe(writer: Writer) -> Recipe | int:
        if looked:
            return writer.ref(compiled)
        return call("jitney.aot.runtime.result_check:checked_later", *writer.refs((compiled, facts, seen)))

    run.__dict__[RECIPE] = recipe
    return run


def checked_later(compiled: Callable[..., Sequence[Any]], facts: Sequence[Fact], seen: int) -> Any:
    """The same in another process, of a graph that was stored before it had run."""

    def reject(reason: str) -> None:
        raise BackendFailed(f"a graph that was compiled ahead {reason}", phase="run")

    return _checked(compiled, facts, seen, reject)


def difference(outputs: Any, expected: Sequence[Any], seen: int) -> str:
    """What is wrong with a graph's outputs; empty if nothing is.

    The dtypes and devices of saved values do not count: torch's stand-ins are wrong about some, such as layer norm's
    statistics of half-precision tensors, or the seed that attention's dropout keeps on the CPU.
    """
    return _difference(outputs, tuple(map(_fact, expected)), seen)


def _difference(outputs: Any, facts: Sequence[Fact], seen: int) -> str:
    if not isinstance(outputs, (list, tuple)):
        return f"returned a {type(outputs).__name__}; its {len(facts)} outputs were expected as a list or tuple"
    if len(outputs) != len(facts):
        return f"returned {len(outputs)} outputs, {len(facts)} were expected"
    for i, (value, want) in enumerate(zip(outputs, facts, strict=True)):
        if not want:
            continue
        got = _fact(value)
        if (len(got) == 3) is not (len(want) == 3):
            return f"output {i} is a {type(value).__name__}, {_text(want)} was expected"
        if len(got) == 3 and len(want) == 3 and not _fits(got, want, i < seen):
            return f"output {i} is {_text(got)}, {_text(want)} was expected"
    return ""


def _fact(value: Any) -> Fact:
    if value is ANYTHING:
        return ()
    if not isinstance(value, torch.Tensor):
        return (type(value).__name__,)
    return value.dtype, value.device.type, tuple([n if type(n) is int else None for n in value.shape])


def _fits(got: Any, want: Any, seen: bool) -> bool:
    if (seen and got[:2] != want[:2]) or len(got[2]) != len(want[2]):
        return False
    return all(w is None or g == w for g, w in zip(got[2], want[2], strict=True))


def _text(fact: Fact) -> str:
    if len(fact) != 3:
        return f"a {fact[0]}" if fact else "anything"
    sizes = ", ".join("any" if n is None else str(n) for n in fact[2])
    return f"{fact[0]}[{sizes}] on {fact[1]}"
