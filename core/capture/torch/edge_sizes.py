"""Sizes that depend on data, where they are 0 or 1: does what capture takes for granted hold there, too?

torch's rules for stand-ins decide what they cannot know (is this size 1, to be squeezed?) as for sizes of 2 and more,
and do not say so. So an operation on tensors with such sizes runs again on stand-ins that have 0 and 1 there.
Where its results have other shapes than capture has been told, or are views and were said to be none, the graph checks
that the sizes are others. A size that is computed from such (``x[mask][1:]``) is 0 or 1 where they are not: the
operation runs for each of those, too.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.torch_compat import torch_private
from jitney.torch_compat.stand_ins.strides import StandInMode

EDGES = (0, 1)
ELSEWHERE = 7  # what a size is that is at no edge
NEAR = range(4)  # where sizes are sought of which others, that are computed from them, are at an edge
MOST = 2  # symbols that a size is computed from, to be sought
ARRANGED = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Trial:
    """One operation, to be run with sizes that depend on data at their edges.

    Args:
        symbols: those of the capture.
        args, kwargs: what it is called with, before it may have changed that.
        sizes: those among their sizes and numbers that depend on data.
    """

    def __init__(self, symbols: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sizes: list[Any]) -> None:
        self.symbols, self.sizes = symbols, sizes
        self.memory = _memory((args, kwargs))
        self.calls: list[tuple[dict[Any, int], list[Any], StandInMode, Any, Any]] = []
        for at, wary in self._points():
            env = torch_private.ShapeEnv(duck_shape=False, allow_dynamic_output_shape_ops=True)
            mode = StandInMode(shape_env=env, allow_non_fake_inputs=False)
            with torch_private.without_modes(), mode, contextlib.suppress(ArithmeticError, ValueError):
                call = self._at(args, at), self._at(kwargs, at)  # else the graph raises, too
                self.calls.append((at, wary, mode, *call))

    def _points(self) -> Iterator[tuple[dict[Any, int], list[Any]]]:
        """What the symbols are in each run, and which sizes are at an edge there."""
        symbols = self._unknown(self.sizes)
        for edge in EDGES:
            yield dict.fromkeys(symbols, edge), self.sizes
        for size, edge in itertools.product(self.sizes, EDGES):
            own = self._unknown([size])
            if len(own) > MOST or own == symbols == {size.node.expr}:
                continue
            for values in itertools.product(NEAR, repeat=len(own)):
                at = dict.fromkeys(symbols, ELSEWHERE) | dict(zip(own, values, strict=True))
                if self._number(size, at) == edge:
                    yield at, [size]
                    break

    def _unknown(self, sizes: list[Any]) -> set[Any]:
        """The symbols that these are computed from, and that only the running graph knows."""
        found: set[Any] = set()
        todo = {symbol for size in sizes for symbol in size.node.expr.free_symbols}
        while todo:
            symbol = todo.pop()
            made = self.symbols.scalars.definitions.get(symbol)
            if symbol in self.symbols.unknown:
                found.add(symbol)
            elif made is not None:
                todo |= {s for a in made.args if type(a) in ARRANGED for s in a.node.expr.free_symbols}
        return found

    @classmethod
    def of(cls, symbols: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trial | None:
        """The trial that an operation needs; None for one without such sizes."""
        if not symbols.unknown:
            return None
        found = {
            n.node.expr: n for n in _numbers((args, kwargs)) if type(n) is torch.SymInt and not symbols.is_known(n)
        }
        return cls(symbols, args, kwargs, [*found.values()]) if found else None

    def check(self, func: Any, result: Any) -> None:
        """Let the graph check what the shapes of the result take for granted of the sizes.

        Raises:
            Break: that cannot be, by other checks.
        """
        for at, wary, mode, args, kwargs in self.calls:
            if not self._is_possible(at):
                continue
            try:
                with torch_private.without_modes(), mode, torch.no_grad():
                    there = func(*args, **kwargs)
            except Exception:  # then so does the operation itself when the graph runs, on such sizes
                continue
            shared = _memory(there) & _memory((args, kwargs))  # does it give a view, or what it was given?
            if self._agree(result, there, at) and bool(shared) == bool(_memory(result) & self.memory):
                continue
            for size in wary:
                other = size != self._number(size, at)
                if type(other) is torch.SymBool and not other.node.expect_true("", 0):
                    raise Break("a size that depends on data is 0 or 1, by a check of it")

    def _is_possible(self, at: dict[Any, int]) -> bool:
        """May the sizes be these, by what the graph checks already?"""
        for group in self.symbols.env.deferred_runtime_asserts.values():
            for one in group:
                if one.expr.free_symbols <= at.keys() and one.expr.subs(at) == False:  # noqa: E712 (SymPy's own)
                    return False
        return True

    def _agree(self, said: Any, there: Any, at: dict[Any, int]) -> bool:
        """Has a result the shapes that were said, with these sizes?"""
        if isinstance(said, torch.Tensor) and isinstance(there, torch.Tensor):
            return said.dim() == there.dim() and all(map(self._equal, said.shape, there.shape, [at] * said.dim()))
        if isinstance(said, (tuple, list)) and isinstance(there, (tuple, list)):
            return len(said) == len(there) and all(self._agree(a, b, at) for a, b in zip(said, there, strict=True))
        return type(said) in ARRANGED or type(there) in ARRANGED or type(said) is type(there)

    def _equal(self, said: Any, there: Any, at: dict[Any, int]) -> bool:
        number = self._number(said, at)
        return number is None or type(there) is not int or number == there

    def _at(self, value: Any, at: dict[Any, int]) -> Any:
        """The arguments, with this in place of what depends on data and the values of this call for other symbols."""
        if is_stand_in(value) and type(value) is torch_private.FakeTensor:
            size, stride = ([self._size(n, at) for n in ns] for ns in (value.shape, value.stride()))
            if min(size, default=0) < 0:
                raise ValueError("there is no such size")
            return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)
        if type(value) in ARRANGED:
            return self._size(value, at)
        if isinstance(value, Mapping):
            return {k: self._at(v, at) for k, v in value.items()}
        if type(value) is slice:
            return slice(self._at(value.start, at), self._at(value.stop, at), self._at(value.step, at))
        if type(value) in (tuple, list, torch.Size):
            return (list if type(value) is list else tuple)(self._at(v, at) for v in value)
        return value

    def _size(self, value: Any, at: dict[Any, int]) -> Any:
        number = self._number(value, at)
        if number is None:
            raise Break("a size that depends on data and on something that is not known before the graph runs")
        return number

    def _number(self, value: Any, at: dict[Any, int]) -> Any:
        """A size or number with these sizes; None for one that the operation itself has made."""
        if type(value) not in ARRANGED:
            return value
        expr = value.node.expr
        values = {symbol: self._value(symbol, at) for symbol in expr.free_symbols}
        return None if None in values.values() else value.node.pytype(expr.subs(values))

    def _value(self, symbol: Any, at: dict[Any, int]) -> Any:
        if symbol in self.symbols.unknown:
            return at.get(symbol, ELSEWHERE)
        found = self.symbols.scalars.definitions.get(symbol)
        if found is not None:
            return found.target(*(self._number(a, at) for a in found.args))
        known = self.symbols.values.get(symbol)
        return None if known is None else known.node.hint


def _memory(value: Any) -> set[int]:
    """The memory of the tensors in arguments or results."""
    return {torch_private.storage_of(v) for v in _leaves(value) if is_stand_in(v)}


def _numbers(value: Any) -> Iterator[Any]:
    """Sizes of tensors, and numbers, in arguments."""
    for leaf in _leaves(value):
        yield from leaf.shape if is_stand_in(leaf) else (leaf,)


def _leaves(value: Any) -> Iterator[Any]:
    """What is in containers and slices."""
    if type(value) is slice:
        value = (value.start, value.stop, value.step)
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else None
    if inside is None or is_stand_in(value):
        yield value
    else:
        for item in inside:
            yield from _leaves(item)
