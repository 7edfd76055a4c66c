"""What a graph without its arithmetic of Python floats needs when it is called; see ``host_arithmetic.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

PREPARE = "prepare"
"""The name of the function that does the arithmetic."""


def power(base: float, exponent: float) -> float:
    """What Python's ``**`` gives; raises for what is no float."""
    made = base**exponent
    if isinstance(made, complex):
        raise ArithmeticError("a power that is no finite float")
    return made


def with_numbers(
    run: Any, prepare: Callable[[list[Any]], tuple[float, ...]], places: Sequence[int]
) -> Callable[..., Sequence[Any]]:
    """The function of the old graph, from that of the new one; see ``HostNumbers``."""
    boxed = getattr(run, "boxed", None)

    def called(inputs: list[Any]) -> Sequence[Any]:
        numbers = prepare(inputs)
        outputs = run(*inputs) if boxed is None else boxed(inputs)
        if not numbers:
            return outputs
        results = [*outputs]
        for place, number in zip(places, numbers, strict=True):
            results[place] = number
        return results

    def whole(*inputs: Any) -> Sequence[Any]:
        return called([*inputs])

    if boxed is not None:
        whole.boxed = called  # type: ignore[attr-defined] # see Backend
    whole.filled = run.filled  # type: ignore[attr-defined] # see CompileRequest.updates
    return whole
