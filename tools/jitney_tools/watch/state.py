"""What is told of a process: plain numbers and texts, the same in the file and in the one who reads it."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_type_hints

from jitney._util.type_check import has_type
from jitney.errors import JitneyError

FORMAT = 1


@dataclass
class InFlight:
    """One compilation that has begun.

    Args:
        function: the user's.
        phase: ``capture``, ``aot`` or ``backend NAME``.
        line: the user's line that called it, as ``file:line``; empty if nobody knows.
        begin: seconds since 1970.
    """

    function: str
    phase: str
    line: str
    begin: float


@dataclass
class Recompile:
    """One compilation that a failed guard made necessary.

    Args:
        function: the user's.
        guard: which one, and what it found.
        line: where the user's code reads what it is about.
        at: seconds since 1970.
    """

    function: str
    guard: str
    line: str
    at: float


@dataclass
class Break:
    """A graph break, or a frame that is left eager.

    Args:
        line: the user's.
        reason: of the break.
        count: how often it was met while compiling.
    """

    line: str
    reason: str
    count: int


@dataclass
class Function:
    """What one function has cost.

    Args:
        name: the user's.
        line: where it is.
        captures: frames captured of it.
        loaded: frames taken from disk.
        seconds: of capture.
    """

    name: str
    line: str
    captures: int = 0
    loaded: int = 0
    seconds: float = 0.0


@dataclass
class State:
    """One process at one moment.

    Args:
        pid: its number.
        program: what it runs.
        started: when it was first told of, in seconds since 1970.
        updated: when this was written.
        counts: of what has happened, by name.
        seconds: of all threads together, by what they were at: ``graphs``, ``breaks``, ``guards``, ``compiling``.
        in_flight: compilations that have begun, the outermost first.
        recompiles: the last ones.
        breaks: the most frequent ones.
        functions: those that cost most.
    """

    pid: int
    program: str
    started: float
    updated: float
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    in_flight: list[InFlight] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)

    def text(self) -> str:
        """As JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @property
    def age(self) -> float:
        """Seconds since it was written."""
        return time.time() - self.updated


ROWS: dict[str, type] = {"in_flight": InFlight, "recompiles": Recompile, "breaks": Break, "functions": Function}


def parse(text: str) -> State:
    """The state that ``State.text`` has written.

    Raises:
        JitneyError: it is something else.
    """
    try:
        found = json.loads(text)
        if found.pop("format") != FORMAT:
            raise JitneyError("another version of jitney writes it", phase="watch")
        rows = {name: [_made(kind, row) for row in found.pop(name)] for name, kind in ROWS.items()}
        state: State = _made(State, {**found, **rows})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise JitneyError(
            f"not what a watched process writes: {type(error).__name__}: {error}", phase="watch"
        ) from None
    return state


def _made(kind: Any, values: dict[str, Any]) -> Any:
    """An instance whose fields have their types; of numbers, an int may stand for a float, as JSON has it."""
    made = kind(**values)
    types = get_type_hints(kind)
    for one in fields(kind):
        value = getattr(made, one.name)
        if types[one.name] is float and type(value) is int:
            setattr(made, one.name, float(value))
        elif types[one.name] == dict[str, float] and type(value) is dict:
            setattr(made, one.name, {key: float(number) for key, number in value.items()})
        if not has_type(getattr(made, one.name), types[one.name]):
            raise TypeError(f"{one.name} is {value!r:.40}")
        numbers = [*value.values()] if types[one.name] == dict[str, float] else [value] if type(value) is float else []
        if not all(0 <= number < math.inf for number in numbers):
            raise ValueError(f"{one.name} is no time: {value!r:.40}")
    return made
